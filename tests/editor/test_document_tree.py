"""The parts of texts: as the reader of documents has them where it can read, and something where it cannot."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.editor.editing import examples

from perdure.documents import read_documents, write_document
from perdure.editor.document_tree import LARGEST, DocumentTree
from perdure.editor.nodes import Node, NodeKind, TextLines

WORDS = st.text(st.sampled_from("ab:-# '\"\\{}[],é\n|>&*!%?x1"), max_size=8)
NAMES = st.text(
    st.sampled_from("ab:-# '\"\\{}[],é|>&*!%x1"), min_size=1, max_size=8
)  # others need `? `, which nobody writes
VALUES = st.recursive(
    WORDS | st.integers(0, 9) | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


def shape_of_data(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: shape_of_data(member) for name, member in value.items()}
    if isinstance(value, list):
        return [shape_of_data(item) for item in value]
    return value if isinstance(value, str) else "…"


def shape_of_node(node: Node, like: Any, text: str) -> Any:
    """With the texts of those scalars that are texts of one line, and what they are like otherwise."""
    if node.kind is NodeKind.MAPPING:
        members = like if isinstance(like, dict) else {}
        return {str(child.step): shape_of_node(child, members.get(child.step), text) for child in node.children}
    if node.kind is NodeKind.SEQUENCE:
        items = dict(enumerate(like)) if isinstance(like, list) else {}
        return [shape_of_node(child, items.get(at), text) for at, child in enumerate(node.children)]
    is_one_line = "\n" not in text[node.start : node.end] and not text.startswith(("|", ">"), node.start)
    return node.text if isinstance(like, str) and is_one_line else shape_of_data(like)


def assert_same(text: str) -> None:
    documents = [document.data for document in read_documents(text.encode())]
    roots = [root for root in DocumentTree(text).roots if root.kind is not NodeKind.EMPTY]
    assert [shape_of_node(root, data, text) for root, data in zip(roots, documents, strict=True)] == [
        shape_of_data(data) for data in documents
    ]


def test_the_parts_of_examples_are_those_that_the_reader_reads() -> None:
    listed = examples()

    assert len(listed) > 20
    for _, path in listed:
        assert_same(path.read_text(encoding="utf-8"))


@given(VALUES.filter(lambda value: isinstance(value, dict | list) and bool(value)))
def test_json_has_the_same_parts(value: Any) -> None:
    text = json.dumps(value, indent=2)
    root = DocumentTree(text).roots[0]

    assert shape_of_node(root, value, text) == shape_of_data(value)


@given(st.dictionaries(st.sampled_from(["a", "b", "c-d"]), VALUES, min_size=1, max_size=3))
@pytest.mark.sampled(2)
def test_yaml_that_is_written_has_the_same_parts(value: dict[str, Any]) -> None:
    assert_same(write_document(value))


@pytest.mark.parametrize(
    "text",
    [
        "a: |\n  one\n\n  two\nb: >-\n    x\nc: 1\n",
        "a:\n- b\n- c: 1\n  d: 2\n- - x\n  - y\ne: {f: [1, 2], g: 'it''s'}\n",
        "a: 'one\n  two'\nb: \"x \\\n  y\"\n",
        "a: &x\n  b: 1\nc: !!str 2\nd: plain text # comment\n",
        "# only\n---\na: 1\n---\n- 2\n...\n",
        "a: b c\n  d e\nf: -1\ng: http://x:1/y#z\n'h i': 1\n\"j\": 2\n",
    ],
)
def test_what_yaml_allows_is_read(text: str) -> None:
    assert_same(text.replace("...\n", ""))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("steps:\n  a:\n    kin\n    args: 1\nb: 2\n", ("steps", "a", "args")),
        ("steps:\n  a: [1, 2\nb: 2\n", ("b",)),
        ("steps:\n  a: {x: 1\n  c: 3\nb: 2\n", ("b",)),
        ('steps:\n  a: "open\n  c: 3\nb: 2\n', ("steps", "c")),
        ("  a: 1\nb: 2\n", ("b",)),
        ('{"a": {"x": 1 "y": 2}, "b": 3', ("a", "y")),
        ('{"a": , "b": {"c": "d', ("b", "c")),
        ("a:\n   x: 1\n  y: 2\nb: 3\n", ("b",)),
    ],
)
def test_what_is_half_written_keeps_the_parts_around_it(text: str, path: tuple[str, ...]) -> None:
    node: Node | None = DocumentTree(text).roots[0]
    for step in path:
        assert node is not None
        node = node.child(step)

    assert node is not None


@given(st.text(st.sampled_from("ab:-# '\"\\{}[],\n|>&*! "), max_size=60))
def test_any_text_has_parts_that_lie_inside_each_other(text: str) -> None:
    for root in DocumentTree(text).roots:
        for node in root.walk():
            assert 0 <= node.start <= node.end <= len(text)
            assert node.parent is None or node in node.parent.children


def test_texts_that_are_too_large_or_too_deep_cost_little() -> None:
    assert DocumentTree("a: 1\n" * LARGEST).roots == []
    deepest = max(len(list(node.ancestors())) for node in DocumentTree("[" * 100_000).roots[0].walk())
    assert deepest <= 101
    assert DocumentTree("a: " * 100_000).roots[0].kind is NodeKind.MAPPING


@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 8), ("utf-16", 5), ("utf-32", 4)])
def test_positions_are_counted_as_the_editor_counts(encoding: str, column: int) -> None:
    text = TextLines("a: 1\nb😀é: 2\r\nc: 3")
    offset = text.text.index(": 2") + 1

    assert text.position_of(offset, encoding) == (1, column)
    assert text.offset_at(1, column, encoding) == offset
    assert text.offset_at(1, 99, encoding) == text.text.index("\r")
    assert text.offset_at(9, 9, encoding) == len(text.text)
