"""Taking secrets out of texts and data: what tasks say, and what is shown of a run."""

import base64
import json
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from perdure.kernel import jsontext
from perdure.kernel.lazy_regex import lazy_regex
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Succeeded
from perdure.kernel.sealed_arguments import REDACTED

# Taking out of a text what looks like a secret, whoever wrote it, and keeping it short.

# Every repetition is bounded, so that no text can make the search slow.
_HEADER = lazy_regex(r"(?i)(authorization[\"']?\s{0,9}[:=]\s{0,9}[\"']?)(?:(bearer|basic|token)\s{1,9})?[^\s\"',;]+")
_NAMED = lazy_regex(
    r"(?i)((?:api[_-]?key|access[_-]?key|token|passwd|password|secret|credential)[\w.-]{0,40}[\"']?\s{0,9}[:=]"
    r"\s{0,9}[\"']?)[^\s\"',;&]+"
)


def without_secrets(text: str) -> str:
    if ":" not in text and "=" not in text:  # neither can be found without one
        return text
    masked = _HEADER.sub(lambda m: m.group(1) + "[REDACTED]", text)
    return _NAMED.sub(lambda m: m.group(1) + "[REDACTED]", masked)


def cut(text: str, most: int) -> str:
    """At most so many bytes, never half a character."""
    if 4 * len(text) <= most:
        return text
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= most else encoded[:most].decode("utf-8", "ignore")


SHORTEST = 4  # a shorter value is no secret, and replacing it would garble every text
SHORTEST_LINE = 16  # of a secret with several lines: a key file is often shown line by line
SHORTEST_NUMBER = 6
SHORTEST_CORE = 8  # of Base64 inside of other Base64: fewer letters may stand there by chance
SHORTEST_ANCHOR = 3  # letters of a secret that no writing changes
LONGEST_SPELLED = 4096  # of a longer secret only the usual writings are known


_REDACTED = REDACTED.encode()


class Mask(msgspec.Struct, eq=False):
    """Knows secrets, and replaces them in texts and data: as they are, and as JSON, URLs and Base64 write them."""

    holders: int = 0  # tasks in hand that use it
    names: set[str] = set()  # of secrets that were looked up for it
    hides: bool = False  # whether it knows any secret
    _known: frozenset[str] = frozenset()
    _forms: tuple[str, ...] = ()
    _spellings: "tuple[Spelling, ...]" = ()

    __repr__ = object.__repr__  # a struct would show its fields

    def add(self, secret: str) -> None:
        if len(secret) < SHORTEST or secret in self._known:
            return
        self._known |= {secret}
        # Longest first, so that a secret that contains another one disappears whole. One assignment: threads read it.
        self._forms = tuple(sorted({*self._forms, *_forms(secret)}, key=len, reverse=True))
        if len(secret) <= LONGEST_SPELLED and not (secret.isascii() and secret.isalnum()):
            self._spellings = (*self._spellings, Spelling(secret))
        self.hides = True

    def text(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, REDACTED)
        for spelling in self._spellings:
            text = spelling.hide(text)
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
                text = str(value)
                return REDACTED if len(text) >= SHORTEST_NUMBER and text in self._known else value
            case _:
                return value

    def raw(self, data: bytes) -> bytes:
        """The same for bytes that are perhaps not text."""
        if not self._forms:
            return data
        text = data.decode("utf-8", "surrogateescape")
        if (hidden := self.text(text)) != text:
            data = hidden.encode("utf-8", "surrogateescape")
        for secret in self._known:
            if not secret.isascii() and (narrow := secret.encode("latin-1", "ignore")).decode("latin-1") == secret:
                data = data.replace(narrow, _REDACTED)
        return data

    def json(self, text: bytes) -> bytes:
        """The same for JSON text, which is read only when there is something to hide in it."""
        if not self._is_in(text):
            return text
        return jsontext.encode(self.data(jsontext.decode(text)))

    def _is_in(self, text: bytes) -> bool:
        if any(form.encode("utf-8", "surrogatepass") in text for form in self._forms):
            return True
        return bool(self._spellings) and any(
            spelling.is_in(text.decode("utf-8", "replace")) for spelling in self._spellings
        )

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


