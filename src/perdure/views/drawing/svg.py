"""A picture as SVG, for light and dark backgrounds.

Colours stand as attributes, for readers without style sheets, and once more in a style sheet for dark backgrounds. No
colour carries a meaning alone: a status is written out, a node that was not reached has a broken border, an edge that
is taken after a failure is broken too, and an edge that a run has taken is thick.
"""

from xml.sax.saxutils import escape, quoteattr

from perdure.kernel.graphs.graph import Edge, Node, Role
from perdure.views.drawing.boxes import ICON, LINE_HEIGHT, SMALL, NodeStatus, Picture, TextLine, clean, width_of
from perdure.views.drawing.frames import PADDING
from perdure.views.drawing.layered import Point, Rectangle

MARGIN = 24.0
LONGEST_TIP = 600  # letters of a text that is shown when the pointer rests

Colours = tuple[str, str]  # of the area and of its border

_LIGHT: dict[str, Colours] = {
    Role.STEP: ("#eef4fb", "#7a9fcc"),
    Role.START: ("#eceff3", "#8a94a3"),
    Role.CHOICE: ("#fdf5df", "#c9a13b"),
    Role.WAIT: ("#f4effb", "#a187ce"),
    Role.CALL: ("#e6f4f3", "#56a49d"),
    Role.JOIN: ("#eceff3", "#6f7b8a"),
    Role.END: ("#e8f5ed", "#62aa7d"),
    Role.FAILURE: ("#fcecea", "#cf7c74"),
    "done": ("#e2f3e8", "#3c9160"),
    "failed": ("#fce6e3", "#c2483d"),
    "running": ("#e1edfc", "#2f74c0"),
    "waiting": ("#fff2d3", "#b5831a"),
    "skipped": ("#f1f2f4", "#929ba6"),
    "cancelled": ("#f1ebf7", "#8463b0"),
    "unreached": ("#fafbfc", "#c3cad3"),
}
_DARK: dict[str, Colours] = {
    Role.STEP: ("#1d2a3a", "#5c86b8"),
    Role.START: ("#272c33", "#7f8997"),
    Role.CHOICE: ("#332b15", "#b08f37"),
    Role.WAIT: ("#2a2338", "#8f75bd"),
    Role.CALL: ("#17302e", "#4b938d"),
    Role.JOIN: ("#272c33", "#8a95a3"),
    Role.END: ("#193024", "#549a6f"),
    Role.FAILURE: ("#3a2020", "#bf6d66"),
    "done": ("#17331f", "#4fae74"),
    "failed": ("#43201d", "#dc6a5f"),
    "running": ("#162c48", "#5b9de6"),
    "waiting": ("#382c10", "#d3a23c"),
    "skipped": ("#24272c", "#79828d"),
    "cancelled": ("#2b2140", "#a486d1"),
    "unreached": ("#1b1e23", "#474f59"),
}
_PLAIN = {  # light and dark
    "canvas": ("#ffffff", "#14171b"),
    "ink": ("#1f2933", "#e4e8ed"),
    "dim": ("#56616d", "#a3adb9"),
    "frame": ("#f7f9fb", "#1a1e24"),
    "frame2": ("#eff3f7", "#20252c"),
    "border": ("#c9d2dc", "#3d4651"),
    "edge": ("#697684", "#8e9aa8"),
    "taken": ("#33475c", "#c5d2e0"),
    "faint": ("#b9c2cc", "#4a535e"),
    "error": ("#b4574e", "#d08078"),
}
_SIGNS = {  # within 10 by 10
    "done": "M1.5 5.5 4 8 8.5 2",
    "failed": "M2 2 8 8M8 2 2 8",
    "running": "M2.5 1.5 8 5 2.5 8.5Z",
    "waiting": "M3 2V8M7 2V8",
    "skipped": "M1.5 5H8.5",
    "cancelled": "M2 2H8V8H2Z",
}


def to_svg(picture: Picture, statuses: dict[str, NodeStatus] | None = None, taken: set[int] | None = None) -> str:
    """`statuses` by node and `taken`, the positions of edges, make it the picture of a run."""
    drawing = picture.drawing
    width, height = drawing.width + 2 * MARGIN, drawing.height + 2 * MARGIN
    title = clean(picture.graph.title)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(width)}" height="{_n(height)}"'
        f' viewBox="0 0 {_n(width)} {_n(height)}" font-family="system-ui, \'Segoe UI\', Helvetica, Arial, sans-serif"'
        f' font-size="{_n(SMALL)}" role="img">',
        f"<title>{escape(title or 'workflow')}</title>",
        _style(),
        _tips(),
        f'<rect class="canvas" width="{_n(width)}" height="{_n(height)}" fill="{_PLAIN["canvas"][0]}"/>',
        f'<g transform="translate({_n(MARGIN)} {_n(MARGIN)})">',
    ]
    depth = {"": 0}
    for node in picture.graph.nodes:
        depth[node.id] = depth[node.parent] + 1
    nodes = picture.graph.nodes
    for node in nodes:
        if node.id in picture.frames:
            parts.append(_frame(picture, node, depth[node.id], _status(node, statuses)))
    order = sorted(range(len(drawing.routes)), key=lambda at: at in taken) if taken else range(len(drawing.routes))
    for at in order:
        is_taken = None if taken is None else at in taken
        parts.append(_edge(picture.graph.edges[at], drawing.routes[at], drawing.labels[at], is_taken))
    for node in nodes:
        if node.id not in picture.frames:
            parts.append(_box(picture, node, _status(node, statuses)))
    for at, place in enumerate(drawing.labels):
        if place is not None:
            parts.append(
                _label(
                    picture.labels[at], place, picture.graph.edges[at], is_faint=bool(taken) and at not in (taken or ())
                )
            )
    return "\n".join([*parts, "</g>", "</svg>"])


