"""What is written can be read back as the same data."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.documents import read_document, write_document

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(DATA)
def test_any_data_survives_being_written_and_read(data: Any) -> None:
    read = read_document(write_document({"data": data}).encode()).data

    assert repr(read) == repr({"data": data})  # 1, 1.0 and true are different data


@pytest.mark.parametrize(
    "text",
    [
        "1e3",
        "0o10",
        "010",
        "yes",
        "null",
        "~",
        "",
        " a",
        "a ",
        "- a",
        "#",
        "a: b",
        ".inf",
        "a\n b\n",
        "\n\r",
        "é",
        "\t",
    ],
)
def test_text_stays_text(text: str) -> None:
    assert read_document(write_document([text, {text: text}]).encode()).data == [text, {text: text}]


def test_members_keep_their_order_and_shared_parts_are_written_twice() -> None:
    shared = {"b": 1, "a": 2}

    assert write_document({"z": shared, "y": shared}) == "z:\n  b: 1\n  a: 2\ny:\n  b: 1\n  a: 2\n"
