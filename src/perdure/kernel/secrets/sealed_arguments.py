"""Sealed arguments: those of a task that needs a secret; the worker completes them just before it calls the provider.

    decide    ──▶ TaskScheduled(sealed): its arguments are an envelope, which says what has to be looked up
    worker    ──▶ the language opens the envelope: it asks for secrets, one by one, and returns the arguments
    provider  ◀── arguments; what it reports is masked

No secret reaches a decision, an event or a store. Opening is pure: it only asks, the worker finds the answers.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant

_T = TypeVar("_T")

REDACTED = "[redacted]"
"""Replaces a secret wherever it occurs."""


class Envelope(msgspec.Struct, frozen=True):
    """The arguments of a sealed task, as JSON. Its content is defined by the language."""

    language: str
    body: Any


class EntryFields(msgspec.Struct, frozen=True):
    """The fields of an entry once its templates are filled in."""

    values: dict[str, Any]


class SecretEntry(msgspec.Struct, frozen=True):
    """A secret that can be looked up: where it is kept in memory, and how it is obtained when it is not there.

    `due` is when a value that is not renewed expires, as recorded; None when that is not known yet.
    """

    name: str
    kind: str
    key: str
    lifetime: float  # seconds, unless its source states a lifetime
    renews: bool
    fields: "Callable[[], SecretRequests[EntryFields]]"
    due: Instant | None = None


class SecretLookup(msgspec.Struct, frozen=True):
    """Asks for an entry's value; the answer is `Secret`."""

    entry: SecretEntry


class CredentialLookup(msgspec.Struct, frozen=True):
    """Asks for a credential that the host keeps under this name; the answer is `Secret`, or None."""

    name: str


class PinnedDocumentLookup(msgspec.Struct, frozen=True):
    """Asks for the text of a pinned document by its digest, in hexadecimal; the answer is bytes."""

    digest: str


class HideTexts(msgspec.Struct, frozen=True):
    """Declares texts that came with the task as secrets; the answer is None."""

    texts: tuple[str, ...]


SecretRequest = SecretLookup | CredentialLookup | PinnedDocumentLookup | HideTexts
SecretRequests = Generator[SecretRequest, Any, _T]


class Opened(msgspec.Struct, Generic[_T], frozen=True):
    """What opening an envelope came to."""

    value: _T


def next_request(requests: "SecretRequests[_T]", answer: Any) -> "SecretRequest | Opened[_T]":
    """What is asked next, or the end; templates are evaluated until then, so a thread may have to do it."""
    try:
        return requests.send(answer)
    except StopIteration as end:
        return Opened(end.value)


class Secret(msgspec.Struct, frozen=True):
    """A secret: its kind (`bearer`, `basic`, …), its value, and until when it is valid."""

    kind: str
    value: Any
    due: Instant | None = None


class SecretPlaces(msgspec.Struct, frozen=True, tag="places"):
    """Arguments in which texts of the document stand for secrets: their places and names. Any worker can open it."""

    arguments: dict[str, Any]
    secrets: list[tuple[list[str | int], str]]

    def fill(self, secret: Callable[[str], str]) -> dict[str, Any]:
        """The arguments with the secrets in their places."""
        for path, name in self.secrets:
            target: Any = self.arguments
            for step in path[:-1]:
                target = target[step]
            target[path[-1]] = secret(name)
        return self.arguments


def seal_by_place(arguments: dict[str, Any], places: Iterable[tuple[tuple[str | int, ...], str]]) -> bytes:
    return msgspec.json.encode(SecretPlaces(arguments, [(list(path), name) for path, name in places]))


_BY_PLACE = msgspec.json.Decoder(SecretPlaces).decode
_MARK = b'{"type":"places"'


def has_secret_places(sealed: bytes) -> bool:
    """Whether any worker can open it; else only its language can."""
    return sealed.startswith(_MARK)


def read_secret_places(sealed: bytes) -> SecretPlaces | None:
    """None for an envelope that only its language can open."""
    if not has_secret_places(sealed):
        return None
    if len(sealed) <= jsontext.PIECE:
        return _BY_PLACE(sealed)
    members = jsontext.decode(sealed)  # piece by piece
    return SecretPlaces(members["arguments"], [(path, name) for path, name in members["secrets"]])


_ENVELOPE = msgspec.json.Decoder(Envelope).decode


def read_envelope(sealed: bytes) -> Envelope:
    if len(sealed) <= jsontext.PIECE:
        return _ENVELOPE(sealed)
    members: dict[str, Any] = jsontext.decode(sealed)
    return Envelope(**{name: members[name] for name in Envelope.__struct_fields__ if name in members})


class EnvelopeError(Exception):
    """An envelope cannot be opened, so the task cannot start. `kind` and `code` are in the language's terms."""

    def __init__(self, kind: str, message: str, code: str | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.code = code
        self.retryable = retryable
