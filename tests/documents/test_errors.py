"""Mistakes in a text: each with its code, its place and a hint (PBK-005, PBK-034)."""

import pytest

from perdure.documents import Limits, UnreadableText, read_document, read_documents
from perdure.kernel.documents.problems import Problem


def problems_of(text: bytes, limits: Limits | None = None) -> tuple[Problem, ...]:
    with pytest.raises(UnreadableText) as refused:
        read_document(text, limits or Limits())
    return refused.value.problems


@pytest.mark.parametrize(
    ("text", "code", "place", "message", "hint"),
    [
        (b"a:\n\tb: 1\n", "DOC-SYNTAX", (2, 1), "cannot start any token", "Indent with spaces"),
        (b"a: 'x\nb: 2\n", "DOC-SYNTAX", (3, 1), "begins in line 1", "not closed"),
        (b"a: b: c\n", "DOC-SYNTAX", (1, 5), "mapping values are not allowed", "needs quotes"),
        (b"a: @x\n", "DOC-SYNTAX", (1, 4), "cannot start any token", "begins with @ needs quotes"),
        (b"a: [1, 2\nb: 3\n", "DOC-SYNTAX", (2, 2), "begins in line 1", "not closed"),
        (b'a: "\\q"\n', "DOC-SYNTAX", (1, 5), "escape", "backslash"),
        (b"a:\n  - 1\n - 2\n", "DOC-SYNTAX", (3, 2), "expected key", "indented alike"),
        (b"a: x\x01\n", "DOC-SYNTAX", (1, 5), "U+0001", "escape"),
        (b"a: *x\n", "DOC-ALIAS", (1, 4), "no anchor &x", "begins with * needs quotes"),
        (b"a: &a [*a]\n", "DOC-ALIAS", (1, 8), "cannot contain itself", ""),
        (b"a: \xff\n", "DOC-ENCODING", (1, 4), "0xFF", "UTF-8"),
        ("ä: é\nb: ".encode() + b"\xe9", "DOC-ENCODING", (2, 4), "0xE9", "UTF-8"),
        ("a: 1".encode("utf-16"), "DOC-ENCODING", (1, 1), "UTF-16", "UTF-8"),
        (b"? [1]\n: 2\n", "DOC-KEY", (1, 3), "must be text", "quotes"),
        (b"~: 1\n", "DOC-KEY", (1, 1), "missing or null", "name"),
        (b"a: &x {}\n? *x\n: 1\n", "DOC-KEY", (2, 3), "must be text", "alias"),
        (b"<<: 3\n", "DOC-VALUE", (1, 5), "needs a mapping", "<<"),
        (b"", "DOC-COUNT", (1, 1), "no document", ""),
        (b"# only a comment\n", "DOC-COUNT", (1, 1), "no document", ""),
        (b"a: 1\n---\nb: 2\n", "DOC-COUNT", (3, 1), "second document", "own"),
    ],
)
def test_a_mistake_is_told_with_place_and_hint(
    text: bytes, code: str, place: tuple[int, int], message: str, hint: str
) -> None:
    (problem,) = problems_of(text)

    assert (problem.code, (problem.line, problem.column)) == (code, place)
    assert message in problem.message
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"a: {{ x }}\n", (1, 4)),
        (b"a: {{ x['b'] }} and more\n", (1, 4)),
        (b"b: 1\na:\n  - {{ x }}\n", (3, 5)),
        (b"a: {% if x %}1{% endif %}\n", (1, 4)),
        (b"a: {{ x | default('y') }}\nb: 1\n", (1, 4)),
        (b"{{ x }}\n", (1, 1)),
    ],
)
def test_an_unquoted_template_is_recognised(text: bytes, place: tuple[int, int]) -> None:
    (problem,) = problems_of(text)

    assert problem.code == "DOC-UNQUOTED-TEMPLATE"
    assert (problem.line, problem.column) == place
    assert problem.hint == 'Put the whole value in quotes: "{{ … }}".'


def test_a_repeated_key_is_refused_with_both_places() -> None:
    (problem,) = problems_of(b"steps:\n  - a: 1\n    b: 2\n    a: 3\n")

    assert problem.describe("flow.yaml") == (
        "flow.yaml:4:5: error: the key 'a' is repeated; it was first used in line 2, column 5 (steps[0].a)"
        " [DOC-DUPLICATE-KEY]\n    Keep one of the two, or rename one."
    )


@pytest.mark.parametrize("text", [b'200: a\n"200": b\n', b'{"a": 1, "a": 2}', b"a: 1\n'a': 2\n"])
def test_keys_are_the_same_when_their_text_is(text: bytes) -> None:
    (problem,) = problems_of(text)

    assert problem.code == "DOC-DUPLICATE-KEY"


def test_every_problem_is_told_at_once() -> None:
    problems = problems_of(b"a: .nan\nb: !x 1\nb: 2\nc: [1\n")

    assert [(problem.code, problem.line) for problem in problems] == [
        ("DOC-VALUE", 1),
        ("DOC-VALUE", 2),
        ("DOC-DUPLICATE-KEY", 3),
        ("DOC-SYNTAX", 5),
    ]


def test_a_hundred_problems_are_enough() -> None:
    assert len(problems_of(b"a: .nan\n" * 1000)) == 100


def test_long_names_are_shortened() -> None:
    (problem,) = problems_of(b"a: !" + b"x" * 5000 + b" 1\n")

    assert len(problem.message) < 100


def bomb() -> bytes:
    lines = [b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 12):
        aliases = b", ".join([b"*a%d" % (level - 1)] * 10)
        lines.append(b"a%d: &a%d [%s]" % (level, level, aliases))
    return b"\n".join(lines)


@pytest.mark.parametrize(
    ("text", "limits", "message"),
    [
        (bomb(), Limits(), "more than 1000000 keys and values"),
        (b"a: &a {x: 1}\nb: [" + b"{<<: *a}, " * 50 + b"]", Limits(nodes=100), "more than 100"),
        (b"[" * 100_000, Limits(), "nested deeper than 100"),
        (b"{" * 100_000, Limits(), ""),
        (b"- " * 100_000, Limits(), "nested deeper than 100"),
        (b"[" * 200 + b"]" * 200, Limits(), "nested deeper than 100"),
        (b"a: " + b"x" * 200, Limits(size=100), "larger than 100 bytes"),
        (b"--- 1\n" * 20, Limits(documents=10), "more than 10 documents"),
    ],
)
def test_hostile_texts_end_in_a_clear_error(text: bytes, limits: Limits, message: str) -> None:
    with pytest.raises(UnreadableText) as refused:
        read_documents(text, limits)

    assert message in refused.value.problems[-1].message


def test_aliases_of_long_texts_are_counted_as_if_they_were_written_out() -> None:
    """A hundred kilobytes, named twenty thousand times, are two gigabytes once anything is made of them."""
    text = b"a: &a " + b"x" * 100_000 + b"\nb: [" + b", ".join([b"*a"] * 20_000) + b"]\n"
    (problem,) = problems_of(text)

    assert (problem.code, problem.line) == ("DOC-LIMIT", 2)
    assert "characters, with aliases expanded" in problem.message


def test_texts_inside_of_what_an_alias_names_count_as_well() -> None:
    lines = [b"a0: &a0 {k: " + b"x" * 1000 + b"}"]
    for level in range(1, 5):
        lines.append(b"a%d: &a%d [%s]" % (level, level, b", ".join([b"*a%d" % (level - 1)] * 10)))
    (problem,) = problems_of(b"\n".join(lines), Limits(text=1_000_000))

    assert problem.code == "DOC-LIMIT"
