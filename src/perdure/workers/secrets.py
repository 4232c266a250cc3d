"""Secrets of one task: resolved just before it runs, and taken out of everything it says."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.outcomes import Code, Outcome
from perdure.kernel.secrets.credentials import ResolvedSecret, SecretsOfTask
from perdure.kernel.secrets.sealed_arguments import REDACTED, EntryFields
from perdure.kernel.secrets.secret_masking import LINE, QUICK, Mask
from perdure.kernel.tasks.assignments import Assignment, EffectClaimResult, RunPort, StreamRows
from perdure.kernel.turn_budget import TooMuchToCompare
from perdure.providers.failure import ProviderFailure
from perdure.providers.off_loop import FamilyThreads, run_in_thread
from perdure.providers.text import READ_AT_ONCE, is_file_name

# Taking secrets out of everything that tasks say: results, failures, log lines, heartbeats, effects, signals.


ADDED_AT_ONCE = 20  # secrets; the forms of one take about a tenth of a millisecond
KEPT = 64 * 1024 * 1024  # characters in the masks of families without a running task


async def add_all(mask: Mask, secrets: Sequence[str]) -> None:
    if len(secrets) <= ADDED_AT_ONCE and sum(map(len, secrets)) <= READ_AT_ONCE:
        mask.add_all(secrets)
    else:
        await run_in_thread(partial(mask.add_all, secrets), "perdure-mask")


class Masks:
    """The masks of the families that this process works for; of those that hide something the last used are kept."""

    def __init__(self, most: int = 10_000, kept: int = KEPT) -> None:
        self._most, self._kept = most, kept
        self._masks: OrderedDict[str, Mask] = OrderedDict()
        self._threads = FamilyThreads()
        self._masking: set[asyncio.Task[None]] = set()

    def of(self, family: str) -> Mask:
        """For a task that begins; it says `report` when it has ended."""
        mask = self._masks.get(family)
        if mask is None:
            mask = self._masks[family] = Mask()
        else:
            self._masks.move_to_end(family)
        mask.holders += 1
        return mask

    def report(self, family: str, mask: Mask, outcome: Outcome, done: Callable[[Outcome], None]) -> None:
        """The task has ended: what it says is masked, at once or in a thread."""
        if not mask.hides:  # most runs have no secret: nothing of them stays in memory
            mask.holders -= 1
            if not mask.holders:
                self._masks.pop(family, None)
            done(outcome)
            return
        try:
            masked = mask.outcome(outcome, QUICK)
        except TooMuchToCompare:
            task = asyncio.get_running_loop().create_task(self._report_later(family, mask, outcome, done))
            self._masking.add(task)
            task.add_done_callback(self._masking.discard)
        else:
            self._leave(mask)
            done(masked)

    async def _report_later(self, family: str, mask: Mask, outcome: Outcome, done: Callable[[Outcome], None]) -> None:
        masked = await self._threads.run(family, partial(mask.outcome, outcome), "perdure-mask")
        self._leave(mask)
        done(masked)

    def _leave(self, mask: Mask) -> None:
        """A task that had secrets to hide has ended."""
        mask.holders -= 1
        if mask.holders:
            return
        if len(self._masks) > self._most or sum(known.size for known in self._masks.values()) > self._kept:
            self._forget()

    def _forget(self) -> None:
        """Those that were not used for longest, unless a task uses them."""
        size = sum(mask.size for mask in self._masks.values())
        for family, mask in list(self._masks.items()):
            if len(self._masks) <= self._most and size <= self._kept:
                return
            if not mask.holders:
                del self._masks[family]
                size -= mask.size

    def close(self) -> None:
        """What is still being masked is not reported."""
        for task in self._masking:
            task.cancel()


__all__ = ["REDACTED", "MaskingPort", "Resolver", "SecretMissing", "Secrets", "from_environment", "secret_values"]

Resolver = Callable[[str], str | None]
"""Name → value, or None when there is no such secret."""


class KeychainSource(Protocol):
    """Where the values of keychain entries come from. Passed in by wiring: kinds of entries belong to a language."""

    is_for_one_task: bool  # what it finds is for no other

    def for_task(self, assignment: Assignment) -> "KeychainSource":
        """The source for one task: itself, or one that knows what a server sends for that task."""
        ...

    async def resolve(self, kind: str, name: str, fields: EntryFields, namespace: str) -> ResolvedSecret:
        """A new value for an entry. Raises `EnvelopeError`."""
        ...

    async def credential(self, name: str, namespace: str) -> ResolvedSecret | None:
        """The credential that is stored under this name for runs of the namespace. Raises `EnvelopeError`."""
        ...

    async def see(self, names: Iterable[str], namespace: str) -> SecretsOfTask | None:
        """The present values of these Secrets and ConfigMaps of the catalog."""
        ...

    def secret_texts(self, name: str, namespace: str) -> Iterator[str]:
        """The texts to mask for a name in `Assignment.secrets` that is one of the keychain."""
        ...


class SecretMissing(ProviderFailure):
    def __init__(self, name: str) -> None:
        variable = f"PERDURE_SECRET_{_variable(name)}"
        message = f"secret {name!r} is not set; give it as {variable}, or as the file {name} in PERDURE_SECRETS_DIR"
        if "/" in name:
            message += ", or as a Secret of the run's namespace"
        super().__init__(Code.SECRET_MISSING, message, retryable=False, details={"secret": name})


def from_environment(name: str) -> str | None:
    """`PERDURE_SECRET_<name>`, then the file `<name>` in `PERDURE_SECRETS_DIR`.

    A secret with keys is asked for as `name/key`: a file in a folder, or a variable with `_` for what cannot be in one.
    """
    value = os.environ.get(f"PERDURE_SECRET_{name}") or os.environ.get(f"PERDURE_SECRET_{_variable(name)}")
    folder = os.environ.get("PERDURE_SECRETS_DIR")
    parts = name.split("/")
    if value is not None or not folder or len(parts) > 2 or not all(map(is_file_name, parts)):
        return value
    try:
        return Path(folder, *parts).read_text("utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError):
        return None


def secret_values(
    name: str, resolve: Resolver, keychain: KeychainSource | None = None, namespace: str = DEFAULT_NAMESPACE
) -> Iterator[str]:
    """The values that a name in `Assignment.secrets` stands for on this machine: to be masked, never to be passed on.

    A secret's name; `name/*` for all keys of a secret; or a name of the keychain (`env:…`, `file:…`, `credential:…`).
    """
    if (value := resolve(name)) is not None:
        yield value
    if name.endswith("/*"):
        yield from _all_keys(name.removesuffix("/*"))
    if keychain is not None:
        yield from keychain.secret_texts(name, namespace)


async def look_at_secrets(secrets: "Secrets", names: Sequence[str], resolve: Resolver, namespace: str) -> None:
    """What the run's document names, as it is now; the family's mask knows it at once: an earlier process may have
    used it. Many of them are looked up, and their forms computed, in a thread.
    """
    keychain = secrets.keychain
    if keychain is not None:
        secrets.seen = await keychain.see(names, namespace)
    mask, seen = secrets.mask, secrets.seen
    unknown = [name for name in names if name not in mask.names]

    def add() -> None:
        texts = [text for name in unknown for text in secret_values(name, resolve, keychain, namespace)]
        texts += [] if seen is None else [text for name in unknown for text in seen.texts(name)]
        mask.add_all(texts)

    if len(unknown) <= ADDED_AT_ONCE:
        add()
    else:
        await run_in_thread(add, "perdure-mask")
    mask.names.update(unknown)


def _all_keys(name: str) -> Iterator[str]:
    beginning = f"PERDURE_SECRET_{_variable(name)}_"
    yield from (value for variable, value in os.environ.items() if variable.startswith(beginning))
    folder = os.environ.get("PERDURE_SECRETS_DIR")
    if folder and is_file_name(name) and Path(folder, name).is_dir():
        keys = (from_environment(f"{name}/{file.name}") for file in Path(folder, name).iterdir())
        yield from (value for value in keys if value is not None)


def _variable(name: str) -> str:
    return "".join(character if character.isalnum() else "_" for character in name)


class Secrets(msgspec.Struct, eq=False, gc=False):
    """Looks secrets up for one task; what it hands out goes into the mask."""

    _resolve: Resolver
    mask: Mask = msgspec.field(default_factory=Mask)
    keychain: KeychainSource | None = None
    seen: SecretsOfTask | None = None  # what the store keeps counts before what the machine has
    _known: dict[str, str] = {}

    __repr__ = object.__repr__  # a struct would show its fields

    def __getitem__(self, name: str) -> str:
        if name not in self._known:
            value = None if self.seen is None else self.seen.secret(name)
            if value is None:
                value = self._resolve(name)
            if value is None:
                raise SecretMissing(name)
            self.mask.add(value)
            self._known[name] = value
        return self._known[name]

    def config(self, name: str, key: str) -> str | None:
        """A value of a ConfigMap of the catalog, if there is one."""
        return None if self.seen is None else self.seen.config(name, key)

    def are_in(self, text: str) -> bool:
        """Whether one that this task or another of its run was given is in the text."""
        return self.mask.text(text) != text

    def redact(self, value: Any) -> Any:
        return self.mask.data(value)

    async def hide_json(self, text: bytes) -> bytes:
        return await hide_json(self.mask, text)


async def hide_json(mask: Mask, text: bytes) -> bytes:
    try:
        return mask.json(text, QUICK)
    except TooMuchToCompare:
        return await run_in_thread(partial(mask.json, text), "perdure-mask")


class MaskingPort:
    """A task's port, with secrets taken out of everything that is recorded or read."""

    __slots__ = ("_mask", "_port", "release_effect")

    def __init__(self, port: RunPort, secrets: Secrets) -> None:
        self._port = port
        self._mask = secrets.mask
        self.release_effect: Callable[[str], Any] = port.release_effect

    @property
    def stream_rows(self) -> StreamRows | None:
        """Packets are data on their way between workers of the run: nobody is shown them, and they stay as they are."""
        return getattr(self._port, "stream_rows", None)

    async def claim_effect(self, key: str) -> EffectClaimResult:
        """A key is recorded as it is: two of them that differ in a secret alone would be one if it were masked."""
        if self._mask.text(key) != key:
            message = "the key of an effect contains a secret, and keys are recorded; use another key"
            raise ProviderFailure(Code.EFFECT_KEY, message, retryable=False)
        return await self._port.claim_effect(key)

    async def complete_effect(self, key: str, result: bytes) -> None:
        await self._port.complete_effect(key, await hide_json(self._mask, result))

    async def complete_effect_unfit(self, key: str, reason: str) -> None:
        await self._port.complete_effect_unfit(key, self._mask.text(reason))

    async def emit_signal(self, name: str, value: bytes) -> None:
        await self._port.emit_signal(self._mask.text(name), await hide_json(self._mask, value))

    async def report(self, body: bytes) -> bytes | None:
        return await self._port.report(await hide_json(self._mask, body))

    def heartbeat(self, detail: bytes | None) -> None:
        try:
            self._port.heartbeat(None if detail is None else self._mask.json(detail, LINE))
        except TooMuchToCompare:
            self._port.heartbeat(None)

    def log(self, level: str, message: str, fields: dict[str, Any]) -> None:
        """The level too: who confuses the arguments has the message there."""
        try:
            level, message = self._mask.text(str(level), LINE), self._mask.text(message, LINE)
            hidden = self._mask.data(fields, LINE)
        except TooMuchToCompare:
            level, message, hidden = "info", REDACTED, {}
        self._port.log(level, message, hidden if isinstance(hidden, dict) else {})
