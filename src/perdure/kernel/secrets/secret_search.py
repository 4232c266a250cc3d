"""The forms in which a text may contain a secret, its parts that are secrets too, and the search for them."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import msgspec

from perdure.kernel.json_values import jsontext
from perdure.kernel.lazy_regex import lazy_regex
from perdure.kernel.secrets.credentials import PUBLIC, secret_texts
from perdure.kernel.secrets.sealed_arguments import REDACTED
from perdure.kernel.secrets.secret_spelling import SearchSteps, Spelling, find, is_within
from perdure.kernel.turn_budget import TooMuchToCompare, rest

SHORTEST_NUMBER = 6
SHORTEST_LINE = 16  # of a secret with several lines: a key file is often printed line by line
SHORTEST_CORE = 8  # of Base64 within other Base64: fewer characters may occur there by chance
LONGEST_SPELLED = 4096  # of a longer secret only the usual encodings are recognised
LARGEST_WITH_PARTS = 64 * 1024
LARGEST_WITH_ENCODINGS = 64 * 1024  # of a longer secret only the text itself and its JSON are recognised
MOST_PARTS = 1_000
_EACH = 200  # what looking for a form in a text costs besides its length
_PORTION = 2_000_000  # characters compared between two pauses


class KnownSecret(msgspec.Struct, frozen=True, eq=False):
    """A secret, and the forms in which it is recognised."""

    forms: tuple[str, ...]
    spelling: Spelling | None
    lines: tuple[str, ...]

    __repr__ = object.__repr__  # a struct would print its fields

    @staticmethod
    def of(secret: str, by_lines: bool) -> "KnownSecret":
        is_spelled = len(secret) <= LONGEST_SPELLED and not (secret.isascii() and secret.isalnum())
        parts = tuple(set(lines(secret))) if by_lines and "\n" in secret else ()
        return KnownSecret(tuple(set(forms(secret))), Spelling(secret) if is_spelled else None, parts)

    @property
    def size(self) -> int:
        return sum(map(len, self.forms)) + sum(map(len, self.lines))

    def is_in(self, text: bytes, steps: SearchSteps) -> bool:
        """Whether JSON text contains it in any form."""
        if any(is_within(text, form.encode("utf-8", "surrogatepass")) for form in (*self.forms, *self.lines)):
            return True
        if self.spelling is None or not is_within(text, self.spelling.anchor.encode()):
            return False
        return self.spelling.is_in(text.decode("utf-8", "replace"), steps)


class SecretForms:
    """All forms of some secrets. Longest first, so that a secret that contains another one disappears whole."""

    __slots__ = ("count", "forms", "lines", "spellings")

    def __init__(self, secrets: Sequence[KnownSecret]) -> None:
        self.count = len(secrets)
        spellings = (secret.spelling for secret in secrets if secret.spelling is not None)
        self.spellings = sorted(spellings, key=len, reverse=True)
        self.forms = sorted({form for secret in secrets for form in secret.forms}, key=len, reverse=True)
        self.lines = sorted({line for secret in secrets for line in secret.lines}, key=len, reverse=True)

    def price(self, size: int) -> int:
        """Of looking for all of them in a text of so many characters."""
        return (len(self.spellings) + len(self.forms) + len(self.lines)) * (size + _EACH)


class Search:
    """Looks for secrets in the texts of one value. Raises `TooMuchToCompare` or `TooManySteps`."""

    __slots__ = ("_known", "_left", "_paid", "_sought", "_steps")

    def __init__(self, sought: SecretForms, known: Mapping[str, KnownSecret], most: int) -> None:
        self._sought = sought
        self._known = known
        self._left = most
        self._paid = 0
        self._steps = SearchSteps(len(sought.spellings))

    def pay(self, size: int) -> SearchSteps:
        """For a text of so many characters, in which all forms are looked for."""
        price = self._sought.price(size)
        self._left -= price
        if self._left < 0:
            raise TooMuchToCompare
        self._paid += price
        if self._paid >= _PORTION:
            self._paid = 0
            rest()
        self._steps.allow_for(size)
        return self._steps

    def only(self, secrets: Sequence[KnownSecret], most: int) -> "Search":
        return Search(SecretForms(secrets), self._known, most)

    def text(self, text: str) -> str:
        # Those that can be written in many ways come first, and lines last: a secret of which another one, or a line of
        # its own, has been taken out could not be recognised as a whole.
        steps = self.pay(len(text))
        for spelling in self._sought.spellings:
            text = spelling.hide(text, REDACTED, steps)
        for form in self._sought.forms:
            text = _without(text, form)
        for line in self._sought.lines:
            text = _without(text, line)
        return text

    def data(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.data(key): self.data(item) for key, item in value.items()}
            case list() | tuple():
                return [self.data(item) for item in value]
            case int() | float() if not isinstance(value, bool):
                text = str(int(value) if isinstance(value, float) and value.is_integer() else value)
                return REDACTED if len(text) >= SHORTEST_NUMBER and text in self._known else value
            case _:
                return value


def _without(text: str, form: str) -> str:
    if len(text) <= jsontext.PIECE:
        return text.replace(form, REDACTED) if form in text else text
    pieces: list[str] = []
    after = 0
    while (at := find(text, form, after)) >= 0:
        pieces.append(text[after:at])
        after = at + len(form)
    return REDACTED.join([*pieces, text[after:]]) if pieces else text


# Parts of secrets, and their forms.

_PUBLIC_PARTS = PUBLIC | frozenset(
    {
        *("project", "project_id", "client_id", "client_email", "email", "tenant", "tenant_id", "universe_domain"),
        *("auth_uri", "token_uri", "auth_provider_x509_cert_url", "client_x509_cert_url", "engine", "env", "version"),
    }
)
_URL = lazy_regex(
    r"\A[A-Za-z][A-Za-z0-9+.-]{0,40}://(?:[^/?#@:]*:(?P<password>[^/?#]+)@)?[^/?#]*(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?"
)
_CONNECTION = lazy_regex(r"(?i)\b(?:password|passwd|pwd)\s{0,9}=\s{0,9}(?:'([^']{1,999})'|([^\s;&]{1,999}))")
SHORTEST_PATH = 12  # of a URL; shorter ones, as /api/v1, are in many texts
SHORTEST_SEGMENT = 16


def json_members(secret: str) -> list[str] | None:
    """The secrets in a JSON object or list, by the names of its members; None if the text is not JSON."""
    if len(secret) > LARGEST_WITH_PARTS or secret.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return list(islice(secret_texts(jsontext.decode(secret.encode()), _PUBLIC_PARTS), MOST_PARTS))
    except (ValueError, RecursionError):
        return None


def url_parts(secret: str) -> Iterator[str]:
    """The password, path and query of a URL, and the password of a connection string; as written and decoded.

    Messages about a request name its URL in another form: without the query, or with the host in lower case.
    """
    if len(secret) > LARGEST_WITH_PARTS:
        return
    for quoted, word in _CONNECTION.findall(secret):  # database drivers accept these instead of a URL
        yield quoted or word
    match = _URL.match(secret) if "\n" not in secret else None
    if match is None:
        return
    path, query = match["path"] or "", match["query"] or ""
    parts = [match["password"] or "", query, *(pair.partition("=")[2] for pair in query.split("&"))]
    if len(path) >= SHORTEST_PATH:
        parts.append(path)
    parts += [segment for segment in path.split("/") if len(segment) >= SHORTEST_SEGMENT]
    for part in parts[:MOST_PARTS]:
        yield part
        yield unquote(part)


def lines(secret: str) -> Iterator[str]:
    """As they are, and as JSON writes them."""
    for part in islice(secret.splitlines(), MOST_PARTS):
        if len(line := part.strip()) >= SHORTEST_LINE:
            yield line
            yield json.dumps(line)[1:-1]


def forms(secret: str) -> Iterator[str]:
    """A secret as it may occur in a text: itself, and encoded by JSON (and JSON in JSON), URLs, Base64 and Python."""
    yield secret
    in_json = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    yield from in_json
    if len(secret) > LARGEST_WITH_ENCODINGS:
        return
    yield from (json.dumps(form)[1:-1] for form in in_json)
    yield repr(secret)[1:-1]
    yield secret.replace('"', '""')  # in tables of values with commas
    plus = quote_plus(secret, errors="surrogatepass")
    for quoted in (quote(secret, "", errors="surrogatepass"), quote(secret, errors="surrogatepass"), plus):
        yield quoted
        yield _ESCAPES.sub(lambda match: match.group().lower(), quoted)
    data = secret.encode("utf-8", "surrogatepass")
    yield data.hex()
    yield data.hex().upper()
    for form in {secret, *in_json, plus}:
        yield from _base64(form.encode("utf-8", "surrogatepass"))


def _base64(data: bytes) -> Iterator[str]:
    """Alone, padded or not; and within other bytes, at each of the three offsets in a group where it may begin."""
    alone = base64.b64encode(data).decode()
    yield alone
    for form in (alone.rstrip("="), *_inside_of_base64(data)):
        yield form
        if "+" in form or "/" in form:  # these are escaped by URLs and some JSON writers
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
