"""Taking secrets out of texts and data: what tasks say, and what is shown of a run."""

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_plus

from perdure.kernel import jsontext
from perdure.kernel.late import late
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Succeeded
from perdure.kernel.sealing import REDACTED

SHORTEST = 4  # a shorter value is no secret, and replacing it would garble every text
SHORTEST_LINE = 16  # of a secret with several lines: a key file is often shown line by line
SHORTEST_NUMBER = 6
SHORTEST_CORE = 8  # of Base64 inside of other Base64: fewer letters may stand there by chance


_REDACTED = REDACTED.encode()


class Mask:
    """Knows secrets, and replaces them in texts and data: as they are, and as JSON, URLs and Base64 write them."""

    __slots__ = ("_forms", "_known", "holders")

    def __init__(self) -> None:
        self.holders = 0  # tasks in hand that use it
        self._known: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()

    @property
    def hides(self) -> bool:
        return bool(self._forms)

    def add(self, secret: str) -> None:
        if len(secret) < SHORTEST or secret in self._known:
            return
        self._known |= {secret}
        # Longest first, so that a secret that contains another one disappears whole. One assignment: threads read it.
        self._forms = tuple(sorted({*self._forms, *_forms(secret)}, key=len, reverse=True))

    def text(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, REDACTED)
        return text

    def data(self, value: Any) -> Any:
        """The value with every secret in its texts replaced."""
        if not self._forms:
            return value
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.data(key): self.data(item) for key, item in value.items()}
            case list() | tuple():
                return [self.data(item) for item in value]
            case int() | float() if not isinstance(value, bool):
                said = str(value)
                return REDACTED if len(said) >= SHORTEST_NUMBER and said in self._known else value
            case _:
                return value

    def raw(self, data: bytes) -> bytes:
        """The same for bytes that are perhaps not text."""
        for form in self._forms:
            encoded = form.encode("utf-8", "surrogatepass")
            if encoded in data:
                data = data.replace(encoded, _REDACTED)
        for secret in self._known:
            if not secret.isascii() and (narrow := secret.encode("latin-1", "ignore")).decode("latin-1") == secret:
                data = data.replace(narrow, _REDACTED)
        return data

    def json(self, text: bytes) -> bytes:
        """The same for JSON text, which is read only when there is something to hide in it."""
        if not any(form.encode() in text for form in self._forms):
            return text
        return jsontext.encode(self.data(jsontext.decode(text)))

    def outcome(self, outcome: Outcome) -> Outcome:
        if not self._forms:
            return outcome
        match outcome:
            case Succeeded(value):
                return Succeeded(self.json(value)) if isinstance(value, bytes) else outcome
            case Failed(code, message, retryable, details, previous):
                inner = (text and self.json(text) for text in (details, previous))
                return Failed(self.text(code), self.text(message), retryable, *inner)
            case Cancelled(reason):
                return Cancelled(self.text(reason))


def _forms(secret: str) -> Iterator[str]:
    """A secret as it may stand in a text: itself, and as JSON (and JSON in JSON), URLs, Base64 and Python write it."""
    yield secret
    for written in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        yield written
        yield json.dumps(written)[1:-1]
    yield repr(secret)[1:-1]
    for quoted in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield quoted
        yield _ESCAPES.sub(lambda found: found.group().lower(), quoted)
    data = secret.encode("utf-8", "surrogatepass")
    yield from _base64(data)
    if "\n" in secret:
        yield from (line for part in secret.splitlines() if len(line := part.strip()) >= SHORTEST_LINE)


def _base64(data: bytes) -> Iterator[str]:
    """Alone, padded or not; and inside of other bytes, at each of the three places where it may begin in a group."""
    yield base64.b64encode(data).decode()
    yield base64.b64encode(data).decode().rstrip("=")
    yield base64.urlsafe_b64encode(data).decode().rstrip("=")
    for shift in range(3):
        whole = base64.b64encode(bytes(shift) + data).decode()
        core = whole[(0, 2, 3)[shift] : (shift + len(data)) * 8 // 6]
        if len(core) >= SHORTEST_CORE:
            yield core
            yield core.translate(_URL_SAFE)


_ESCAPES = late("%[0-9A-F]{2}")
_URL_SAFE = str.maketrans("+/", "-_")
