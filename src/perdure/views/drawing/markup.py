"""A graph as text: Mermaid and DOT, which other tools draw, an outline for people, and JSON data for programs."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from perdure.kernel.graphs.graph import Edge, Graph, Node, Role
from perdure.views.drawing.boxes import NodeStatus, clean

_FILLS = {Role.CHOICE: "#fdf5df", Role.WAIT: "#f4effb", Role.CALL: "#e6f4f3", Role.END: "#e8f5ed"}
_FILLS |= {Role.FAILURE: "#fcecea", Role.START: "#eceff3", Role.JOIN: "#eceff3", Role.STEP: "#eef4fb"}
_STATUS_FILLS = {"done": "#e2f3e8", "failed": "#fce6e3", "running": "#e1edfc", "waiting": "#fff2d3"}
_STATUS_FILLS |= {"skipped": "#f1f2f4", "cancelled": "#f1ebf7"}

Statuses = dict[str, NodeStatus]


class _Tree:
    """The nodes by their frames, and short names that hold no text of the document."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.children: dict[str, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            self.children[node.parent].append(node)
        self.parents = {node.id: node.parent for node in graph.nodes}
        self.names = {node.id: f"n{at}" for at, node in enumerate(graph.nodes)}

    def is_within(self, id: str, frame: str) -> bool:
        while id and id != frame:
            id = self.parents[id]
        return id == frame

    def border_of(self, edge: Edge) -> str:
        """The frame to whose border an edge leads from inside, or from which it leads inwards; empty for others."""
        for frame, other in ((edge.source, edge.target), (edge.target, edge.source)):
            if self.children.get(frame) and self.is_within(other, frame):
                return frame
        return ""


def to_mermaid(graph: Graph, statuses: Statuses | None = None, taken: set[int] | None = None) -> str:
    """An edge between a frame and what is in it has no form in Mermaid: it leads to a point inside the frame."""
    tree = _Tree(graph)
    points = {at: frame for at, edge in enumerate(graph.edges) if (frame := tree.border_of(edge))}
    lines = ["flowchart TD"]
    pending: list[tuple[Node | str, int]] = [(node, 1) for node in reversed(tree.children[""])]
    while pending:
        node, depth = pending.pop()
        indent = "  " * depth
        if isinstance(node, str):
            lines.append(indent + node)
        elif children := tree.children.get(node.id):
            lines.append(f'{indent}subgraph {tree.names[node.id]}["{_mermaid_text(node, statuses)}"]')
            pending.append(("end", depth))
            pending += [(f"p{at}((( )))", depth + 1) for at, frame in reversed(points.items()) if frame == node.id]
            pending += [(child, depth + 1) for child in reversed(children)]
        else:
            lines.append(f"{indent}{tree.names[node.id]}{_mermaid_shape(node, statuses)}")
    for at, edge in enumerate(graph.edges):
        arrow = "-.->" if edge.is_exceptional else "==>" if taken and at in taken else "-->"
        label = f'|"{_mermaid_quoted(edge.label)}"|' if edge.label else ""
        point = points.get(at)
        source = f"p{at}" if point == edge.source else tree.names[edge.source]
        target = f"p{at}" if point == edge.target else tree.names[edge.target]
        lines.append(f"  {source} {arrow}{label} {target}")
    for word, fill in _STATUS_FILLS.items():
        if names := [tree.names[id] for id, status in (statuses or {}).items() if status.word == word]:
            lines += [f"  classDef {word} fill:{fill},color:#1f2933", f"  class {','.join(names)} {word}"]
    return "\n".join(lines)


def _mermaid_shape(node: Node, statuses: Statuses | None) -> str:
    text = _mermaid_text(node, statuses)
    match node.role:
        case Role.CHOICE:
            return f'{{"{text}"}}'
        case Role.START | Role.END | Role.FAILURE:
            return f'(["{text}"])'
        case _:
            return f'["{text}"]'


def _mermaid_text(node: Node, statuses: Statuses | None) -> str:
    return "<br/>".join(_mermaid_quoted(line) for line in _lines(node, statuses))


def _mermaid_quoted(text: str) -> str:
    """Signs that mean something to Mermaid or to HTML, in Mermaid's own escapes."""
    escapes = {"#": "#35;", "&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;", "\\": "#92;"}
    return "".join(escapes.get(letter, letter) for letter in clean(text))


