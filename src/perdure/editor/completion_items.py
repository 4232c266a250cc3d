"""What may be written at a place: members, words, names that are declared, providers, roots of expressions.

A mark is put where the cursor is, and the text with it is read: so the place is found in whatever is there so far.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from perdure.documents.schema_parts import Schema
from perdure.editor.document_tree import DocumentTree
from perdure.editor.expression_names import alias_of, expression_before, is_identifier, typed_path
from perdure.editor.names import DocumentNames
from perdure.editor.nodes import Node, NodeKind
from perdure.editor.schema_lookup import LanguageSchema
from perdure.kernel.json_values import jsontext

MARK = "\ue000"  # of no language
_PLAIN_WORDS = ("true", "false", "null")


class CompletionKind(StrEnum):
    MEMBER = "member"
    WORD = "word"
    NAME = "name"
    PROVIDER = "provider"
    ROOT = "root"


@dataclass(frozen=True, slots=True)
class CompletionItem:
    label: str
    kind: CompletionKind
    detail: str = ""
    text: str = ""  # more about it, for people
    insert: str = ""  # what replaces the range
    start: int = 0
    end: int = 0
    is_first: bool = False  # shown before others


def complete(
    text: str, offset: int, language: LanguageSchema, elsewhere: Iterable[DocumentNames] = ()
) -> list[CompletionItem]:
    """All that may stand at a place. `elsewhere`: the other documents of the workspace in this language."""
    tree = DocumentTree(f"{text[:offset]}{MARK}{text[offset:]}")
    names = DocumentNames.read(tree, language)
    place = _Place(tree, names, offset, list(elsewhere))
    return [replace(item, end=max(item.end - 1, offset)) for item in place.items()]


class _Place:
    def __init__(self, tree: DocumentTree, names: DocumentNames, offset: int, elsewhere: list[DocumentNames]) -> None:
        self._tree = tree
        self._names = names
        self._lookup = names.lookup
        self._offset = offset
        self._elsewhere = elsewhere
        self._node = tree.node_at(offset)

    def items(self) -> list[CompletionItem]:
        node = self._node
        begin = self._expression_begin()
        if begin is not None:
            return list(self._of_expression(begin))
        if node is None or MARK not in self._tree.text[node.start : node.end]:
            return []
        if node.parent is not None and node.parent.key is node:
            mapping = node.parent.parent
            assert mapping is not None
            return list(self._members(mapping, node, has_colon=node.parent.has_colon))
        items = list(self._values(node))
        is_own_line = not node.is_flow and not node.on_line_of_key and not self._tree.is_json
        in_flow = node.parent is not None and node.parent.is_flow
        if is_own_line and not in_flow and not node.quote:
            items += self._members(node, node, has_colon=False)
        return items

    # Members.

    def _members(self, mapping: Node, at: Node, *, has_colon: bool) -> Iterator[CompletionItem]:
        present = {child.step for child in mapping.children if child.key is not at}
        required = self._lookup.required_at(mapping)
        for name, schema in self._lookup.members_at(mapping).items():
            if name in present:
                continue
            detail = self._lookup.types([schema])
            if name in required:
                detail = f"{detail}, required" if detail else "required"
            yield CompletionItem(
                name,
                CompletionKind.MEMBER,
                detail,
                self._lookup.description(schema),
                self._member_text(name, schema, at, has_colon=has_colon),
                at.start,
                at.end,
                is_first=name in required,
            )

    def _member_text(self, name: str, schema: Schema, at: Node, *, has_colon: bool) -> str:
        in_flow = at.parent is not None and (at.parent.is_flow or (at.parent.parent or at.parent).is_flow)
        is_quoted = bool(at.quote) or self._tree.is_json or (in_flow and self._tree.is_json) or not _is_plain(name)
        written = f"{at.quote or chr(34)}{name}{at.quote or chr(34)}" if is_quoted else name
        return written if has_colon else f"{written}: "

    # Values.

    def _values(self, node: Node) -> Iterator[CompletionItem]:
        facts = self._lookup.facts_at(node)
        for word, meaning in self._lookup.words_at(node).items():
            yield self._value(word, CompletionKind.WORD, str(node.step or ""), meaning, node)
        if kind := facts.get("refers"):
            yield from self._declared(kind, node)
        if facts.get("names_provider"):
            for word, provider in self._lookup.language.providers.items():
                if word not in self._lookup.words_at(node):
                    yield self._value(word, CompletionKind.PROVIDER, "provider", provider.description, node)

    def _declared(self, kind: str, node: Node) -> Iterator[CompletionItem]:
        for name in self._known(kind, node):
            yield self._value(name, CompletionKind.NAME, kind, "", node)

    def _known(self, kind: str, node: Node) -> list[str]:
        """Names that are known here, of other documents too if the kind is."""
        known = dict.fromkeys(self._names.known_at(kind, node))
        if self._names.scope_of(kind, node) is None:
            known |= dict.fromkeys(
                use.name for names in self._elsewhere for use in names.uses if use.is_declaration and use.kind == kind
            )
        return [name for name in known if MARK not in name]

    def _value(self, word: str, kind: CompletionKind, detail: str, text: str, node: Node) -> CompletionItem:
        is_text = word not in _PLAIN_WORDS
        if node.quote in ("'", '"'):
            written = f"{node.quote}{word}{node.quote}"
        elif (self._tree.is_json and is_text) or not _is_plain(word):
            written = jsontext.encode(word).decode()
        else:
            written = word
        return CompletionItem(word, kind, detail, text, written, node.start, node.end)

    # Expressions.

    def _expression_begin(self) -> int | None:
        """Where the expression begins that is written here; None if it is none."""
        node = self._node
        if node is not None and node.kind is NodeKind.SCALAR and self._lookup.facts_at(_value_of(node)).get("path"):
            return node.start + len(node.quote)
        begin = self._tree.line_start(self._offset) if node is None or node.quote == "" else node.start
        return expression_before(self._tree.text, begin, self._offset)

    def _of_expression(self, begin: int) -> Iterator[CompletionItem]:
        facts = self._lookup.language.expressions
        typed = typed_path(self._tree.text, begin, self._offset)
        start = self._offset - len(typed.word)
        roots = facts.get("roots", {})
        if not typed.root:
            for name, root in roots.items():
                yield CompletionItem(name, CompletionKind.ROOT, "root", root["text"], name, start, self._offset + 1)
            return
        if typed.root not in roots:
            return
        if len(typed.path) == 1:
            members = facts.get("members", {}).get(typed.root, ())
        elif not typed.path:
            members = roots[typed.root]["members"]
            kind = facts.get("names", {}).get(typed.root)
            node = self._node or (self._tree.roots[0] if self._tree.roots else None)
            if kind is not None and node is not None:
                for name in self._known(kind, _value_of(node)):
                    written = name if typed.is_indexed else self._behind_dot(name)
                    if written:
                        yield CompletionItem(name, CompletionKind.NAME, kind, "", written, start, self._offset + 1)
        else:
            return
        for member in members:
            yield CompletionItem(member, CompletionKind.MEMBER, typed.root, "", member, start, self._offset + 1)

    def _behind_dot(self, name: str) -> str:
        if is_identifier(name):
            return name
        return alias_of(name) if self._lookup.language.expressions.get("has_aliases") else ""


def _value_of(node: Node) -> Node:
    """The member, of the name of a member."""
    return node.parent if node.parent is not None and node.parent.key is node else node


def _is_plain(word: str) -> bool:
    """Whether YAML reads the word as that text, without quotes."""
    inside = word.replace(": ", "\n").replace(" #", "\n")
    return (
        bool(word)
        and word == word.strip()
        and "\n" not in inside
        and word[0] not in "\"'{}[],&*!|>%@`#?:-"
        and word[-1] != ":"
    )