def _status(node: Node, statuses: dict[str, NodeStatus] | None) -> str | None:
    """The word for its colours in the picture of a run; None in that of a document."""
    if statuses is None:
        return None
    return statuses[node.id].word if node.id in statuses else "unreached"


def _n(number: float) -> str:
    return f"{number:.1f}".rstrip("0").rstrip(".")


def _style() -> str:
    rules = [f".{name}{{fill:{fill};stroke:{line}}}" for name, (fill, line) in _DARK.items()]
    rules += [f".sign-{name}{{stroke:{line}}}" for name, (_, line) in _DARK.items()]
    for name, (_, dark) in _PLAIN.items():
        if name in ("edge", "taken", "faint", "error"):
            rules.append(f".{name}{{stroke:{dark}}}.tip-{name}{{fill:{dark}}}")
        elif name == "border":
            rules.append(f".frame,.frame2{{stroke:{dark}}}")
        else:
            rules.append(f".{name}{{fill:{dark}}}")
    return f"<style>@media (prefers-color-scheme: dark){{{''.join(rules)}}}</style>"


def _tips() -> str:
    tips = [
        f'<marker id="tip-{name}" viewBox="0 0 8 8" refX="7.4" refY="4" markerWidth="8" markerHeight="8"'
        f' markerUnits="userSpaceOnUse" orient="auto"><path class="tip-{name}" d="M0 .6 8 4 0 7.4 1.6 4z"'
        f' fill="{_PLAIN[name][0]}"/></marker>'
        for name in ("edge", "taken", "faint", "error")
    ]
    return f"<defs>{''.join(tips)}</defs>"


def _frame(picture: Picture, node: Node, depth: int, status: str | None) -> str:
    place = picture.drawing.places[node.id]
    shade = "frame2" if depth % 2 == 0 else "frame"
    border, dash = f'stroke="{_PLAIN["border"][0]}"', ""
    fill, name = _PLAIN[shade][0], shade
    if status is not None:
        border = f'stroke="{_LIGHT[status][1]}"'
        name = f"{shade} sign-{status}"
        dash = ' stroke-dasharray="4 3"' if status in ("unreached", "skipped") else ""
    rectangle = f'<rect class="{name}" {_at(place)} rx="10" fill="{fill}" {border}{dash}/>'
    lines = picture.texts[node.id]
    return f"<g {_data(node)}>{_tip(node)}{rectangle}{_texts(lines, place.x + PADDING, place.y + 7, status, None)}</g>"


def _box(picture: Picture, node: Node, status: str | None) -> str:
    place, lines = picture.drawing.places[node.id], picture.texts[node.id]
    name = status or node.role
    fill, line = _LIGHT[name]
    dash = ' stroke-dasharray="4 3"' if status in ("unreached", "skipped") else ""
    heavy = ' stroke-width="2"' if status in ("running", "failed") else ""
    rounding = min(place.height / 2, 16.0) if node.role in (Role.START, Role.END, Role.FAILURE) else 7.0
    shape = f'<rect class="{name}" {_at(place)} rx="{_n(rounding)}" fill="{fill}" stroke="{line}"{dash}{heavy}/>'
    height = sum(LINE_HEIGHT[text.size] for text in lines)
    top = place.y + (place.height - height) / 2
    text = _texts(lines, place.x + place.width / 2, top, status, "middle")
    return f"<g {_data(node)}>{_tip(node)}{shape}{_mark(node, place, line)}{text}</g>"


def _mark(node: Node, place: Rectangle, line: str) -> str:
    """A sign of the role in the corner, for readers who do not see the colour."""
    x, y = _n(place.x + place.width - 13), _n(place.y + 4)
    drawn = {
        Role.CHOICE: "M4.5 .5 8.5 4.5 4.5 8.5 .5 4.5Z",
        Role.WAIT: "M4.5 .8A3.7 3.7 0 1 1 4.4 .8ZM4.5 2.5V4.7L6 5.6",
        Role.CALL: "M.8 2.5H6.2V8.2H.8ZM2.8 2.4V.8H8.2V6.4H6.4",
        Role.JOIN: "M1 .8 4.5 4 8 .8M4.5 4V8.4",
    }.get(node.role)
    if drawn is None:
        return ""
    return f'<path class="{node.role}" transform="translate({x} {y})" d="{drawn}" fill="none" stroke="{line}"/>'


