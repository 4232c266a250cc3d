"""Drawings: geometrical truths of every example and of random graphs, and texts that cannot break a picture."""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.kernel.graphs.graph import Edge, Graph, Node, Role
from perdure.views.drawing import crossings, layering
from perdure.views.drawing.boxes import WIDEST_NOTE, Picture, compose, wrapped
from perdure.views.drawing.layered import Point, Rectangle
from perdure.views.drawing.markup import to_dot, to_mermaid, to_outline
from perdure.views.drawing.svg import MARGIN, to_svg
from perdure.wiring import languages

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").rglob("*")
    if path.suffix in (".json", ".yaml")
    and any(language.recognizes(path.read_bytes()) for language in languages().values())
)
SVG = "{http://www.w3.org/2000/svg}"


def graph_of(path: Path) -> Graph:
    text = path.read_bytes()
    language = next(language for language in languages().values() if language.recognizes(text))
    program = language.parse(text).program
    assert program is not None, path
    return language.graph(program)


# What is drawn, as the reader of the SVG gets it.


def routes(svg: str) -> list[tuple[str, str, list[list[Point]]]]:
    """Of every edge in the SVG: its ends, and its strokes as points that are close to each other."""
    tree = ET.fromstring(svg)
    edges = []
    for edge in tree.iter(f"{SVG}g"):
        if "data-from" in edge.attrib:
            drawn = [line for path in edge.iter(f"{SVG}path") for line in strokes(path.attrib["d"])]
            edges.append((edge.attrib["data-from"], edge.attrib["data-to"], drawn))
    return edges


def strokes(commands: str) -> list[list[Point]]:
    drawn: list[list[Point]] = []
    x = y = 0.0
    for letter, rest in re.findall(r"([MVC])([^MVC]*)", commands):
        numbers = [float(number) for number in rest.split()]
        if letter == "M":
            x, y = numbers
            drawn.append([(x, y)])
        elif letter == "V":
            drawn[-1] += [(x, y + (numbers[0] - y) * part / 8) for part in range(1, 9)]
            y = numbers[0]
        else:
            points = [(x, y), *zip(numbers[::2], numbers[1::2], strict=True)]
            drawn[-1] += [_bezier(points, part / 16) for part in range(1, 17)]
            x, y = points[-1]
    return drawn


def _bezier(points: list[Point], at: float) -> Point:
    weights = ((1 - at) ** 3, 3 * at * (1 - at) ** 2, 3 * at**2 * (1 - at), at**3)
    x = sum(weight * point[0] for weight, point in zip(weights, points, strict=True))
    return x, sum(weight * point[1] for weight, point in zip(weights, points, strict=True))


def holds(box: Rectangle, point: Point, *, border: float = 0.6) -> bool:
    """Whether a point is inside, not merely on the border."""
    x, y = point
    return box.x + border < x < box.x + box.width - border and box.y + border < y < box.y + box.height - border


def overlap(first: Rectangle, other: Rectangle) -> bool:
    return (
        first.x + 0.1 < other.x + other.width
        and other.x + 0.1 < first.x + first.width
        and first.y + 0.1 < other.y + other.height
        and other.y + 0.1 < first.y + first.height
    )


def encloses(frame: Rectangle, inner: Rectangle) -> bool:
    return (
        frame.x <= inner.x
        and frame.y <= inner.y
        and inner.x + inner.width <= frame.x + frame.width
        and inner.y + inner.height <= frame.y + frame.height
    )


