"""Where a name is declared and used, in one document or in all of a workspace; renaming; the outline of a document."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from perdure.editor.expression_names import alias_of, is_identifier
from perdure.editor.names import DocumentNames, NameUse
from perdure.editor.nodes import NodeKind
from perdure.kernel.json_values import jsontext
from perdure.kernel.lazy_regex import lazy_regex

_PLAIN = lazy_regex(r"[A-Za-z_][\w./-]*")
_OTHER_VALUES = ("true", "false", "null", "yes", "no", "on", "off")

Workspace = Mapping[str, DocumentNames]
"""The documents by their addresses, all in one language."""


class RenameRefused(Exception):
    """A name cannot be changed, or not to this one."""


@dataclass(frozen=True, slots=True)
class Location:
    address: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Edit(Location):
    text: str


@dataclass(slots=True)
class Symbol:
    """A part of a document with a name, for the outline."""

    name: str
    kind: str
    detail: str
    start: int
    end: int
    name_start: int
    name_end: int
    children: "list[Symbol]" = field(default_factory=list)


def find_definitions(workspace: Workspace, address: str, offset: int) -> list[Location]:
    use = workspace[address].use_at(offset)
    if use is None:
        return []
    return [Location(at, declared.start, declared.end) for at, declared in _declarations(workspace, address, use)]


def find_references(
    workspace: Workspace, address: str, offset: int, *, with_declarations: bool = True
) -> list[Location]:
    uses = _all_uses(workspace, address, offset)
    return [Location(at, use.start, use.end) for at, use in uses if with_declarations or not use.is_declaration]


def find_renamable(workspace: Workspace, address: str, offset: int) -> Location:
    """The name that would be renamed."""
    use = workspace[address].use_at(offset)
    if use is None:
        raise RenameRefused("there is no name here that can be changed")
    if not _declarations(workspace, address, use):
        raise RenameRefused(f"{use.kind} {use.name!r} is not declared in this workspace")
    return Location(address, use.start, use.end)


def rename(workspace: Workspace, address: str, offset: int, new_name: str) -> list[Edit]:
    """All places where the name is written, with the new one."""
    find_renamable(workspace, address, offset)
    uses = _all_uses(workspace, address, offset)
    declarations = [(at, use) for at, use in uses if use.is_declaration]
    for at, declared in declarations:
        _check_new_name(workspace, workspace[at], declared, new_name)
    has_aliases = workspace[address].lookup.language.expressions.get("has_aliases")
    if not has_aliases and not is_identifier(new_name) and any(use.is_dotted for _, use in uses):
        raise RenameRefused(
            f"{new_name!r} cannot be read behind a dot, as expressions here do: use letters, digits and underscores"
        )
    old_name = declarations[0][1].name
    return [
        Edit(at, use.start, use.end, _written(workspace[at], use, old_name, new_name, bool(has_aliases)))
        for at, use in uses
    ]


def _check_new_name(workspace: Workspace, names: DocumentNames, declared: NameUse, new_name: str) -> None:
    if not new_name.strip() or new_name != new_name.strip() or "\n" in new_name:
        raise RenameRefused("a name is not empty, and has no space at its ends")
    documents = workspace.values() if declared.scope is None else (names,)
    taken = [
        use.name
        for document in documents
        for use in document.uses
        if use.is_declaration
        and use.kind == declared.kind
        and use.scope is declared.scope
        and use.name != declared.name
    ]
    has_aliases = names.lookup.language.expressions.get("has_aliases")
    if new_name in taken or (has_aliases and alias_of(new_name) in map(alias_of, taken)):
        raise RenameRefused(f"there is already a {declared.kind} {new_name!r}")
    node = names.tree.node_at(declared.start)
    if node is None or (node.parent is not None and node.parent.key is node):
        return  # nothing more is known about names of members
    for part in names.lookup.parts_at(node):
        if "pattern" in part and not lazy_regex(part["pattern"]).search(new_name):
            raise RenameRefused(f"{new_name!r} is not a valid name: it must match {part['pattern']}")
        if len(new_name) > part.get("maxLength", len(new_name)):
            raise RenameRefused(f"a name has at most {part['maxLength']} characters here")


def _written(names: DocumentNames, use: NameUse, old_name: str, new_name: str, has_aliases: bool) -> str:
    if use.is_dotted and has_aliases:
        return new_name if use.name == old_name and is_identifier(new_name) else alias_of(new_name)
    if not use.is_whole:
        return new_name
    if use.quote == '"':
        return jsontext.encode(new_name).decode()[1:-1]
    if use.quote == "'":
        return new_name.replace("'", "''")
    is_plain = _PLAIN.fullmatch(new_name) is not None and new_name.lower() not in _OTHER_VALUES
    return new_name if is_plain else jsontext.encode(new_name).decode()


def _declarations(workspace: Workspace, address: str, use: NameUse) -> list[tuple[str, NameUse]]:
    if use.scope is not None:
        return [(address, declared) for declared in workspace[address].declarations(use)]
    return [(at, declared) for at, names in workspace.items() for declared in names.declarations(use)]


def _all_uses(workspace: Workspace, address: str, offset: int) -> list[tuple[str, NameUse]]:
    """The declarations of the name at a place, and all that refers to them."""
    use = workspace[address].use_at(offset)
    if use is None:
        return []
    declarations = {id(declared) for _, declared in _declarations(workspace, address, use)}
    places = workspace if use.scope is None else {address: workspace[address]}
    uses = []
    refer: dict[tuple[str, int, str, bool], bool] = {}  # a text may have the same name at thousands of places
    for at, names in places.items():
        for other in names.uses:
            if other.kind != use.kind:
                continue
            alike = ("" if other.scope is None else at, id(other.scope), other.name, other.is_dotted)
            if alike not in refer:
                refer[alike] = any(id(item) in declarations for _, item in _declarations(workspace, at, other))
            if refer[alike] or (not declarations and other.name == use.name):
                uses.append((at, other))
    return sorted(uses, key=lambda item: (item[0] != address, item[0], item[1].start))


def outline(names: DocumentNames) -> list[Symbol]:
    """What the document declares, each inside what it is written in."""
    roots: list[Symbol] = []
    around: list[Symbol] = []
    for symbol in sorted(_symbols(names), key=lambda symbol: (symbol.start, -symbol.end)):
        while around and around[-1].end < symbol.end:
            around.pop()
        (around[-1].children if around else roots).append(symbol)
        around.append(symbol)
    return roots


def _symbols(names: DocumentNames) -> Iterator[Symbol]:
    shared = names.lookup.language.facts.get("workspace", ())
    for use in names.uses:
        if not use.is_declaration:
            continue
        node = use.node
        start, end = min(node.start, use.start), max(node.end, use.end)
        if use.kind in shared:  # it is the document
            root = node
            for around in node.ancestors():
                root = around
            start, end, node = root.start, root.end, root
        values = node.values() if node.kind is NodeKind.MAPPING else {}
        detail = next((values[name] for name in ("action", "type", "kind") if values.get(name)), "")
        yield Symbol(use.name, use.kind, detail or use.kind, start, end, use.start, use.end)