def _at(place: Rectangle) -> str:
    return f'x="{_n(place.x)}" y="{_n(place.y)}" width="{_n(place.width)}" height="{_n(place.height)}"'


def _data(node: Node) -> str:
    return f"data-node={quoteattr(clean(node.id))}"


def _tip(node: Node) -> str:
    text = "\n".join(clean(line) for line in (node.label, node.kind, *node.notes) if line)
    return f"<title>{escape(text if len(text) <= LONGEST_TIP else text[:LONGEST_TIP] + '…')}</title>"


def _texts(lines: list[TextLine], x: float, top: float, status: str | None, anchor: str | None) -> str:
    drawn, y = [], top
    for line in lines:
        height = LINE_HEIGHT[line.size]
        base = y + height * 0.76
        y += height
        is_dim = line.style in ("kind", "note") or status == "unreached"
        name = "dim" if is_dim else "ink"
        look = f' font-size="{_n(line.size)}"' if line.size != SMALL else ""
        look += ' font-weight="600"' if line.style in ("title", "status") else ""
        look += ' font-style="italic"' if line.style == "kind" else ""
        look += f' text-anchor="{anchor}"' if anchor else ""
        left = x
        if line.style == "status" and status in _SIGNS:
            from_left = ICON / 2 if anchor else ICON
            left = x + from_left
            drawn.append(_sign(status, line, x, base, anchor))
        fill = _PLAIN[name][0]
        drawn.append(
            f'<text class="{name}" x="{_n(left)}" y="{_n(base)}" fill="{fill}"{look}>{escape(line.text)}</text>'
        )
    return "".join(drawn)


def _sign(status: str, line: TextLine, x: float, base: float, anchor: str | None) -> str:
    left = x - (width_of(line.text, line.size) + ICON) / 2 if anchor else x
    colour = _LIGHT[status][1]
    return (
        f'<path class="sign-{status}" transform="translate({_n(left)} {_n(base - 9)})" d="{_SIGNS[status]}"'
        f' fill="none" stroke="{colour}" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round"/>'
    )


def _edge(edge: Edge, route: list[Point], label: Rectangle | None, is_taken: bool | None) -> str:
    name = "error" if edge.is_exceptional else "edge"
    if is_taken is not None:
        name = "taken" if is_taken else "faint"
    weight = ' stroke-width="2.2"' if is_taken else ' stroke-width="1.3"'
    dash = ' stroke-dasharray="5 4"' if edge.is_exceptional else ""
    ends = f"data-from={quoteattr(clean(edge.source))} data-to={quoteattr(clean(edge.target))}"
    look = f'class="{name}" fill="none" stroke="{_PLAIN[name][0]}"{weight}{dash}'
    *before, last = _path(route, label, is_loop=edge.source == edge.target).split("M")[1:]
    strokes = [f'<path d="M{stroke}" {look}/>' for stroke in before]  # some readers would put a tip at each end
    return f'<g {ends}>{"".join(strokes)}<path d="M{last}" {look} marker-end="url(#tip-{name})"/></g>'


def _path(route: list[Point], label: Rectangle | None, *, is_loop: bool) -> str:
    """Straight where one point is above the other, else a curve with vertical ends; a gap where the label stands."""
    (x, y), *rest = route
    start = f"M{_n(x)} {_n(y)}"
    if is_loop:
        return start + "C" + " ".join(f"{_n(px)} {_n(py)}" for px, py in rest)
    commands = [start]
    for next_x, next_y in rest:
        if next_x != x:
            middle = _n((y + next_y) / 2)
            commands.append(f"C{_n(x)} {middle} {_n(next_x)} {middle} {_n(next_x)} {_n(next_y)}")
        else:
            if label is not None and min(y, next_y) - 1 <= label.y and label.y + label.height <= max(y, next_y) + 1:
                ends = (label.y, label.y + label.height) if next_y > y else (label.y + label.height, label.y)
                commands.append(f"V{_n(ends[0])}M{_n(x)} {_n(ends[1])}")
            commands.append(f"V{_n(next_y)}")
        x, y = next_x, next_y
    return "".join(commands)


def _label(lines: list[str], place: Rectangle, edge: Edge, *, is_faint: bool) -> str:
    x, y = place.x + place.width / 2, place.y + 1
    name = "dim"
    texts = "".join(
        f'<text class="{name}" x="{_n(x)}" y="{_n(y + LINE_HEIGHT[SMALL] * (at + 0.76))}" text-anchor="middle"'
        f' fill="{_PLAIN[name][0]}">{escape(line)}</text>'
        for at, line in enumerate(lines)
    )
    tip = clean(edge.label)
    tip = f"<title>{escape(tip if len(tip) <= LONGEST_TIP else tip[:LONGEST_TIP] + '…')}</title>"
    opacity = ' opacity=".6"' if is_faint else ""
    return f'<g class="label"{opacity}>{tip}{texts}</g>'
