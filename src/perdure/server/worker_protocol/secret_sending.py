"""What workers of a pool are sent of the secrets that the store keeps, and what they say is masked with it (SRV-073).

    [pools.gpu]
    secrets = "send"

A worker asks under a lease, and is sent what the task of the lease asks for: the secrets at the places of its
arguments, and the credentials that opening its envelope looks up. Whatever a task of the family says afterwards, at any
server, is masked with what the document names, as it is now, and with what this server has sent.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.engine.decision_threads import SMALL, done_aside
from perdure.engine.tasks.leased_tasks import parcel_of
from perdure.kernel.errors import PerdureError
from perdure.kernel.ids import family_of
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Outcome
from perdure.kernel.secrets.credentials import REFERENCES, first, is_reference, secret_texts
from perdure.kernel.secrets.sealed_arguments import (
    CredentialLookup,
    EntryFields,
    EnvelopeError,
    HideTexts,
    Opened,
    PinnedDocumentLookup,
    Secret,
    SecretLookup,
    SecretRequests,
    next_request,
    read_envelope,
    read_secret_places,
)
from perdure.kernel.secrets.secret_masking import MOST_COMPARED, QUICK, Mask
from perdure.kernel.turn_budget import TooMuchToCompare
from perdure.providers.off_loop import FamilyThreads
from perdure.stores.pool_tasks import TaskLease

if TYPE_CHECKING:
    from perdure.engine.secrets.kept_credentials import KeptCredentials
    from perdure.engine.secrets.kept_secrets import SeenSecrets
    from perdure.wiring import Engine

MASKS_KEPT = 1_000  # of families that were sent something
CHARACTERS_KEPT = 64 << 20  # in these masks
ADDED_AT_ONCE = 20  # secrets, on the event loop
CREDENTIAL, CONFIG = "credential:", "config:"
_T = TypeVar("_T")


class SecretSender:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self.pools: frozenset[str] = frozenset()  # those whose workers are sent something
        self._masks: OrderedDict[str, Mask] = OrderedDict()  # by family
        self._threads = FamilyThreads()

    @property
    def _kept(self) -> "KeptCredentials":
        return self._engine.credentials

    def sends_to(self, pool: str) -> bool:
        return pool in self.pools

    # Sending.

    async def find(self, lease: TaskLease, names: Sequence[str]) -> dict[str, Any]:
        """Those of the names that the task of the lease asks for and the store keeps; from now on they are masked.

        `NAME/KEY` is a text, `NAME/*` all of its keys, `config:NAME/KEY` of a ConfigMap; `credential:NAME` is a map.
        """
        assignment = parcel_of(lease).assignment
        asked = await self._asked_by(lease)
        task_names = [name for name in dict.fromkeys(names) if name in asked]
        seen = await self._kept.secrets.see(lease.namespace, task_names)
        sent: dict[str, Any] = {}
        for name in task_names:
            sent |= await self._values(seen, lease.namespace, name)
        secrets = [secret_texts(value) for name, value in sent.items() if not name.startswith(CONFIG)]
        texts = [text for some in secrets for text in some if not is_reference(text)]
        await _add_all(self._mask(family_of(assignment.run)), texts)
        return sent

    async def _values(self, seen: "SeenSecrets", namespace: str, name: str) -> dict[str, Any]:
        if name.startswith(CREDENTIAL):
            value: Any = await self._kept.value(namespace, name.removeprefix(CREDENTIAL))
        elif name.startswith(CONFIG):
            entry, _, key = name.removeprefix(CONFIG).partition("/")
            value = seen.config(entry, key)
        elif name.endswith("/*"):
            return seen.all_keys(name.removesuffix("/*"))
        else:
            value = seen.secret(name)
        return {} if value is None else {name: value}

    async def _asked_by(self, lease: TaskLease) -> set[str]:
        """What the task asks for: never more than its document names, and nothing that only other tasks need."""
        parcel = parcel_of(lease)
        assignment, named = parcel.assignment, set(parcel.assignment.secrets)
        text = await self._engine.text(lease.run, parcel.arguments)
        if not assignment.sealed:
            return await done_aside(len(text), partial(_mentioned, text, named)) if text and named else set()
        places = await done_aside(len(text), partial(read_secret_places, text))
        if places is not None:
            return {name for _, name in places.secrets}
        envelope = await done_aside(len(text), partial(read_envelope, text))
        language = self._engine.languages[envelope.language]
        credentials: set[str] = set()
        aside = partial(self._threads.run, family_of(lease.run), name="perdure-unseal")
        try:
            await self._run_requests(language.open(envelope.body, assignment.run), lease.namespace, credentials, aside)
        except EnvelopeError:  # it needs a value of the worker's machine: what the document names is the limit
            return {name for name in named if name.startswith(CREDENTIAL)} | credentials
        return credentials

    async def _run_requests(
        self, requests: SecretRequests[_T], namespace: str, credentials: set[str], aside: Callable[..., Awaitable[Any]]
    ) -> _T:
        """Open an envelope with what the store keeps, to learn which credentials are looked up."""
        answer: Any = None
        try:
            while True:
                match await aside(partial(next_request, requests, answer)):
                    case Opened(value):
                        result: _T = value
                        return result
                    case HideTexts():
                        answer = None
                    case PinnedDocumentLookup(digest):
                        pinned = await self._engine.store.program(bytes.fromhex(digest))
                        answer = b"" if pinned is None else pinned[1]
                    case CredentialLookup(name):
                        answer = await self._looked_up(name, "", namespace, credentials)
                    case SecretLookup(entry):
                        fields: EntryFields = await self._run_requests(entry.fields(), namespace, credentials, aside)
                        name = first(fields.values, REFERENCES) or entry.name
                        answer = await self._looked_up(name, entry.kind, namespace, credentials)
        finally:
            requests.close()

    async def _looked_up(self, name: str, kind: str, namespace: str, credentials: set[str]) -> Secret:
        credentials.add(f"{CREDENTIAL}{name}")
        return Secret(kind, await self._kept.value(namespace, name) or {})

    # Masking.

    def _mask(self, family: str) -> Mask:
        mask = self._masks.setdefault(family, Mask())
        self._masks.move_to_end(family)
        kept = sum(known.size for known in self._masks.values())
        while len(self._masks) > MASKS_KEPT or (kept > CHARACTERS_KEPT and len(self._masks) > 1):
            kept -= self._masks.popitem(last=False)[1].size
        return mask

    async def mask_of(self, lease: TaskLease) -> Mask | None:
        """What is hidden in everything that comes under this lease; None: nothing."""
        names = parcel_of(lease).assignment.secrets if lease.body and self.sends_to(lease.pool) else ()
        if not names:
            return None
        mask = self._mask(family_of(lease.run))
        with suppress(PerdureError):  # while the store is away, what was seen last counts
            seen = await self._kept.secrets.see(lease.namespace, names)
            texts = [text for name in names for text in seen.texts(name)]
            for name in names:
                if name.startswith(CREDENTIAL):
                    value = await self._kept.value(lease.namespace, name.removeprefix(CREDENTIAL))
                    texts += [text for text in secret_texts(value or {}) if not is_reference(text)]
            await _add_all(mask, texts)
        return mask if mask.hides else None

    async def hide_outcome(self, lease: TaskLease, outcome: Outcome) -> Outcome:
        return await self._hide(lease, outcome, lambda mask, most: mask.outcome(outcome, most))

    async def hide_json(self, lease: TaskLease, text: bytes) -> bytes:
        return await self._hide(lease, text, lambda mask, most: mask.json(text, most))

    async def hide_text(self, lease: TaskLease, text: str) -> str:
        return await self._hide(lease, text, lambda mask, most: mask.text(text, most))

    async def hide_data(self, lease: TaskLease, value: Any) -> Any:
        """`REDACTED` for data that would have to be searched for too long."""
        return await self._hide(lease, value, lambda mask, most: mask.data(value, most))

    async def _hide(self, lease: TaskLease, value: _T, hide: Callable[[Mask, int], _T]) -> _T:
        """What takes longer than a few milliseconds is done in a thread, one for each family of runs."""
        mask = await self.mask_of(lease)
        if mask is None:
            return value
        try:
            return hide(mask, QUICK)
        except TooMuchToCompare:
            work = partial(hide, mask, MOST_COMPARED)
            return await self._threads.run(family_of(lease.run), work, "perdure-mask")


async def _add_all(mask: Mask, secrets: Sequence[str]) -> None:
    """The forms of one take about a tenth of a millisecond, of long ones more."""
    unknown = [text for text in secrets if not mask.knows(text)]
    if not unknown:
        return

    def add() -> None:
        mask.add_all(unknown)
        mask.is_quick(0)  # with many secrets, what they are looked for by takes long to make

    await done_aside(max(sum(map(len, unknown)), SMALL + 1 if len(unknown) > ADDED_AT_ONCE else 0), add)


def _mentioned(text: bytes, named: set[str]) -> set[str]:
    """Those of the names that the arguments may refer to."""
    mentioned = set(_names_in(jsontext.decode(text)))
    return {name for name in named if name.removeprefix(CONFIG).partition("/")[0] in mentioned}


def _names_in(value: Any) -> Iterator[str]:
    """The names that texts may have as references: `NAME`, `NAME:KEY`, `NAMESPACE/NAME:KEY`, `NAME/KEY`."""
    if isinstance(value, str):
        yield value
        yield value.partition("/")[0]
        yield value.rpartition(":")[0].rpartition("/")[2]
    elif isinstance(value, dict | list):
        parts: Iterable[Any] = value.values() if isinstance(value, dict) else value
        for part in parts:
            yield from _names_in(part)