def assert_true(picture: Picture) -> None:
    """The geometry of a drawing: nothing overlaps, nothing is crossed, everything is where it belongs."""
    graph, drawing = picture.graph, picture.drawing
    places = drawing.places
    boxes = {node.id: places[node.id] for node in graph.nodes if node.id not in picture.frames}
    for (name, box), (other, second) in combinations(boxes.items(), 2):
        assert not overlap(box, second), f"{name} overlaps {other}"
    parents = {node.id: node.parent for node in graph.nodes}
    around = {node.id: set(_around(node.id, parents)) for node in graph.nodes}
    for node in graph.nodes:
        if node.parent:
            assert encloses(places[node.parent], places[node.id]), f"{node.id} is not inside its frame"
        for frame in picture.frames - around[node.id] - {node.id}:
            if node.id not in around[frame]:
                assert not overlap(places[frame], places[node.id]), f"{node.id} lies in the frame {frame}"
    labels = [(at, place) for at, place in enumerate(drawing.labels) if place is not None]
    for (one_at, place), (other_at, second) in combinations(labels, 2):
        assert not overlap(place, second), f"labels {one_at} and {other_at} overlap"
    for at, place in labels:
        hidden = [id for id, box in boxes.items() if overlap(place, box)]
        assert not hidden, f"the label of edge {at} lies on {hidden}"
    drawn = routes(to_svg(picture))
    assert Counter((source, target) for source, target, _ in drawn) == Counter(
        (edge.source, edge.target) for edge in graph.edges
    )
    for source, target, lines in drawn:
        points = [point for line in lines for point in line]
        foreign = [id for id, box in boxes.items() if any(holds(box, point) for point in points)]
        assert not foreign, f"the edge from {source} to {target} crosses {foreign}"
        passed = {id for id in picture.frames if any(holds(places[id], point, border=2) for point in points)}
        allowed = (around[source] | around[target]) | {source, target}
        assert passed <= allowed, f"the edge from {source} to {target} crosses the frames {passed - allowed}"
        assert _touches(places[source], points[0]) and _touches(places[target], points[-1])
    for at, place in labels:
        for number, (source, target, lines) in enumerate(drawn):
            crossed = any(holds(place, point, border=1.0) for line in lines for point in line)
            assert not crossed, f"the edge from {source} to {target} ({number}) crosses the label of edge {at}"
    canvas = Rectangle(-0.1, -0.1, drawing.width + 0.2, drawing.height + 0.2)
    assert all(encloses(canvas, place) for place in [*places.values(), *(place for _, place in labels)])


def _around(id: str, parents: dict[str, str]) -> list[str]:
    frames = []
    while id := parents[id]:
        frames.append(id)
    return frames


def _touches(box: Rectangle, point: Point) -> bool:
    grown = Rectangle(box.x - 1, box.y - 1, box.width + 2, box.height + 2)
    return holds(grown, point, border=0)


# Examples.


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_drawn_truly(path: Path) -> None:
    graph = graph_of(path)

    assert_true(compose(graph))
    arrows = re.findall(r" (?:-->|-\.->|==>)(?:\|.*\|)? ", to_mermaid(graph))
    assert len(arrows) == len(graph.edges)
    assert to_dot(graph).count(" -> ") == len(graph.edges)
    assert len(re.findall(r"^ *-[-!]> ", to_outline(graph), re.MULTILINE)) == len(graph.edges)


@pytest.mark.parametrize("path", EXAMPLES[::4], ids=lambda path: path.stem)
def test_the_same_document_gives_the_same_picture(path: Path) -> None:
    assert to_svg(compose(graph_of(path))) == to_svg(compose(graph_of(path)))


