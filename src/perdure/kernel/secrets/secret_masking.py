"""Masking secrets in texts and data: in what tasks report, and in views of a run."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from perdure.kernel.json_values import jsontext
from perdure.kernel.lazy_regex import lazy_regex
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Succeeded
from perdure.kernel.secrets.sealed_arguments import REDACTED
from perdure.kernel.turn_budget import TooManySteps, TooMuchToCompare

if TYPE_CHECKING:
    from perdure.kernel.secrets.secret_search import KnownSecret, Search, SecretForms

# Masking what looks like a secret in a text, whatever its origin, and shortening the text.

# Every repetition is bounded, so that no text can make the search slow, and each pattern begins with a set of letters,
# which is what Python's matcher looks for quickly.
_VALUE = r"(?:\"[^\"\n]{1,999}\"|'[^'\n]{1,999}'|\\{0,3}[\"']?[^\s\"',;&]+)"
_HEADER = lazy_regex(
    r"([aA](?i:uthorization)[\"']?\s{0,9}[:=]\s{0,9}[\"']?)(?:[A-Za-z][\w-]{0,30}[ \t]{1,9})?[^\s\"',;]+"
)
_NAMED = lazy_regex(
    r"([aAcCpPsStT](?i:pi[_-]?key|ccess[_-]?key|oken|asswd|assword|ecret|redential)[\w.-]{0,40}"
    r"\\{0,3}[\"']?\s{0,9}[:=]\s{0,9})" + _VALUE
)
_IN_A_URL = lazy_regex(r"(://[^\s/:@?#]{0,99}:)[^\s/@]{1,999}(?=@)")
_NAME = lazy_regex(
    r"[aAcCpPsStT](?i:pi[_-]?key|ccess[_-]?key|oken|asswd|assword|ecret|redential|uthorization)[\w.-]{0,40}\Z"
)


def without_secrets(text: str) -> str:
    """The text without what looks like a secret: `password=…`, `Authorization: …`, the password of an address."""
    if ":" not in text and "=" not in text:  # none can occur without one
        return text
    masked = _HEADER.sub(lambda m: m.group(1) + "[REDACTED]", text)
    masked = _NAMED.sub(lambda m: m.group(1) + "[REDACTED]", masked)
    return _IN_A_URL.sub(lambda m: m.group(1) + "[REDACTED]", masked) if "://" in masked else masked


def data_without_secrets(value: Any) -> Any:
    """The same for each text in a value, and for each text whose name is that of a secret."""
    match value:
        case str():
            return without_secrets(value)
        case dict():
            return {
                name: "[REDACTED]" if type(part) is str and _NAME.search(str(name)) else data_without_secrets(part)
                for name, part in value.items()
            }
        case list() | tuple():
            return [data_without_secrets(part) for part in value]
        case _:
            return value


_LARGE_DETAILS = 64 * 1024  # bytes
_LONG_MEMBER = 8 * 1024  # bytes; more than people are shown of it


def failure_without_secrets(outcome: Outcome) -> Outcome:
    """A failure as it may be recorded where what it says is for people (STY-259)."""
    match outcome:
        case Failed(code, message, retryable, details, previous):
            inner = details and jsontext.encode(data_without_secrets(_details(details)))
            return Failed(code, without_secrets(message), retryable, inner, previous)
        case _:
            return outcome


def _details(text: bytes) -> Any:
    """The details of a failure; of large ones only the short members."""
    if len(text) <= _LARGE_DETAILS:
        return jsontext.decode(text)
    try:
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:  # it is no object
        return _size_alone(text)
    return {
        name: _size_alone(part) if len(bytes(part)) > _LONG_MEMBER else jsontext.decode(bytes(part))
        for name, part in list(members.items())[:_MOST_MEMBERS]
    }


_MOST_MEMBERS = 100


def _size_alone(text: bytes | msgspec.Raw) -> dict[str, Any]:
    return {"truncated": True, "sizeBytes": len(bytes(text))}


def cut(text: str, most: int) -> str:
    """At most this many bytes, without splitting a character."""
    if 4 * len(text) <= most:
        return text
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= most else encoded[:most].decode("utf-8", "ignore")


SHORTEST = 4  # a shorter value is not treated as a secret: replacing it would garble every text
SHORTEST_PART = 6  # of a secret that is JSON or a URL: shorter parts are often plain words
MOST_SECRETS = 5_000  # in one mask; with more it hides every text

QUICK = 5_000_000
"""Characters compared that the event loop bears: a few milliseconds."""

LINE = 10 * QUICK
"""The same for a line of a log, which has to be masked there."""

MOST_COMPARED = 10_000_000_000
"""Characters compared for one value, after which it is hidden as a whole: several seconds."""

_REDACTED = REDACTED.encode()
_T = TypeVar("_T")


class Mask(msgspec.Struct, eq=False, gc=False):
    """Replaces known secrets in texts and data: as they are, and as encoded in JSON, URLs and Base64.

    A value that was made so that the search takes long is replaced as a whole; counts decide that, never time. With
    `most` below `MOST_COMPARED`, a value that needs more raises `TooMuchToCompare`: it is for a thread.
    """

    holders: int = 0  # running tasks that use it
    names: set[str] = set()  # of secrets that were looked up for it
    hides: bool = False  # whether it has any secret
    size: int = 0  # characters that it keeps
    _known: "dict[str, KnownSecret]" = {}
    _forms: "SecretForms | None" = None  # of those that were known when they were last needed
    _is_full: bool = False

    __repr__ = object.__repr__  # a struct would print its fields

    def add(self, secret: str) -> None:
        self.add_all((secret,))

    def add_all(self, secrets: Iterable[str]) -> None:
        """Also their parts: whoever reads a secret that is JSON or a URL gets these as well."""
        from perdure.kernel.secrets.secret_search import KnownSecret, json_members, url_parts

        added: dict[str, KnownSecret] = {}
        for secret in secrets:
            if len(secret) < SHORTEST or secret in self._known or secret in added:
                continue
            members = json_members(secret)
            added[secret] = KnownSecret.of(secret, members is None)  # lines of JSON have quotes, which others need
            for part in url_parts(secret) if members is None else members:
                if len(part) >= SHORTEST_PART and part not in self._known and part not in added:
                    added[part] = KnownSecret.of(part, True)
            if len(self._known) + len(added) > MOST_SECRETS:
                self._is_full = True
                break
        if not self._is_full:
            self._known.update(added)  # in one call: threads read it, and add to it
            self.size += sum(secret.size for secret in added.values())
        self.hides = self._is_full or bool(self._known)

    def include(self, other: "Mask") -> None:
        """Replace also what another mask replaces."""
        self.add_all(other._known)
        self._is_full = self._is_full or other._is_full
        self.hides = self.hides or other.hides

    def knows(self, secret: str) -> bool:
        """Whether adding it would change nothing."""
        return self._is_full or len(secret) < SHORTEST or secret in self._known

    def is_quick(self, size: int) -> bool:
        """Whether a text of so many characters can be masked on the event loop."""
        return not self.hides or self._is_full or self._whole().price(size) <= QUICK

    def _whole(self) -> "SecretForms":
        from perdure.kernel.secrets.secret_search import SecretForms

        forms = self._forms
        if forms is None or forms.count < len(self._known):
            forms = self._forms = SecretForms(list(self._known.values()))
        return forms

    def _guard(self, most: int, hidden: _T, work: "Callable[[Search], _T]") -> _T:
        from perdure.kernel.secrets.secret_search import Search

        if self._is_full:
            return hidden
        try:
            return work(Search(self._whole(), self._known, most))
        except TooManySteps:
            return hidden
        except TooMuchToCompare:
            if most < MOST_COMPARED:
                raise
            return hidden

    def text(self, text: str, most: int = MOST_COMPARED) -> str:
        return self._guard(most, REDACTED, lambda search: search.text(text)) if self.hides else text

    def data(self, value: Any, most: int = MOST_COMPARED) -> Any:
        """The value with every secret in its texts replaced."""
        return self._guard(most, REDACTED, lambda search: search.data(value)) if self.hides else value

    def raw(self, data: bytes) -> bytes:
        """The same for bytes that may not be text."""
        if not self.hides:
            return data
        text = data.decode("utf-8", "surrogateescape")
        if (hidden := self.text(text)) != text:
            data = hidden.encode("utf-8", "surrogateescape")
        for secret in list(self._known):
            if not secret.isascii() and (narrow := secret.encode("latin-1", "ignore")).decode("latin-1") == secret:
                data = data.replace(narrow, _REDACTED)
        return data

    def json(self, text: bytes, most: int = MOST_COMPARED) -> bytes:
        """The same for JSON text, which is decoded only when it contains something to mask."""
        if not self.hides:
            return text
        return self._guard(most, b'"%b"' % _REDACTED, lambda search: self._json(text, search, most))

    def _json(self, text: bytes, search: "Search", most: int) -> bytes:
        steps = search.pay(len(text))
        secrets = [secret for secret in list(self._known.values()) if secret.is_in(text, steps)]
        return jsontext.encode(search.only(secrets, most).data(jsontext.decode(text))) if secrets else text

    def outcome(self, outcome: Outcome, most: int = MOST_COMPARED) -> Outcome:
        if not self.hides:
            return outcome
        match outcome:
            case Succeeded(value):
                return Succeeded(self.json(value, most)) if isinstance(value, bytes) else outcome
            case Failed(code, message, retryable, details, previous):
                inner = (text and self.json(text, most) for text in (details, previous))
                return Failed(self.text(code, most), self.text(message, most), retryable, *inner)
            case Cancelled(reason):
                return Cancelled(self.text(reason, most))
