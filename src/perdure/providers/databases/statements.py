"""SQL text split into statements, and the placeholders in them.

Only as much of each grammar is known as is needed to tell code from quoted text and comments. A placeholder is written
in the database's own style and rewritten to a number, so that one list or map of values serves several statements.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class BadStatement(ValueError):
    """The text and its values do not match; nothing was sent."""


@dataclass(frozen=True)
class Grammar:
    """`place` matches a placeholder: group `number` or `name` where it has one, neither if its position decides."""

    place: str
    reference: str  # how the n-th value is referred to
    quotes: str = ""  # further kinds of quoted text
    has_nested_comments: bool = True

    def scanner(self) -> "re.Pattern[str]":
        kinds = [r"(?P<comment>--[^\n]*|/\*)", r"(?P<string>'(?:[^']|'')*(?:'|$))", r'(?P<quoted>"(?:[^"]|"")*(?:"|$))']
        if self.quotes:
            kinds.insert(0, f"(?P<other>{self.quotes})")
        kinds += [f"(?P<place>{self.place})", r"(?P<word>[^\W\d][\w$]*)", r"(?P<end>;)", r"(?P<rest>[\d.]+|\s+|.)"]
        return re.compile("|".join(kinds), re.DOTALL)


POSTGRES = Grammar(
    place=r"%s|%\((?P<name>[^)]{1,200})\)s|\$(?P<number>\d+)",
    reference="${}",
    quotes=r"[eE]'(?:[^'\\]|\\.|'')*(?:'|$)|(?P<dollar>\$(?:[^\W\d]\w*)?\$)",
)
DUCKDB = Grammar(
    place=r"\?(?P<asked>\d+)?|\$(?P<number>\d+)|\$(?P<name>[^\W\d]\w*)",
    reference="${}",
    quotes=r"[eE]'(?:[^'\\]|\\.|'')*(?:'|$)|(?P<dollar>\$(?:[^\W\d]\w*)?\$)",
)
SQLITE = Grammar(
    place=r"\?(?P<asked>\d+)?|\$(?P<number>\d+)|[:@$](?P<name>[^\W\d]\w*)",
    reference="?{}",
    quotes=r"`[^`]*(?:`|$)|\[[^\]]*(?:\]|$)",
    has_nested_comments=False,
)


@dataclass(frozen=True, slots=True)
class Placeholder:
    text: str
    key: int | str | None  # a number from 1, a name, or None: the next one


@dataclass
class SqlStatement:
    parts: list[str | Placeholder] = field(default_factory=list)
    words: list[str] = field(default_factory=list)  # the first few, in upper case

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.parts).strip()

    @property
    def is_transaction_control(self) -> bool:
        """Whether it would begin or end the task's transaction."""
        match self.words:
            case ["ROLLBACK", *rest]:
                return "TO" not in rest
            case ["START" | "PREPARE", "TRANSACTION", *_]:
                return True
            case ["BEGIN" | "COMMIT" | "END" | "ABORT", *_]:
                return True
        return False


def split(text: str, grammar: Grammar) -> list[SqlStatement]:
    """The statements of a text; a mere comment is not one."""
    statements = [SqlStatement()]
    depth = 0  # inside the body of a trigger or an SQL function, where a semicolon does not end the statement
    position = 0
    scanner = grammar.scanner()
    while position < len(text):
        token = scanner.match(text, position)
        assert token is not None
        end = token.end()
        statement = statements[-1]
        match token.lastgroup:
            case "comment" if token.group() == "/*":
                end = _end_of_comment(text, position, grammar.has_nested_comments)
            case "other" | "dollar" if (tag := token.groupdict().get("dollar")) is not None:
                closing = text.find(tag, end)
                end = len(text) if closing < 0 else closing + len(tag)
            case "word":
                depth = _depth(depth, statement, token.group().upper())
            case "end" if depth == 0:
                statements.append(SqlStatement())
                position = end
                continue
        if token.group("place") is not None:
            statement.parts.append(Placeholder(token.group(), _key(token)))
        else:
            statement.parts.append(text[position:end])
        position = end
    return [
        statement
        for statement in statements
        if statement.words or any(isinstance(p, Placeholder) for p in statement.parts)
    ]


def _end_of_comment(text: str, start: int, is_nested: bool) -> int:
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, start):
        if mark.group() == "/*":
            depth += 1 if is_nested or depth == 0 else 0
        else:
            depth -= 1
            if depth == 0:
                return mark.end()
    return len(text)


def _depth(depth: int, statement: SqlStatement, word: str) -> int:
    before = statement.words[-1] if statement.words else ""
    is_trigger = statement.words[:1] == ["CREATE"] and "TRIGGER" in statement.words[1:4]
    if len(statement.words) < 4:
        statement.words.append(word)
    else:
        statement.words[3:] = [statement.words[3], word]
    if depth:
        return depth + (word == "CASE") - (word == "END")
    return 1 if (word == "ATOMIC" and before == "BEGIN") or (word == "BEGIN" and is_trigger) else 0


def _key(token: "re.Match[str]") -> int | str | None:
    groups = token.groupdict()
    number = groups.get("number") or groups.get("asked")
    if number and len(number) > 9:
        raise BadStatement(f"there is no value number {number[:20]}…")
    return int(number) if number else groups.get("name")


Bound = tuple[SqlStatement, str, list[Any]]
"""A statement, its text as it is sent, and its values."""


def bind(statements: Iterable[SqlStatement], values: Any, grammar: Grammar) -> list[Bound]:
    """Bind values to the placeholders. Without values the text is sent as written."""
    if not values:
        return [(statement, statement.text, []) for statement in statements]
    giver = _NamedValues(values) if isinstance(values, Mapping) else _ListedValues(values)
    bound = [(statement, *_numbered(statement, giver, grammar.reference)) for statement in statements]
    giver.check()
    return bound


def _numbered(statement: SqlStatement, giver: "_NamedValues | _ListedValues", reference: str) -> tuple[str, list[Any]]:
    values: list[Any] = []
    numbers: dict[int | str, int] = {}
    texts = []
    for part in statement.parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        key, value = giver.take(part)
        if key not in numbers:
            values.append(value)
            numbers[key] = len(values)
        texts.append(reference.format(numbers[key]))
    return "".join(texts).strip(), values


class _NamedValues:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def take(self, place: Placeholder) -> tuple[str, Any]:
        if not isinstance(place.key, str):
            raise BadStatement(f"{place.text} needs a list of params, but they are a map")
        if place.key not in self.values:
            raise BadStatement(f"params lack {place.key!r}; there are: {', '.join(map(str, self.values))}")
        return place.key, self.values[place.key]

    def check(self) -> None:
        """A map may contain more than one text needs."""


class _ListedValues:
    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values
        self.turn = 0
        self.used: set[int] = set()

    def take(self, place: Placeholder) -> tuple[int, Any]:
        if isinstance(place.key, str):
            raise BadStatement(f"{place.text} needs a map of params, but they are a list")
        if place.key is None:
            self.turn += 1
        number = self.turn if place.key is None else place.key
        if not 0 < number <= len(self.values):
            raise BadStatement(f"{place.text} needs value number {number}, but there are {len(self.values)} params")
        self.used.add(number)
        return number, self.values[number - 1]

    def check(self) -> None:
        unused = [str(number) for number in range(1, len(self.values) + 1) if number not in self.used]
        if unused:
            raise BadStatement(f"no placeholder uses params number {', '.join(unused)}")