# Any graph.


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Frames up to three deep, edges between anything and anything, themselves and their frames included."""
    count = draw(st.integers(1, 14))
    depth = {"": 0}
    nodes = []
    for number in range(count):
        parent = draw(st.sampled_from([id for id, level in depth.items() if level < 3]))
        id = f"node{number}"
        depth[id] = depth[parent] + 1
        notes = tuple(draw(st.lists(st.sampled_from(["a note", "x" * 90, "of several words"]), max_size=2)))
        nodes.append(
            Node(id, draw(st.sampled_from(["a", "fetch", "a name of many words", "W" * 60])), "kind", notes, parent)
        )
    ids = st.sampled_from([node.id for node in nodes])
    labels = st.sampled_from(["", "", "yes", "a condition that takes more than one line: a == b and c"])
    edges = st.builds(Edge, ids, ids, labels, st.booleans())
    return Graph("random", nodes, draw(st.lists(edges, max_size=20)))


@settings(max_examples=60, deadline=None)
@given(graphs())
@pytest.mark.sampled(2)
def test_any_graph_is_drawn_truly(graph: Graph) -> None:
    assert_true(compose(graph))


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 12), st.data())
def test_an_edge_leads_down_unless_it_closes_a_cycle(count: int, data: st.DataObject) -> None:
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda pair: pair[0] != pair[1])
    pairs = data.draw(st.lists(ends, max_size=20))
    nodes = [Node(str(at), str(at)) for at in range(count)]
    picture = compose(Graph("", nodes, [Edge(str(source), str(target)) for source, target in pairs]))
    upwards = layering.turned_edges(range(count), pairs)

    for at, (source, target) in enumerate(pairs):
        above, below = picture.drawing.places[str(source)], picture.drawing.places[str(target)]
        assert (above.y + above.height < below.y) is (at not in upwards)
    kept = [pair for at, pair in enumerate(pairs) if at not in upwards]
    assert layering.turned_edges(range(count), kept) == set(), "what is left has no cycle"


def test_a_step_stands_below_all_that_it_waits_for() -> None:
    """Layers are those of the longest path: `ship` waits for the gate, although `build` leads to it too."""
    names = ["build", "gate", "ship"]
    edges = [Edge("build", "ship"), Edge("build", "gate"), Edge("gate", "ship")]
    places = compose(Graph("", [Node(name, name) for name in names], edges)).drawing.places

    assert places["build"].y < places["gate"].y < places["ship"].y


def test_a_plane_graph_is_drawn_without_crossings() -> None:
    links = [layering.Link(*pair) for pair in ((0, 4), (0, 5), (1, 3), (1, 4), (2, 3))]
    layers = layering.build_layers([layering.Vertex(50, 50, 20, is_bend=False) for _ in range(6)], links)

    assert crossings.reduce_crossings(layers) == 0 == crossings.count_crossings(layers)


# Hostile and long texts.


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_no_name_can_break_a_picture(name: str, label: str) -> None:
    nodes = [Node("one", name, name, (label,)), Node("frame", name, "", (name,)), Node("two", label, "", (), "frame")]
    graph = Graph(name, nodes, [Edge("one", "two", label), Edge("two", "two", name)])

    tree = ET.fromstring(to_svg(compose(graph)))
    assert {element.tag.removeprefix(SVG) for element in tree.iter()} <= {
        *("svg", "title", "style", "defs", "marker", "path", "rect", "g", "text"),
    }
    mermaid = to_mermaid(graph)
    assert len(mermaid.splitlines()) == 7
    assert mermaid.count('"') == 6 + 2 * sum(bool(edge.label) for edge in graph.edges)


def test_markup_in_names_is_shown_and_not_obeyed() -> None:
    evil = "</text><script>alert(1)</script>\x1b[2J\u202e\"'&"
    svg = to_svg(compose(Graph(evil, [Node(evil, evil, evil, (evil,))], [Edge(evil, evil, evil)])))

    assert "<script" not in svg and "\x1b" not in svg and "\u202e" not in svg
    texts = [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]
    assert any("<script>" in text for text in texts)


def test_long_texts_are_wrapped_and_cut() -> None:
    assert wrapped("word " * 40, 100, 11, 2)[-1].endswith("…")
    picture = compose(Graph("", [Node("a", "n" * 500, "k", ("o" * 500,) * 20)], [Edge("a", "a", "l" * 500)]))

    assert picture.drawing.places["a"].width < WIDEST_NOTE + 60
    assert len(picture.texts["a"]) < 12
    assert len(picture.labels[0]) == 3


# Size.


def test_five_hundred_nodes_are_drawn_with_bounded_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted are the segments that the search for few crossings looks at, which is where the work is."""
    looked_at = 0
    count = crossings.count_crossings

    def counting(layers: layering.Layers) -> int:
        nonlocal looked_at
        looked_at += sum(len(near) for near in layers.below)
        return count(layers)

    monkeypatch.setattr(crossings, "count_crossings", counting)
    nodes = [Node(f"s{at}", f"step {at}") for at in range(500)]
    edges = [Edge(f"s{at // 3}", f"s{at}", "" if at % 7 else "if it is so") for at in range(1, 500)]
    edges += [Edge(f"s{at}", f"s{at + 40}") for at in range(0, 400, 9)] + [Edge("s499", "s3", "again")]
    picture = compose(Graph("wide", nodes, edges))

    assert len(picture.drawing.places) == 500
    assert looked_at <= 2 * crossings.WORK
    boxes = sorted(picture.drawing.places.values(), key=lambda place: (place.y, place.x))
    assert not any(overlap(box, other) for box, other in pairwise(boxes))
    assert MARGIN < picture.drawing.height < 5_000


def test_roles_have_their_own_look() -> None:
    looks = {to_svg(compose(Graph("", [Node("a", "a", "", (), "", role)]))) for role in Role}

    assert len(looks) == len(Role)