class Spelling:
    """A secret with each of its characters written in any of the ways that JSON, URLs, Python, HTML and shells have.

    Servers mix them: they differ in which characters of a URL they escape, and in how many JSON texts hold each other.
    Letters and digits of ASCII are written in one way by all, so a text without the longest row of them has it not.
    """

    __slots__ = ("_anchor", "_pattern", "_secret")

    def __init__(self, secret: str) -> None:
        self._secret = secret
        rows = ("".join(row) for is_plain, row in groupby(secret, _is_plain) if is_plain)
        anchor = max(rows, key=len, default="")
        self._anchor = anchor if len(anchor) >= SHORTEST_ANCHOR else ""
        self._pattern: re.Pattern[str] | None = None

    def is_in(self, text: str) -> bool:
        return self._anchor in text and self._compiled().search(text) is not None

    def hide(self, text: str) -> str:
        return self._compiled().sub(REDACTED, text) if self._anchor in text else text

    def _compiled(self) -> "re.Pattern[str]":
        """When a text first has the anchor: most masks see none that has it."""
        if self._pattern is None:
            rows = ((character, len(list(row))) for character, row in groupby(self._secret))
            self._pattern = re.compile("".join(_spelled(character, times) for character, times in rows))
        return self._pattern


def _is_plain(character: str) -> bool:
    return character.isascii() and character.isalnum()


# Every repetition is bounded: four texts in each other have up to fifteen backslashes in a row.
_CONTROLS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_ENTITIES = {'"': "quot", "'": "apos", "&": "amp", "<": "lt", ">": "gt"}
_ESCAPE = r"\\{1,15}"
_PERCENT = "%(?:25){0,2}"


def _spelled(character: str, times: int) -> str:
    if _is_plain(character):
        return character * times
    if character == "\\":
        others = "|".join(_written(character))
        return rf"(?:\\{{{times},{16 * times}}}|(?:{others}){{{times}}})"
    ways = [r"\\{0,15}" + re.escape(character), *_written(character)]
    return f"(?:{'|'.join(ways)}){{{times}}}"


def _written(character: str) -> Iterator[str]:
    """The ways to write a character that is no letter or digit, as patterns."""
    code, data = ord(character), character.encode("utf-8", "surrogatepass")
    yield "".join(_PERCENT + _hex(f"{byte:02x}") for byte in data)
    yield "".join(f"{_ESCAPE}x{_hex(f'{byte:02x}')}" for byte in data)
    units = character.encode("utf-16-be", "surrogatepass").hex()
    yield "".join(f"{_ESCAPE}u{_hex(units[at : at + 4])}" for at in range(0, len(units), 4))
    yield f"{_ESCAPE}(?:U{_hex(f'{code:08x}')}|u\\{{{_hex(f'{code:x}')}\\}})"
    named = f"|{_ENTITIES[character]}" if character in _ENTITIES else ""
    yield f"&(?:amp;){{0,2}}(?:#0{{0,4}}{code}|#[xX]0{{0,4}}{_hex(f'{code:x}')}{named});"
    if 0x80 <= code < 0x100:
        yield f"{_ESCAPE}x{_hex(f'{code:02x}')}"
    if code >= 0x80:
        yield re.escape(data.decode("latin-1"))  # bytes of UTF-8, read as if they were none
    if character in _CONTROLS:
        yield _ESCAPE + _CONTROLS[character]
    if character == " ":
        yield r"\+"
    if character == "'":
        yield r"'\\{1,3}''"
        yield """'"'"'"""


def _hex(digits: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)


def _forms(secret: str) -> Iterator[str]:
    """A secret as it may stand in a text: itself, and as JSON (and JSON in JSON), URLs, Base64 and Python write it."""
    yield secret
    for form in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        yield form
        yield json.dumps(form)[1:-1]
    yield repr(secret)[1:-1]
    for quoted in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield quoted
        yield _ESCAPES.sub(lambda found: found.group().lower(), quoted)
    data = secret.encode("utf-8", "surrogatepass")
    yield data.hex()
    yield data.hex().upper()
    for form in {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], quote_plus(secret)}:
        yield from _base64(form.encode("utf-8", "surrogatepass"))
    if "\n" in secret:
        yield from (line for part in secret.splitlines() if len(line := part.strip()) >= SHORTEST_LINE)


def _base64(data: bytes) -> Iterator[str]:
    """Alone, padded or not; and inside of other bytes, at each of the three places where it may begin in a group."""
    alone = base64.b64encode(data).decode()
    yield alone
    for form in (alone.rstrip("="), *_inside_of_base64(data)):
        yield form
        if "+" in form or "/" in form:  # which URLs and some writers of JSON escape
            yield form.translate(_URL_SAFE)
            yield quote(form, safe="")
            yield quote(form, safe="").replace("%2B", "%2b").replace("%2F", "%2f")
            yield form.replace("/", "\\/")


def _inside_of_base64(data: bytes) -> Iterator[str]:
    for shift in range(3):
        whole = base64.b64encode(bytes(shift) + data).decode()
        core = whole[(0, 2, 3)[shift] : (shift + len(data)) * 8 // 6]
        if len(core) >= SHORTEST_CORE:
            yield core


_ESCAPES = lazy_regex("%[0-9A-F]{2}")
_URL_SAFE = str.maketrans("+/", "-_")
