"""Names in expressions: what is read of a root, and where that is written."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.kernel.lazy_regex import lazy_regex

_SPAN = lazy_regex(r"\{\{(.*?)(?:\}\}|\Z)|\{%(.*?)(?:%\}|\Z)", re.DOTALL)
_TOKENS = {
    quote: lazy_regex(rf"(?P<name>[A-Za-z_]\w*)|{strings}|(?P<sign>[^\s\w])|(?P<number>\d\w*)")
    for quote, strings in {
        "": r"\"(?P<text>[^\"\\\n]*)\"|'(?P<other>[^'\\\n]*)'",
        "'": r"\"(?P<text>[^\"\\\n]*)\"|''(?P<other>[^'\n]*)''",
        '"': r"\\\"(?P<text>[^\"\\\n]*)\\\"|'(?P<other>[^'\\\n]*)'",
    }.items()
}
_TYPED = lazy_regex(r"(?:(?P<root>[A-Za-z_]\w*)(?P<path>(?:\.\w+)*)\.)?(?P<word>\w*)\Z")
_INDEXED = lazy_regex(
    r"(?:(?P<root>[A-Za-z_]\w*)\s*\[|index\s+\.?(?P<go>[A-Za-z_]\w*))\s*\\?['\"]{1,2}(?P<word>[\w.-]*)\Z"
)
_IDENTIFIER = lazy_regex(r"[A-Za-z_]\w*")
_NOT_IN_ALIAS = lazy_regex(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class MemberRead:
    """A member of a root that an expression reads, or (`root` is empty) a name without a root."""

    root: str
    name: str
    start: int
    end: int
    is_dotted: bool = True  # written as `root.name`, so that not every name is possible


def is_identifier(name: str) -> bool:
    return _IDENTIFIER.fullmatch(name) is not None


def alias_of(name: str) -> str:
    """How a name is written behind a dot, where a language allows that."""
    return _NOT_IN_ALIAS.sub("_", name)


def expression_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where expressions are in a text, without their braces; the last one may be without an end."""
    for match in _SPAN.finditer(text, start, end):
        yield match.span(1) if match[1] is not None else match.span(2)


def read_members(text: str, start: int, end: int, roots: Mapping[str, Any], quote: str) -> Iterator[MemberRead]:
    """Everything that an expression reads of known roots. `quote` is that of the scalar around it."""
    tokens = list(_TOKENS[quote if quote in _TOKENS else ""].finditer(text, start, end))
    for index, token in enumerate(tokens):
        if token["name"] is None or _is_member(tokens, index):
            continue
        after = tokens[index + 1 : index + 3]
        if token["name"] not in roots:
            if not after or after[0]["sign"] != "(":
                yield MemberRead("", token["name"], *token.span())
            continue
        if len(after) == 2 and after[0]["sign"] == "." and after[1]["name"] is not None:
            yield MemberRead(token["name"], after[1]["name"], *after[1].span())
        elif len(after) == 2 and after[0]["sign"] == "[" and (group := _text_group(after[1])):
            yield MemberRead(token["name"], after[1][group], *after[1].span(group), is_dotted=False)
        elif after and (group := _text_group(after[0])) and _is_indexed(tokens, index):
            yield MemberRead(token["name"], after[0][group], *after[0].span(group), is_dotted=False)


def _text_group(token: re.Match[str]) -> str:
    return next((group for group in ("text", "other") if token[group] is not None), "")


def _is_member(tokens: list[re.Match[str]], index: int) -> bool:
    """Whether a name stands behind a dot that belongs to something before it, or is a filter."""
    if index == 0:
        return False
    if tokens[index - 1]["sign"] == "|":
        return True
    if tokens[index - 1]["sign"] != "." or index == 1:
        return False
    before = tokens[index - 2]
    is_adjacent = before.end() == tokens[index - 1].start()
    return is_adjacent and (before["name"] is not None or before["sign"] in (")", "]") or bool(_text_group(before)))


def _is_indexed(tokens: list[re.Match[str]], index: int) -> bool:
    """`index steps "name"`, with or without a dot before the root."""
    before = index - 2 if index and tokens[index - 1]["sign"] == "." else index - 1
    return before >= 0 and tokens[before]["name"] == "index"


@dataclass(frozen=True, slots=True)
class TypedPath:
    """What stands before the cursor in an expression."""

    root: str
    path: tuple[str, ...]
    word: str
    is_indexed: bool = False


def typed_path(text: str, start: int, offset: int) -> TypedPath:
    before = text[start:offset][-500:]
    if match := _INDEXED.search(before):
        return TypedPath(match["root"] or match["go"], (), match["word"], is_indexed=True)
    match = _TYPED.search(before)
    assert match is not None  # it matches an empty word, too
    return TypedPath(match["root"] or "", tuple((match["path"] or "").split(".")[1:]), match["word"])


def expression_before(text: str, start: int, offset: int) -> int | None:
    """Where the expression begins that the cursor is in; None if it is in none."""
    opened = max(text.rfind("{{", start, offset), text.rfind("{%", start, offset))
    if opened < 0:
        return None
    closed = max(text.find("}}", opened, offset), text.find("%}", opened, offset))
    return None if closed >= 0 else opened + 2
