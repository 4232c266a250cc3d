"""Documents of a YAML text, built from its events without recursion: depth and aliases are limited while reading.

Imported when the first text is read that is not JSON. Syntax errors, which come before any event, are explained in
`yaml_errors`.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

from yaml import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    YAMLError,
)
from yaml._yaml import CParser

from perdure.documents.document import Document
from perdure.documents.errors import ALIAS, DUPLICATE_KEY, KEY, LIMIT, UNQUOTED_TEMPLATE, VALUE, Limits, UnreadableText
from perdure.documents.paths import Step, spell
from perdure.documents.positions import place_of_mark
from perdure.documents.scalars import (
    InvalidScalar,
    is_container_tag,
    resolve_plain,
    resolve_tagged,
    shortened,
    spell_tag,
)
from perdure.documents.yaml_errors import QUOTE_TEMPLATE, UNQUOTED, explain
from perdure.kernel.documents.problems import Problem

EMPTY = object()
"""The value of a document without any node: it is empty, or has only comments."""

_MERGE = object()  # the key `<<`


class YamlBuilder:
    """Builds one document after the other. Problems are collected; those that prevent further reading are raised."""

    def __init__(self, parser: Any, text: str, limits: Limits) -> None:
        self._parser = parser
        self._text = text
        self._limits = limits
        self._anchors: dict[str, tuple[Any, int, int]] = {}  # name: the value; how many nodes and characters it has
        self._open: list[_OpenContainer] = []
        self._nodes = 0
        self._characters = 0
        self.problems: list[Problem] = []

    def documents(self) -> Iterator[tuple[Any, tuple[int, int]]]:
        """The value of each document and where it begins."""
        while True:
            event = self._parser.get_event()
            kind = type(event)
            if kind is StreamEndEvent:
                return
            if kind is DocumentStartEvent:
                self._anchors.clear()
                yield self._root(), place_of_mark(event.start_mark)

    def _root(self) -> Any:
        get_event, limit = self._parser.get_event, self._limits.nodes
        opened = self._open
        top: _OpenContainer | None = None
        root: Any = EMPTY
        while True:
            event = get_event()
            kind = type(event)
            self._nodes += 1
            if self._nodes > limit:
                self._refuse(LIMIT, event, f"the document has more than {limit} keys and values, with aliases expanded")
            if kind is ScalarEvent:
                self._characters += len(event.value)
                if top is not None and top.awaits_key:
                    self._take_key(top, event)
                    continue
                value = self._scalar(event)
                if event.anchor is not None:
                    self._anchors[event.anchor] = value, 1, len(event.value)
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                top = self._enter(top, event, kind is MappingStartEvent)
                continue
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                closed = opened.pop()
                value = closed.finish()
                if closed.anchor is not None:
                    size = self._characters - closed.characters_before
                    self._anchors[closed.anchor] = value, self._nodes - closed.nodes_before, size
                top = opened[-1] if opened else None
            elif kind is AliasEvent:
                value = self._alias(event)
                if top is not None and top.awaits_key:
                    self._take_alias_as_key(top, value, event)
                    continue
            elif kind is DocumentEndEvent:
                return root
            if top is None:
                root = value if kind is not ScalarEvent or not _is_empty_node(event) else EMPTY
            elif top.is_mapping:
                if top.key is _MERGE:
                    self._merge(top, value, event)
                else:
                    top.value[top.key] = value
                top.awaits_key = True
            else:
                top.value.append(value)

    def _enter(self, top: "_OpenContainer | None", event: Any, is_mapping: bool) -> "_OpenContainer":
        if top is not None and top.awaits_key:
            self._refuse_container_key(event)
        if len(self._open) >= self._limits.depth:
            self._refuse(LIMIT, event, f"lists and mappings are nested deeper than {self._limits.depth}")
        if not is_container_tag(event.tag, "map" if is_mapping else "seq"):
            self._report(VALUE, event, f"the tag {spell_tag(event.tag)} is not supported", "Remove the tag.")
        entered = _OpenContainer(is_mapping, event.anchor, self._nodes - 1, self._characters)
        self._open.append(entered)
        return entered

    def _scalar(self, event: Any) -> Any:
        plain, quoted = event.implicit
        try:
            if plain and event.tag is None:
                return resolve_plain(event.value)
            return event.value if plain or quoted else resolve_tagged(event.tag, event.value)
        except InvalidScalar as refusal:
            hint = "Put it in quotes if text is meant." if plain else "Remove the tag."
            self._report(VALUE, event, str(refusal), hint)
            return None

    def _take_key(self, top: "_OpenContainer", event: Any) -> None:
        name = event.value
        if event.implicit[0]:
            if name == "<<":
                top.key = _MERGE
                top.awaits_key = False
                return
            if name in ("", "~", "null"):
                self._report(KEY, event, "a key is missing or null", "Write a name, or put it in quotes.")
        top.take_key(name)
        if name in top.keys:
            self._report_duplicate(name, event, top.keys[name])
        top.keys[name] = event

    def _take_alias_as_key(self, top: "_OpenContainer", value: Any, event: Any) -> None:
        if not isinstance(value, str):
            self._refuse(KEY, event, "a key must be text", "Write the name itself instead of an alias.")
        top.take_key(value)
        if value in top.keys:
            self._report_duplicate(value, event, top.keys[value])
        top.keys[value] = event

    def _alias(self, event: Any) -> Any:
        name = event.anchor
        anchored = self._anchors.get(name)
        if any(container.anchor == name for container in self._open):
            self._refuse(ALIAS, event, f"*{name} is inside &{name}: a value cannot contain itself")
        if anchored is None:
            self._refuse(
                ALIAS, event, f"there is no anchor &{name} before *{name}", "A text that begins with * needs quotes."
            )
        value, nodes, characters = anchored
        self._nodes += nodes
        self._characters += characters
        if self._characters > self._limits.text:
            message = f"the document has more than {self._limits.text} characters, with aliases expanded"
            self._refuse(LIMIT, event, message)
        return value

    def _merge(self, top: "_OpenContainer", value: Any, event: Any) -> None:
        for source in value if isinstance(value, list) else (value,):
            if isinstance(source, dict):
                top.merged.append(source)
                self._nodes += 2 * len(source)
            else:
                self._report(
                    VALUE, event, "`<<` needs a mapping, or a list of mappings", "Merge an alias: `<<: *name`."
                )

    def _refuse_container_key(self, event: Any) -> NoReturn:
        at = event.start_mark
        line = self._text.splitlines()[at.line]
        if line[at.column - 1 : at.column + 1] == "{{":
            self._refuse(UNQUOTED_TEMPLATE, event, UNQUOTED, QUOTE_TEMPLATE, back=1)
        self._refuse(KEY, event, "a key must be text, not a list or mapping", "Put the key in quotes if text is meant.")

    def _report_duplicate(self, name: str, event: Any, first: Any) -> None:
        line, column = place_of_mark(first.start_mark)
        self._report(
            DUPLICATE_KEY,
            event,
            f"the key {shortened(name)!r} is repeated; it was first used in line {line}, column {column}",
            "Keep one of the two, or rename one.",
        )

    def _report(self, code: str, event: Any, message: str, hint: str = "", back: int = 0) -> None:
        line, column = place_of_mark(event.start_mark)
        self.problems.append(Problem(code, message, spell(self._path()), line, column - back, hint))
        if len(self.problems) >= self._limits.problems:
            raise UnreadableText(self.problems)

    def _refuse(self, code: str, event: Any, message: str, hint: str = "", back: int = 0) -> NoReturn:
        self._report(code, event, message, hint, back)
        raise UnreadableText(self.problems)

    def _path(self) -> list[Step]:
        steps: list[Step] = []
        for container in self._open:
            if not container.is_mapping:
                steps.append(len(container.value))
            elif not container.awaits_key:
                steps.append("<<" if container.key is _MERGE else container.key)
        return steps


class _OpenContainer:
    """A list or mapping whose end has not been parsed yet."""

    __slots__ = (
        "anchor",
        "awaits_key",
        "characters_before",
        "is_mapping",
        "key",
        "keys",
        "merged",
        "nodes_before",
        "value",
    )

    def __init__(self, is_mapping: bool, anchor: str | None, nodes_before: int, characters_before: int) -> None:
        self.is_mapping = self.awaits_key = is_mapping
        self.anchor = anchor
        self.nodes_before = nodes_before
        self.characters_before = characters_before
        self.value: Any = {} if is_mapping else []
        self.key: Any = None
        self.keys: dict[str, Any] = {}  # name: the event it was first seen in
        self.merged: list[dict[str, Any]] = []

    def take_key(self, name: str) -> None:
        self.key = name
        self.awaits_key = False

    def finish(self) -> Any:
        """The value; merged members come first and are overridden by the mapping's own."""
        if not self.merged:
            return self.value
        together: dict[str, Any] = {}
        for source in self.merged:
            for name, value in source.items():
                together.setdefault(name, value)
        together.update(self.value)
        return together


def _is_empty_node(event: Any) -> bool:
    """An empty document still has one event: a scalar without characters."""
    return event.implicit[0] and event.value == "" and event.anchor is None


def read_yaml(text: str, limits: Limits) -> tuple[Document, ...]:
    builder: YamlBuilder | None = None
    documents: list[Document] = []
    try:
        builder = YamlBuilder(CParser(text), text, limits)
        for index, (data, (line, column)) in enumerate(builder.documents()):
            if index >= limits.documents:
                message = f"the text holds more than {limits.documents} documents"
                raise UnreadableText([*builder.problems, Problem(LIMIT, message, line=line, column=column)])
            if data is not EMPTY:
                documents.append(Document(data, text, index))
    except YAMLError as error:
        earlier = builder.problems if builder is not None else []
        raise UnreadableText([*earlier, explain(error, text)]) from None
    if builder.problems:
        raise UnreadableText(builder.problems)
    return tuple(documents)
