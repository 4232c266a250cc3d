"""The names of a document: where each is declared, where it is used, and where it is known."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from perdure.editor.document_tree import DocumentTree
from perdure.editor.expression_names import alias_of, expression_spans, read_members
from perdure.editor.nodes import Node, NodeKind
from perdure.editor.schema_lookup import LanguageSchema, SchemaLookup

MOST_USES = 20_000  # names of one document


@dataclass(frozen=True, slots=True, eq=False)
class NameUse:
    """A name in a text: a declaration, or a use. Its range is that of the name alone, without quotes."""

    kind: str  # what it names: `step`
    name: str
    start: int
    end: int
    scope: Node | None  # where it is known; None: in the whole workspace
    node: Node  # of a declaration: what is declared; of a use: the value that it is in
    is_declaration: bool = False
    is_dotted: bool = False  # in an expression, behind a dot
    is_bare: bool = False  # in an expression, without a root: a use only if the name is declared
    is_whole: bool = True  # the value, or the name of a member, is this name and nothing else
    quote: str = ""


@dataclass(slots=True)
class DocumentNames:
    """The names of one text in a language."""

    tree: DocumentTree
    lookup: SchemaLookup
    uses: list[NameUse] = field(default_factory=list)
    _declared: dict[tuple[str, int], dict[str, list[NameUse]]] = field(default_factory=dict)

    @classmethod
    def read(cls, tree: DocumentTree, language: LanguageSchema) -> "DocumentNames":
        names = cls(tree, SchemaLookup(language))
        for root in tree.roots:
            for use in _uses_in(root, names):
                if len(names.uses) == MOST_USES:
                    return names
                names.uses.append(use)
                if use.is_declaration:
                    declared = names._declared.setdefault((use.kind, id(use.scope)), {})
                    declared.setdefault(use.name, []).append(use)
        return names

    def use_at(self, offset: int) -> NameUse | None:
        """The innermost use at a place; a bare name only if it is declared."""
        uses = [
            use for use in self.uses if use.start <= offset <= use.end and (not use.is_bare or self.declarations(use))
        ]
        return min(uses, key=lambda use: use.end - use.start, default=None)

    def declarations(self, use: NameUse) -> list[NameUse]:
        """Where the name of a use is declared, in this text."""
        for scope in self.scopes(use.kind, use.scope):
            declared = self._declared.get((use.kind, id(scope)), {})
            if use.name in declared:
                return declared[use.name]
            if use.is_dotted and self.lookup.language.expressions.get("has_aliases"):
                names = sorted(name for name in declared if alias_of(name) == use.name)
                if names:
                    return declared[names[0]]
        return []

    def known_at(self, kind: str, node: Node) -> dict[str, NameUse]:
        """The names of a kind that may be used at a place."""
        known: dict[str, NameUse] = {}
        for scope in self.scopes(kind, self.scope_of(kind, node)):
            for name, uses in self._declared.get((kind, id(scope)), {}).items():
                known.setdefault(name, uses[0])
        return known

    def is_declared(self, kind: str, scope: Node | None, name: str) -> bool:
        return name in self._declared.get((kind, id(scope)), {})

    def scope_of(self, kind: str, node: Node) -> Node | None:
        if kind in self.lookup.language.facts.get("workspace", ()):
            return None
        root = node
        for around in node.ancestors():
            root = around
            if kind in self.lookup.facts_at(around).get("scopes", ()):
                return around
        return root

    def scopes(self, kind: str, scope: Node | None) -> Iterator[Node | None]:
        """Where a name that is used in a scope may be declared, from the inside out."""
        yield scope
        while scope is not None and kind in self.lookup.facts_at(scope).get("lexical", ()):
            outer = self.scope_of(kind, scope)
            if outer is scope:
                return
            scope = outer
            yield scope


def _uses_in(root: Node, names: DocumentNames) -> Iterator[NameUse]:
    expressions = names.lookup.language.expressions
    for node in root.walk():
        facts = names.lookup.facts_at(node)
        if node.kind is NodeKind.MAPPING:
            if kind := facts.get("declares_members"):
                for child in node.children:
                    yield from _declared(kind, child.key, child, names, node)
            if (kind := facts.get("declares_label")) and _is_labelled(node):
                yield from _declared(kind, node.children[0].key, node.children[0], names, node)
        elif node.kind is NodeKind.SCALAR:
            if kind := facts.get("declares") or root.values().get(facts.get("declares_by", "")):
                yield from _declared(kind, node, node.parent or node, names, node)
            if kind := facts.get("refers"):
                start, end = bare_range(node)
                yield NameUse(kind, node.text, start, end, names.scope_of(kind, node), node, quote=node.quote)
            yield from _read(node, facts, expressions, names)


def _is_labelled(node: Node) -> bool:
    """`{fetch: {kind: http}}`: the only member is the label of a task."""
    return len(node.children) == 1 and node.children[0].kind is NodeKind.MAPPING


def _declared(kind: str, key: Node | None, node: Node, names: DocumentNames, at: Node) -> Iterator[NameUse]:
    if key is None or not key.text or key.quote in ("|", ">"):
        return
    start, end = bare_range(key)
    scope = names.scope_of(kind, at)
    yield NameUse(kind, key.text, start, end, scope, node, is_declaration=True, quote=key.quote)


def _read(node: Node, facts: dict[str, Any], expressions: Any, names: DocumentNames) -> Iterator[NameUse]:
    """The names in the expressions of a scalar."""
    text = names.tree.text
    kinds = expressions.get("names", {})
    roots = expressions.get("roots", {})
    if facts.get("path"):
        yield from _path(node, kinds, names)
        return
    for start, end in expression_spans(text, node.start, node.end):
        for read in read_members(text, start, end, roots, node.quote):
            kind = kinds.get(read.root) if read.root else expressions.get("bare")
            if kind is not None:
                yield NameUse(
                    kind,
                    read.name,
                    read.start,
                    read.end,
                    names.scope_of(kind, node),
                    node,
                    is_dotted=read.is_dotted,
                    is_bare=not read.root,
                    is_whole=False,
                    quote=node.quote,
                )


def _path(node: Node, kinds: Any, names: DocumentNames) -> Iterator[NameUse]:
    """The name in `steps.name.output`, which may have any signs but dots."""
    root, _, rest = node.text.partition(".")
    name = rest.partition(".")[0]
    if kind := kinds.get(root):
        start = bare_range(node)[0] + len(root) + 1
        scope = names.scope_of(kind, node)
        yield NameUse(kind, name, start, start + len(name), scope, node, is_whole=False, quote=node.quote)


def bare_range(node: Node) -> tuple[int, int]:
    """The range of a scalar without its quotes."""
    if node.quote not in ("'", '"'):
        return node.start, node.end
    return node.start + 1, max(node.end - 1, node.start + 1)
