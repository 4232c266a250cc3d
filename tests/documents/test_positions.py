"""The positions of values in a text."""

import pytest

from perdure.documents import Path, read_document, read_documents, spell

TEXT = b"""\
name: demo
steps:
  - step: one   # a comment
    with: {x: 1, "y.z": [true, ~]}
  - &two
    step: two
again: *two
more:
  <<: *two
  own: |
    text
"""


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ((), (1, 1), (1, 1)),
        (("name",), (1, 7), (1, 1)),
        (("steps",), (3, 3), (2, 1)),
        (("steps", 0), (3, 5), (3, 5)),
        (("steps", 0, "step"), (3, 11), (3, 5)),
        (("steps", 0, "with", "x"), (4, 15), (4, 12)),
        (("steps", 0, "with", "y.z", 1), (4, 32), (4, 32)),
        (("again",), (7, 8), (7, 1)),
        (("again", "step"), (6, 11), (6, 5)),
        (("more", "step"), (6, 11), (6, 5)),
        (("more", "own"), (10, 8), (10, 3)),
        (("steps", 7, "no"), (3, 3), (2, 1)),
        (("nowhere",), (1, 1), (1, 1)),
    ],
)
def test_values_and_keys_have_places(path: Path, value: tuple[int, int], key: tuple[int, int]) -> None:
    document = read_document(TEXT)

    assert document.place_of(path) == value
    assert document.place_of_key(path) == key


def test_columns_count_characters() -> None:
    assert read_document("ä: {ö: 1}\n".encode()).place_of(("ä", "ö")) == (1, 8)


def test_a_byte_order_mark_moves_nothing() -> None:
    assert read_document(b"\xef\xbb\xbfa: 1\n").place_of(("a",)) == (1, 4)


def test_each_document_of_a_text_has_its_own_places() -> None:
    first, second = read_documents(b"a: 1\n---\n# nothing\n---\n\nb: [2]\n")

    assert (first.data, second.data) == ({"a": 1}, {"b": [2]})
    assert first.place_of(("a",)) == (1, 4)
    assert second.place_of(("b", 0)) == (6, 5)


def test_json_has_places_too() -> None:
    document = read_document(b'{\n  "a": [1, {"b": 2}]\n}')

    assert document.place_of(("a", 1, "b")) == (2, 18)
    assert document.place_of_key(("a", 1, "b")) == (2, 13)


def test_json_that_yaml_cannot_read_points_at_its_beginning() -> None:
    document = read_document(b'\n {"a": "\\ud83d\\ude00"}')

    assert document.data == {"a": "😀"}
    assert document.place_of(("a",)) == (2, 2)


def test_a_problem_takes_its_place_from_the_document() -> None:
    document = read_document(TEXT)

    problem = document.problem("DEMO", "no such thing", ("steps", 0, "with", "y.z"), hint="Ask.")

    assert problem.describe("x.yaml") == 'x.yaml:4:25: error: no such thing (steps[0].with["y.z"]) [DEMO]\n    Ask.'
    assert document.problem_of_key("DEMO", "odd", ("name",)).column == 1


@pytest.mark.parametrize(("path", "expected"), [((), ""), (("a", 0, "b-c"), "a[0].b-c"), (("x y", "z"), '["x y"].z')])
def test_paths_are_written_for_people(path: Path, expected: str) -> None:
    assert spell(path) == expected
