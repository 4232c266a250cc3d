"""Reads YAML or JSON as far as somebody has written it.

A document is incomplete while one types, so nothing is refused here: what does not fit is a member without a value, or
is passed over. Of a text that `documents` can read, the same members and items are read.
"""

import re

from perdure.editor.nodes import Node, NodeKind, TextLines
from perdure.kernel.lazy_regex import lazy_regex

DEEPEST = 100  # lists and mappings inside each other
LONGEST_QUOTED = 20_000  # characters that are looked through for the end of a quoted text

_BLANK = lazy_regex(r"(?:[ \t\r\n\ufeff]+|(?<!\S)#[^\n]*)*")
_SPACES = lazy_regex(r"[ \t]*")
_PROPERTIES = lazy_regex(r"(?:[&!][^\s,\[\]{}]*[ \t]*)+")
_KEY = lazy_regex(r"(?:[^\s:#'\"{\[&*!|>%@`,\]}-]|[?:-](?=[^\s]))(?:[^\n:#]|:(?=[^\s])|(?<=\S)#)*?:(?=\s|\Z)")
_COLON = lazy_regex(r"[ \t]*:(?=\s|\Z)")
_BLOCK_HEADER = lazy_regex(r"[|>][-+0-9]*[ \t]*(?:#[^\n]*)?(?=\r?\n|\Z)")
_PLAIN = lazy_regex(r"(?:[^\n#]|(?<=\S)#)*")
_FLOW_PLAIN = lazy_regex(r"(?:[^\s,\[\]{}:#]|[ \t]+(?![\s#,\[\]{}:]|\Z)|:(?=[^\s,\[\]{}])|(?<=\S)#)+")
_JSON_PLAIN = lazy_regex(r"[^\s,\[\]{}:\"]+")
_DOUBLE = lazy_regex(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SINGLE = lazy_regex(r"'(?:[^']|'')*'(?!')")
_ESCAPE = lazy_regex(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "f": "\f"}


class TolerantReader:
    """Of one document of a text: what is between two places."""

    def __init__(self, text: TextLines, at: int, end: int, *, is_json: bool) -> None:
        self._is_json = is_json
        self._lines = text
        self._text = text.text
        self._at = at
        self._end = end
        self._depth = 0

    def read(self) -> Node:
        begin = self._at
        self._skip()
        root = self._block(-1) if self._at < self._end else Node(NodeKind.EMPTY, begin, self._end)
        self._skip()
        while self._at < self._end:  # lines with less indent than the first one
            rest = self._block(-1)
            self._skip()
            if rest.kind is root.kind is NodeKind.MAPPING:
                for member in rest.children:
                    member.parent = root
                root.children += rest.children
        root.end = max(root.end, self._end)
        return root

    # Blocks: what belongs together has the same indent.

    def _block(self, indent: int) -> Node:
        """The value that begins here; all its lines are indented more than `indent`."""
        self._depth += 1
        try:
            return self._block_inside(indent)
        finally:
            self._depth -= 1

    def _block_inside(self, indent: int) -> Node:
        text, at = self._text, self._at
        if self._depth > DEEPEST:
            self._at = self._end
            return Node(NodeKind.EMPTY, at, at)
        if match := _PROPERTIES.match(text, at, self._end):
            if match.end() >= self._lines.line_end(at) or self._is_comment(match.end()):
                self._at = match.end()
                self._skip()
                if self._at >= self._end or self._column() <= indent:
                    return Node(NodeKind.EMPTY, at, at)
                return self._block(indent)
            if self._key_end(match.end()) is None:
                self._at = at = match.end()
        if self._is_dash(at):
            return self._sequence(self._column())
        column = self._column()
        if self._key_end(at) is not None:
            return self._mapping(column, indent)
        node = self._inline(indent)
        if not node.quote and node.kind is NodeKind.SCALAR:
            self._skip()
            if self._at < self._end and self._column() == column and self._key_end(self._at) is not None:
                self._at = at  # a name is being written, before the other members
                return self._mapping(column, indent)
        return node

    def _mapping(self, column: int, indent: int) -> Node:
        node = Node(NodeKind.MAPPING, self._at, self._at)
        while self._at < self._end and self._column() > indent:
            at = self._at
            if self._column() < column:
                break
            if self._is_dash(at) and self._key_end(at) is None:
                self._at = self._lines.line_end(at)
                self._skip()
                continue
            if match := _PROPERTIES.match(self._text, at, self._end):
                at = match.end()
            end = self._key_end(at)
            if end is None:
                key_end = self._plain_end(at)
                key = Node(NodeKind.SCALAR, at, key_end, self._text[at:key_end])
                value = Node(NodeKind.EMPTY, key_end, key_end)
                self._at = max(key_end, self._lines.line_end(at))
            else:
                key = self._key(at, end)
                self._at = end
                value = self._after_colon(column)
            self._put(node, key, value, has_colon=end is not None)
            self._skip()
        return node

    def _sequence(self, column: int) -> Node:
        node = Node(NodeKind.SEQUENCE, self._at, self._at)
        while self._at < self._end and self._column() == column and self._is_dash(self._at):
            begin = self._at + 1
            self._at = begin
            self._skip()
            if self._at < self._end and self._column() > column:
                item = self._block(column)
            else:
                item = Node(NodeKind.EMPTY, begin, begin)
            self._append(node, item)
            self._skip()
        return node

    def _after_colon(self, column: int) -> Node:
        begin = self._at
        at = _SPACES.match(self._text, begin, self._end).end()  # type: ignore[union-attr]  # matches nothing, too
        if match := _PROPERTIES.match(self._text, at, self._end):
            at = match.end()
        if at < self._lines.line_end(begin) and not self._is_comment(at):
            self._at = at
            value = self._inline(column)
            value.on_line_of_key = True
            return value
        self._at = at
        self._skip()
        if self._at < self._end:
            if self._column() > column:
                return self._block(column)
            if self._column() == column and self._is_dash(self._at):
                return self._sequence(column)
        return Node(NodeKind.EMPTY, begin, begin)

    def _inline(self, indent: int) -> Node:
        sign = self._text[self._at]
        if sign in "|>" and (match := _BLOCK_HEADER.match(self._text, self._at, self._end)):
            return self._literal(match.end(), indent)
        if sign in "{[":
            node = self._flow(indent)
        elif sign in "\"'":
            node = self._quoted(indent)
        else:
            return self._plain(indent)
        rest = self._lines.line_end(self._at)
        if not self._text[self._at : rest].isspace():
            self._at = max(self._at, rest)
        return node

    def _literal(self, at: int, indent: int) -> Node:
        start, quote = self._at, self._text[self._at]
        end = at
        while at < self._end:
            line = at + 1 if self._text[at] == "\n" else at + 2
            if line >= self._end:
                break
            first = _SPACES.match(self._text, line, self._end).end()  # type: ignore[union-attr]
            at = self._text.find("\n", line, self._end)
            at = self._end if at < 0 else at
            if first < at and self._text[first] not in "\r\n":
                if first - line <= indent:
                    break
                end = at
        self._at = end
        return Node(NodeKind.SCALAR, start, end, self._text[start:end], quote)

    def _plain(self, indent: int) -> Node:
        start = self._at
        end = self._plain_end(start)
        lines = [self._text[start:end]]
        while True:
            next_at = _BLANK.match(self._text, end, self._end).end()  # type: ignore[union-attr]
            is_continued = next_at < self._end and "#" not in self._text[end:next_at] and next_at > end
            if not is_continued or self._lines.column(next_at) <= indent or self._key_end(next_at) is not None:
                break
            end = self._plain_end(next_at)
            lines.append(self._text[next_at:end])
        self._at = max(end, start + 1)
        return Node(NodeKind.SCALAR, start, end, " ".join(lines))

    def _plain_end(self, at: int) -> int:
        end = _PLAIN.match(self._text, at, self._lines.line_end(at)).end()  # type: ignore[union-attr]
        return at + len(self._text[at:end].rstrip())

    # Names of members.

    def _key_end(self, at: int) -> int | None:
        """Behind the colon of the member that begins here; None if none does."""
        sign = self._text[at : at + 1]
        line_end = self._lines.line_end(at)
        if sign in ("'", '"'):
            match = (_DOUBLE if sign == '"' else _SINGLE).match(self._text, at, line_end)
            colon = None if match is None else _COLON.match(self._text, match.end())
            return None if colon is None else colon.end()
        match = _KEY.match(self._text, at, line_end)
        return None if match is None else match.end()

    def _key(self, at: int, end: int) -> Node:
        written = self._text[at : end - 1].rstrip()
        if written[:1] in ("'", '"'):
            return Node(NodeKind.SCALAR, at, at + len(written), _unquoted(written), written[0])
        return Node(NodeKind.SCALAR, at, at + len(written), written)

    # Flow collections: braces and brackets, as in JSON.

    def _flow(self, indent: int) -> Node:
        self._depth += 1
        is_mapping = self._text[self._at] == "{"
        node = Node(NodeKind.MAPPING if is_mapping else NodeKind.SEQUENCE, self._at, self._end, is_flow=True)
        self._at += 1
        while self._depth <= DEEPEST and not self._flow_ends(node, indent):
            if is_mapping:
                self._flow_member(node, indent)
            else:
                item = self._flow_value(indent)
                if self._takes_colon(item):
                    pair = Node(NodeKind.MAPPING, item.start, item.end, is_flow=True)
                    self._put(pair, item, self._flow_member_value(indent))
                    item = pair
                self._append(node, item)
        if self._depth > DEEPEST:
            self._at = self._end
        self._depth -= 1
        node.end = self._at
        return node

    def _flow_ends(self, node: Node, indent: int) -> bool:
        """Whether nothing more comes; passes over what separates members."""
        closing = "}" if node.kind is NodeKind.MAPPING else "]"
        while True:
            before = self._at
            self._skip()
            if self._at >= self._end:
                return True
            is_new_line = self._lines.line_of(before) != self._lines.line_of(self._at)
            sign = self._text[self._at]
            if is_new_line and indent >= 0 and self._column() <= indent and sign not in "}]":
                self._at = before
                return True
            if sign == closing:
                self._at += 1
                return True
            if sign in "}]":
                if self._depth > 1 or indent >= 0:
                    return True
                self._at += 1
            elif sign in ",:":
                self._at += 1
            else:
                return False

    def _flow_member(self, node: Node, indent: int) -> None:
        key = self._flow_value(indent)
        has_colon = self._takes_colon(key)
        value = self._flow_member_value(indent) if has_colon else Node(NodeKind.EMPTY, key.end, key.end)
        self._put(node, key, value, has_colon=has_colon)

    def _takes_colon(self, key: Node) -> bool:
        at = _BLANK.match(self._text, self._at, self._end).end()  # type: ignore[union-attr]
        if self._text[at : at + 1] != ":":
            return False
        self._at = at + 1
        return True

    def _flow_member_value(self, indent: int) -> Node:
        begin = self._at
        self._skip()
        if self._at >= self._end or self._text[self._at] in ",}]":
            return Node(NodeKind.EMPTY, begin, begin)
        value = self._flow_value(indent)
        value.on_line_of_key = True
        return value

    def _flow_value(self, indent: int) -> Node:
        sign = self._text[self._at]
        if sign in "{[":
            return self._flow(indent)
        if sign in "\"'":
            return self._quoted(indent)
        if match := _PROPERTIES.match(self._text, self._at, self._end):
            self._at = match.end()
        start = self._at
        match = (_JSON_PLAIN if self._is_json else _FLOW_PLAIN).match(self._text, start, self._end)
        self._at = start + 1 if match is None else match.end()
        self._at = min(self._at, self._end)
        return Node(NodeKind.SCALAR, start, self._at, self._text[start : self._at])

    def _quoted(self, indent: int) -> Node:
        start, sign = self._at, self._text[self._at]
        pattern = _DOUBLE if sign == '"' else _SINGLE
        line_end = self._lines.line_end(start)
        match = pattern.match(self._text, start, line_end)
        if match is None:
            match = pattern.match(self._text, start, min(self._end, start + LONGEST_QUOTED))
            if match is not None and not self._is_one_text(start, match.end(), indent):
                match = None
        self._at = max(line_end, start + 1) if match is None else match.end()
        written = self._text[start : self._at]
        return Node(NodeKind.SCALAR, start, self._at, _unquoted(written), sign)

    def _is_one_text(self, start: int, end: int, indent: int) -> bool:
        """Whether a quoted text over several lines is one: JSON has none, and no member of a block is inside one."""
        if self._is_json:
            return False
        at = self._text.find("\n", start, end)
        while at >= 0:
            first = _SPACES.match(self._text, at + 1, end).end()  # type: ignore[union-attr]
            if first - at - 1 <= indent and (self._key_end(first) is not None or self._is_dash(first)):
                return False
            at = self._text.find("\n", first, end)
        return True

    # Small things.

    def _put(self, node: Node, key: Node, value: Node, *, has_colon: bool = True) -> None:
        value.key, value.step, value.parent, value.has_colon = key, key.text, node, has_colon
        key.parent = value
        node.children.append(value)
        node.end = max(node.end, value.end, key.end)

    def _append(self, node: Node, item: Node) -> None:
        item.step, item.parent = len(node.children), node
        node.children.append(item)
        node.end = max(node.end, item.end)

    def _skip(self) -> None:
        self._at = _BLANK.match(self._text, self._at, self._end).end()  # type: ignore[union-attr]

    def _column(self) -> int:
        return self._lines.column(self._at)

    def _is_dash(self, at: int) -> bool:
        return self._text[at : at + 1] == "-" and self._text[at + 1 : at + 2] in ("", " ", "\t", "\r", "\n")

    def _is_comment(self, at: int) -> bool:
        return self._text[at : at + 1] == "#"


def _unquoted(written: str) -> str:
    """What a quoted text says; its end may be missing."""
    sign = written[0]
    inside = written[1:-1] if len(written) > 1 and written.endswith(sign) else written[1:]
    if sign == "'":
        return inside.replace("''", "'")
    return _ESCAPE.sub(lambda match: _escaped(match[1]), inside) if "\\" in inside else inside


def _escaped(sign: str) -> str:
    if sign[0] in "ux" and len(sign) > 1:
        return chr(int(sign[1:], 16))
    return _ESCAPES.get(sign, sign)
