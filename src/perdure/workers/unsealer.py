"""Opening sealed arguments: the language requests secrets, this provides them; every secret is added to the mask."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from perdure.kernel.dialect import Dialect
from perdure.kernel.ids import family_of
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.kernel.outcomes import Code
from perdure.kernel.secrets.credentials import ResolvedSecret
from perdure.kernel.secrets.sealed_arguments import (
    CredentialLookup,
    EntryFields,
    EnvelopeError,
    HideTexts,
    Opened,
    PinnedDocumentLookup,
    Secret,
    SecretEntry,
    SecretLookup,
    SecretRequest,
    SecretRequests,
    next_request,
    read_envelope,
)
from perdure.kernel.secrets.secret_masking import Mask
from perdure.kernel.tasks.assignments import Assignment
from perdure.kernel.turn_budget import STEPS_PER_MILLISECOND, TurnBudget, TurnTooExpensive
from perdure.providers.failure import ProviderFailure
from perdure.providers.off_loop import FamilyThreads
from perdure.providers.text import READ_AT_ONCE, hidden_by
from perdure.workers.secrets import KeychainSource, add_all

# Secrets in the memory of this process, and nowhere else: looked up by key, resolved on demand, once at a time.

SWEEP = 256  # keys that may be added before expired ones are removed


@dataclass(frozen=True, slots=True)
class CachedSecret:
    secret: Secret
    secrets: tuple[str, ...]


Make = Callable[[], Awaitable[ResolvedSecret]]


class SecretCache:
    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now
        self._secrets: dict[tuple[str, str], CachedSecret] = {}  # by namespace and key: none is for another namespace
        self._pending: dict[tuple[str, str], asyncio.Task[CachedSecret]] = {}
        self._sweep_at = SWEEP

    async def get(self, namespace: str, entry: SecretEntry, make: Make) -> CachedSecret:
        """The value, for runs of this namespace. However many wait for it, it is resolved once; a failure is for all.

        An expired value is resolved again only if the entry says so (PBK-183).
        """
        if not entry.renews and entry.due is not None and entry.due <= self._now():
            message = f"{entry.name} has expired; `auto_renew: true` would renew it"
            raise EnvelopeError("auth", message, "KEYCHAIN_EXPIRED")
        key = namespace, entry.key
        cached = self._secrets.get(key)
        if cached is not None and (cached.secret.due is None or cached.secret.due > self._now()):
            return cached
        flight = self._pending.get(key)
        if flight is None:
            flight = self._pending[key] = asyncio.get_running_loop().create_task(self._make(key, entry, make))
            flight.add_done_callback(lambda _: self._pending.pop(key, None))
        return await asyncio.shield(flight)  # the first caller may be cancelled while others wait for the same value

    async def _make(self, key: tuple[str, str], entry: SecretEntry, make: Make) -> CachedSecret:
        secret = await make()
        lifetime = entry.lifetime if secret.lifetime is None else secret.lifetime
        due = self._now() + int(lifetime * SECOND)
        cached = CachedSecret(Secret(secret.kind or entry.kind, secret.value, due), tuple(secret.secrets()))
        self._secrets[key] = cached
        self._sweep()
        return cached

    def _sweep(self) -> None:
        if len(self._secrets) < self._sweep_at:
            return
        now = self._now()
        self._secrets = {
            key: cached for key, cached in self._secrets.items() if cached.secret.due is None or cached.secret.due > now
        }
        self._sweep_at = max(SWEEP, 2 * len(self._secrets))

    async def close(self) -> None:
        flights = list(self._pending.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
        self._secrets.clear()


_T = TypeVar("_T")

DOCUMENTS_KEPT = 32
ON_THE_LOOP = 5 * STEPS_PER_MILLISECOND  # of counted work, until something is looked up

Documents = Callable[[bytes], Awaitable[tuple[str, bytes] | None]]
"""Digest → language and text of a pinned document."""


class UnsealFailure(ProviderFailure):
    """A task that could not start because its secrets are missing."""

    def __init__(self, cause: EnvelopeError) -> None:
        facts = {"kind": cause.kind, "code": cause.code}
        super().__init__(Code.CANNOT_OPEN, cause.message, cause.retryable, facts)


class Unsealer:
    """Opens the envelopes of one worker's tasks. `openers` are languages by name."""

    def __init__(
        self,
        openers: Mapping[str, Dialect],
        documents: Documents,
        now: Callable[[], Instant],
        keychain: KeychainSource,
    ) -> None:
        self._openers = openers
        self._documents = documents
        self._keychain = keychain
        self._now = now
        self._cache = SecretCache(now)
        self._texts: OrderedDict[str, bytes] = OrderedDict()
        self._is_used = False
        self._threads = FamilyThreads()

    async def open(self, assignment: Assignment, mask: Mask, keychain: KeychainSource | None = None) -> dict[str, Any]:
        """The arguments of the task; `keychain` is its own source of secrets, if it has one. Raises `UnsealFailure`."""
        self._is_used = True
        source = keychain or self._keychain
        cache = SecretCache(self._now) if source.is_for_one_task else self._cache
        aside = partial(self._threads.run, family_of(assignment.run), name="perdure-unseal")
        is_large = len(assignment.arguments) > jsontext.PIECE
        read = partial(read_envelope, assignment.arguments)
        envelope = await aside(read) if is_large else read()
        try:
            opener = self._openers.get(envelope.language)
            if opener is None:
                raise EnvelopeError("unknown", f"the language {envelope.language!r} of this task is not available here")
            opening = _Opening(assignment.namespace, source, cache, self.document, aside, is_large)
            try:
                return await opening.run_requests(opener.open(envelope.body, assignment.run), mask)
            except TurnTooExpensive:  # from the beginning: nothing was done with what was looked up
                opening = replace(opening, is_aside=True)
                return await opening.run_requests(opener.open(envelope.body, assignment.run), mask)
        except EnvelopeError as cause:
            raise UnsealFailure(cause) from None

    async def document(self, digest: str) -> bytes:
        text = self._texts.get(digest)
        if text is None:
            pinned = await self._documents(bytes.fromhex(digest))
            if pinned is None:
                raise EnvelopeError("unknown", f"the document {digest[:12]} of this task is not available here")
            text = self._texts[digest] = pinned[1]
            if len(self._texts) > DOCUMENTS_KEPT:
                self._texts.popitem(last=False)
        return text

    async def close(self) -> None:
        if self._is_used:
            from perdure.providers.http_client import close_clients

            await self._cache.close()
            await close_clients()


