"""Whole documents: structure, aliases, merging, and agreement with PyYAML where both apply."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.documents import UnreadableText, read_document, read_documents

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
PRINTABLE = st.text(st.characters(categories=("L", "N", "P", "S", "Zs")))


def json_like(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | NUMBERS | text,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=12,
    )


class CoreDumper(yaml.SafeDumper):
    """PyYAML's own writer, which quotes for YAML 1.1 and never writes aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and repr(left) == repr(right)


@given(json_like(st.text()), st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_pyyaml_writes_is_read_back(data: Any, flow: bool) -> None:
    text = yaml.dump(data, Dumper=CoreDumper, sort_keys=False, default_flow_style=flow)

    result = read_documents(text.encode())

    assert same(result[0].data if result else None, data)


@given(json_like(st.text()))
@settings(max_examples=100, deadline=None)
def test_json_is_read(data: Any) -> None:
    assert same(read_document(json.dumps([data]).encode()).data, [data])


@given(json_like(PRINTABLE))
@settings(max_examples=100, deadline=None)
def test_json_is_yaml(data: Any) -> None:
    assert same(
        read_document(b"# a comment, so this is no JSON\n" + json.dumps([data], ensure_ascii=False).encode()).data,
        [data],
    )


@given(st.binary(max_size=60) | st.text("{}[]:,-?&*!|>'\"%@`#~ \n\tab1<", max_size=60).map(str.encode))
@settings(max_examples=400, deadline=None)
def test_any_bytes_give_data_or_problems(text: bytes) -> None:
    try:
        documents = read_documents(text)
    except UnreadableText as refused:
        assert refused.problems
        assert all((problem.line or 0) >= 1 and (problem.column or 0) >= 1 for problem in refused.problems)
    else:
        for document in documents:
            json.dumps(document.data, allow_nan=False)
            document.place_of(("a", 0))


def test_aliases_share_what_they_name() -> None:
    data = read_document(b"a: &x [1]\nb: *x\n").data

    assert data == {"a": [1], "b": [1]}
    assert data["a"] is data["b"]


def test_an_anchor_may_be_named_again() -> None:
    assert read_document(b"- &x 1\n- *x\n- &x 2\n- *x\n").data == [1, 1, 2, 2]


def test_merging_yields_to_what_is_written() -> None:
    text = b"a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  z: 3\n  <<: [*a, *b]\n"

    merged = read_document(text).data["c"]

    assert merged == {"x": 1, "y": 1, "z": 3}
    assert list(merged) == ["x", "y", "z"]


def test_a_quoted_merge_key_is_a_key() -> None:
    assert read_document(b'"<<": 1\n').data == {"<<": 1}


def test_keys_are_text_as_written() -> None:
    assert read_document(b"200: a\ntrue: b\n1.50: c\nyes: d\n").data == {
        "200": "a",
        "true": "b",
        "1.50": "c",
        "yes": "d",
    }


def test_an_alias_may_name_a_key() -> None:
    assert read_document(b"a: &k name\n*k : 1\n").data == {"a": "name", "name": 1}


def test_a_document_may_be_one_value() -> None:
    assert [document.data for document in read_documents(b"--- 3\n--- text\n---\n...\n--- []\n")] == [3, "text", []]


@pytest.mark.parametrize("text", [b'{"a": 1}', b"[1, 2]", b"{a: 1}", b"[a, b]"])
def test_braces_begin_json_or_flow_style(text: bytes) -> None:
    assert read_document(text).data == yaml.safe_load(text)


def test_order_of_members_is_the_order_of_the_text() -> None:
    assert list(read_document(b"b: 1\na: 2\nc: 3\n").data) == ["b", "a", "c"]
