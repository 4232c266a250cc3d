"""Graphs as text that draws them: Mermaid, Graphviz, and a picture of our own for where neither is at hand."""

from collections.abc import Callable
from xml.sax.saxutils import escape

from perdure.kernel.graph import Graph, Node

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 190, 58, 40, 52, 30

_FILLS = {"start": "#e8e8e8", "Match": "#fff3cd", "Gather": "#d9eafd", "Call": "#d9eafd", "Raise": "#f8d7da"}
_FILLS |= {"Return": "#d4edda", "Sleep": "#eee5f7"}


def to_mermaid(graph: Graph) -> str:
    names = {node.id: f"n{at}" for at, node in enumerate(graph.nodes)}
    nodes = {node.id: node for node in graph.nodes}
    lines = ["flowchart TD"]
    for at, (title, members) in enumerate(graph.groups):
        lines.append(f'  subgraph g{at}["{_quoted(title)}"]')
        lines += [f"    {names[id]}{_mermaid_shape(nodes[id])}" for id in members]
        lines.append("  end")
    for edge in graph.edges:
        arrow = "-.->" if edge.is_exceptional else "-->"
        label = f'|"{_quoted(edge.label)}"|' if edge.label else ""
        lines.append(f"  {names[edge.source]} {arrow}{label} {names[edge.target]}")
    return "\n".join(lines)


def _mermaid_shape(node: Node) -> str:
    text = "<br/>".join(_quoted(line) for line in _lines(node))
    match node.kind:
        case "Match":
            return f'{{"{text}"}}'
        case "start" | "Return" | "Raise":
            return f'(["{text}"])'
        case _:
            return f'["{text}"]'


def _quoted(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace("\n", " ")


def to_dot(graph: Graph) -> str:
    names = {node.id: f"n{at}" for at, node in enumerate(graph.nodes)}
    nodes = {node.id: node for node in graph.nodes}
    lines = ["digraph {", '  node [shape=box, style="rounded,filled", fontname="sans-serif"];']
    for at, (title, members) in enumerate(graph.groups):
        lines += [f"  subgraph cluster_{at} {{", f"    label={_dot(title)};"]
        for id in members:
            fill = _FILLS.get(nodes[id].kind, "#ffffff")
            lines.append(f'    {names[id]} [label={_dot(*_lines(nodes[id]))}, fillcolor="{fill}"];')
        lines.append("  }")
    for edge in graph.edges:
        style = ", style=dashed" if edge.is_exceptional else ""
        lines.append(f"  {names[edge.source]} -> {names[edge.target]} [label={_dot(edge.label)}{style}];")
    return "\n".join([*lines, "}"])


def _dot(*lines: str) -> str:
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for line in lines]
    return '"' + "\\n".join(escaped) + '"'


def _lines(node: Node) -> list[str]:
    title = node.label if node.kind in ("", "start") else f"{node.label} · {node.kind}"
    return [title, *node.notes]


def to_svg(graph: Graph) -> str:
    """Rows by distance from the start of each group; groups one below the other."""
    nodes = {node.id: node for node in graph.nodes}
    places: dict[str, tuple[int, int]] = {}
    frames: list[tuple[str, int, int, int]] = []
    top, widest = MARGIN, 1
    for title, members in graph.groups:
        rows = _rows(graph, members)
        widest = max(widest, *(len(row) for row in rows))
        for depth, row in enumerate(rows):
            for at, id in enumerate(row):
                places[id] = (MARGIN * 2 + at * (WIDTH + GAP_X), top + MARGIN + depth * (HEIGHT + GAP_Y))
        height = MARGIN * 2 + len(rows) * (HEIGHT + GAP_Y) - GAP_Y
        frames.append((title, top, height, max(len(row) for row in rows)))
        top += height + MARGIN
    width = MARGIN * 4 + widest * (WIDTH + GAP_X) - GAP_X
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" font-family="sans-serif" font-size="13">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>',
        f'<rect width="{width}" height="{top}" fill="#fff"/>',
    ]
    for title, at, height, columns in frames:
        across = MARGIN * 2 + columns * (WIDTH + GAP_X) - GAP_X
        parts.append(
            f'<rect x="{MARGIN}" y="{at}" width="{across}" height="{height}" rx="8" fill="none" stroke="#bbb"/>'
            f'<text x="{MARGIN + 8}" y="{at + 18}" fill="#777">{escape(title)}</text>'
        )
    for edge in graph.edges:
        parts.append(_svg_edge(places[edge.source], places[edge.target], edge.label, edge.is_exceptional))
    parts += [_svg_node(nodes[id], *place) for id, place in places.items()]
    return "\n".join([*parts, "</svg>"])


def _rows(graph: Graph, members: list[str]) -> list[list[str]]:
    inside = set(members)
    following: dict[str, list[str]] = {}
    for edge in graph.edges:
        if edge.source in inside and edge.target in inside:
            following.setdefault(edge.source, []).append(edge.target)
    row = [members[0]]
    seen = set(row)
    rows = []
    while row:
        rows.append(row)
        row = list(dict.fromkeys(id for one in row for id in following.get(one, ()) if id not in seen))
        seen.update(row)
    rest = [id for id in members if id not in seen]
    return [*rows, rest] if rest else rows


def _svg_node(node: Node, x: int, y: int) -> str:
    fill = _FILLS.get(node.kind, "#f6f6f6")
    lines = _lines(node)[:3]
    first = y + HEIGHT / 2 + 5 - 8 * (len(lines) - 1)
    texts = "".join(
        f'<text x="{x + WIDTH / 2:g}" y="{first + 16 * at:g}" text-anchor="middle"'
        f"{'' if at == 0 else ' font-size=' + chr(34) + '11' + chr(34)}>{escape(_cut(line))}</text>"
        for at, line in enumerate(lines)
    )
    return f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{fill}" stroke="#888"/>{texts}'


def _cut(text: str) -> str:
    return text if len(text) <= 28 else f"{text[:27]}…"


def _svg_edge(source: tuple[int, int], target: tuple[int, int], label: str, is_exceptional: bool) -> str:
    x1, y1 = source[0] + WIDTH / 2, float(source[1] + HEIGHT)
    x2, y2 = target[0] + WIDTH / 2, float(target[1])
    if y2 <= y1:  # back, or to a neighbour: around the right side
        x1, y1, x2, y2 = source[0] + WIDTH, source[1] + HEIGHT / 2, target[0] + WIDTH, target[1] + HEIGHT / 2
        bend = max(x1, x2) + 34
        path = f"M{x1:g} {y1:g} C{bend:g} {y1:g} {bend:g} {y2:g} {x2:g} {y2:g}"
    else:
        middle = (y1 + y2) / 2
        path = f"M{x1:g} {y1:g} C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}"
    dash = ' stroke-dasharray="5 4"' if is_exceptional else ""
    drawn = f'<path d="{path}" fill="none" stroke="#555"{dash} marker-end="url(#tip)"/>'
    if label:
        x, y = (x1 + x2) / 2, (y1 + y2) / 2
        drawn += f'<text x="{x:g}" y="{y:g}" font-size="11" fill="#555">{escape(_cut(label))}</text>'
    return drawn


FORMS: dict[str, Callable[[Graph], str]] = {"mermaid": to_mermaid, "dot": to_dot, "svg": to_svg}