@dataclass(frozen=True, slots=True)
class _Opening:
    """Answers what the language asks while it opens one envelope."""

    namespace: str
    keychain: KeychainSource
    cache: SecretCache
    document: Callable[[str], Awaitable[bytes]]
    aside: Callable[[Callable[[], Any]], Awaitable[Any]]  # does work in a thread
    is_aside: bool = False

    async def run_requests(self, requests: SecretRequests[_T], mask: Mask) -> _T:
        """Raises `TurnTooExpensive` where its templates compute for long and no thread does it."""
        answer: Any = None
        try:
            while True:
                request = await self._next_request(requests, answer)
                if isinstance(request, Opened):
                    return request.value
                answer = await self._answer(request, mask)
        finally:
            requests.close()

    async def _next_request(self, requests: SecretRequests[_T], answer: Any) -> SecretRequest | Opened[_T]:
        work = partial(next_request, requests, answer)
        if self.is_aside or (isinstance(answer, bytes) and len(answer) > READ_AT_ONCE):  # a document to compile
            request: SecretRequest | Opened[_T] = await self.aside(work)
            return request
        with TurnBudget(ON_THE_LOOP):
            return work()

    async def _answer(self, request: SecretRequest, mask: Mask) -> Secret | bytes | None:
        match request:
            case HideTexts(texts):
                await add_all(mask, texts)
                return None
            case PinnedDocumentLookup(digest):
                return await self.document(digest)
            case SecretLookup(entry):
                cached = await self.cache.get(self.namespace, entry, lambda: self._make(entry, mask))
                return await _masked(cached.secret, cached.secrets, mask)
            case CredentialLookup(name):
                credential = await self.keychain.credential(name, self.namespace)
                if credential is None:
                    return None
                return await _masked(Secret(credential.kind or "", credential.value), tuple(credential.secrets()), mask)

    async def _make(self, entry: SecretEntry, asking: Mask) -> ResolvedSecret:
        """Resolve a value. It has a mask of its own: an error is reported to all who wait, without the secrets."""
        mask = Mask()
        hidden_by.set(_Masks(asking, mask))  # only in the asyncio task that resolves the value
        try:
            opening = replace(self, is_aside=True)  # others may wait for it, too
            fields: EntryFields = await opening.run_requests(entry.fields(), mask)
            return await self.keychain.resolve(entry.kind, entry.name, fields, self.namespace)
        except EnvelopeError as cause:
            raise EnvelopeError(cause.kind, mask.text(cause.message), cause.code, cause.retryable) from None


@dataclass(frozen=True, slots=True)
class _Masks:
    """Two as one."""

    first: Mask
    second: Mask

    def raw(self, data: bytes) -> bytes:
        return self.second.raw(self.first.raw(data))

    def is_quick(self, size: int) -> bool:
        return self.first.is_quick(size) and self.second.is_quick(size)


async def _masked(secret: Secret, secrets: tuple[str, ...], mask: Mask) -> Secret:
    await add_all(mask, secrets)
    if isinstance(secret.value, Mapping):
        user, password = secret.value.get("username", secret.value.get("user")), secret.value.get("password")
        if isinstance(user, str) and isinstance(password, str) and password:
            mask.add(f"{user}:{password}")  # together in one Base64 text, as HTTP sends them
    return secret