def to_dot(graph: Graph, statuses: Statuses | None = None, taken: set[int] | None = None) -> str:
    """Edges to frames lead to a point inside, cut off at the border."""
    tree = _Tree(graph)
    lines = ["digraph {", '  compound=true; node [shape=box, style="rounded,filled", fontname="sans-serif"];']
    pending: list[tuple[Node | str, int]] = [(node, 1) for node in reversed(tree.children[""])]
    while pending:
        node, depth = pending.pop()
        indent = "  " * depth
        if isinstance(node, str):
            lines.append(indent + node)
        elif children := tree.children.get(node.id):
            name = tree.names[node.id]
            lines.append(f"{indent}subgraph cluster_{name} {{ label={_dot(*_lines(node, statuses))};")
            lines.append(f"{indent}  {name} [shape=point, style=invis];")
            pending.append(("}", depth))
            pending += [(child, depth + 1) for child in reversed(children)]
        else:
            status = (statuses or {}).get(node.id)
            fill = _STATUS_FILLS.get(status.word, "#ffffff") if status is not None else _FILLS[node.role]
            label = _dot(*_lines(node, statuses))
            lines.append(f'{indent}{tree.names[node.id]} [label={label}, fillcolor="{fill}"];')
    for at, edge in enumerate(graph.edges):
        facts = [f"label={_dot(edge.label)}"]
        facts += ["style=dashed"] if edge.is_exceptional else []
        facts += ["penwidth=2"] if taken and at in taken else []
        for end, word in ((edge.source, "ltail"), (edge.target, "lhead")):
            if tree.children.get(end) and not tree.border_of(edge):
                facts.append(f"{word}=cluster_{tree.names[end]}")
        lines.append(f"  {tree.names[edge.source]} -> {tree.names[edge.target]} [{', '.join(facts)}];")
    return "\n".join([*lines, "}"])


def _dot(*lines: str) -> str:
    return '"' + "\\n".join(clean(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines) + '"'


def _lines(node: Node, statuses: Statuses | None) -> list[str]:
    status = (statuses or {}).get(node.id)
    return [node_title(node), *node.notes, *([status.line] if status is not None and status.line else [])]


def node_title(node: Node) -> str:
    """Its name and its kind, unless its first note says the kind."""
    is_said = node.kind in ("", node.label) or any(note.startswith(node.kind) for note in node.notes)
    return node.label if is_said else f"{node.label} · {node.kind}"


def to_outline(graph: Graph, statuses: Statuses | None = None, taken: set[int] | None = None) -> str:
    """Nodes in reading order, indented by frame, each with the edges that leave it; `*` marks those taken."""
    tree = _Tree(graph)
    labels = {node.id: clean(node.label) for node in graph.nodes}
    leaving: dict[str, list[tuple[int, Edge]]] = defaultdict(list)
    for at, edge in enumerate(graph.edges):
        leaving[edge.source].append((at, edge))
    lines: list[str] = []
    pending = [(node, 0) for node in reversed(tree.children[""])]
    while pending:
        node, depth = pending.pop()
        status = (statuses or {}).get(node.id)
        status_text = f"  [{status.line}]" if status is not None and status.line else ""
        lines.append("  " * depth + clean(node_title(node)) + status_text)
        lines += [f"{'  ' * depth}    {clean(note)}" for note in node.notes]
        lines += ["  " * depth + line for line in _leaving(leaving[node.id], labels, tree, taken)]
        pending += [(child, depth + 1) for child in reversed(tree.children.get(node.id, []))]
    return "\n".join(lines)


def _leaving(
    edges: list[tuple[int, Edge]], labels: dict[str, str], tree: _Tree, taken: set[int] | None
) -> Iterator[str]:
    for at, edge in edges:
        arrow = "-!>" if edge.is_exceptional else "-->"
        mark = " *" if taken and at in taken else ""
        target = "itself" if edge.source == edge.target else labels[edge.target]
        if edge.source != edge.target and tree.border_of(edge) == edge.target:
            target = f"the end of {target}"
        yield f"    {arrow} {target}{f'  ({clean(edge.label)})' if edge.label else ''}{mark}"


def graph_json(graph: Graph) -> dict[str, Any]:
    """The document. `parent` is the frame that a node is in."""
    nodes = [
        {
            "id": node.id,
            "label": node.label,
            "kind": node.kind,
            "role": str(node.role),
            **({"parent": node.parent} if node.parent else {}),
            **({"notes": list(node.notes)} if node.notes else {}),
        }
        for node in graph.nodes
    ]
    edges = [
        {
            "from": edge.source,
            "to": edge.target,
            **({"label": edge.label} if edge.label else {}),
            "exceptional": edge.is_exceptional,
        }
        for edge in graph.edges
    ]
    return {"title": graph.title, "nodes": nodes, "edges": edges}


def draw(form: str, graph: Graph, statuses: Statuses | None = None, taken: set[int] | None = None) -> str:
    """A graph in one of the forms: `mermaid`, `dot`, `svg`, or `text`."""
    if form == "svg":
        from perdure.views.drawing.boxes import compose
        from perdure.views.drawing.svg import to_svg

        return to_svg(compose(graph, statuses), statuses, taken)
    write = {"mermaid": to_mermaid, "dot": to_dot, "text": to_outline}[form]
    return write(graph, statuses, taken)
