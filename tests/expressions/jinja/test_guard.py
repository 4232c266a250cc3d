"""Guards: what may be one, and what counts as true (PBK-029, PBK-149)."""

from typing import Any

import pytest

from perdure.expressions.jinja import Guard, SyntaxFault, is_true


@pytest.mark.parametrize(
    ("value", "truth"),
    [
        (True, True),
        (False, False),
        (None, False),
        (0, False),
        (0.0, False),
        (2, True),
        (-0.5, True),
        ("", False),
        ("  ", False),
        ("false", False),
        (" FALSE ", False),
        ("0", False),
        ("No", False),
        ("none", False),
        ("NULL", False),
        ("off", False),
        ("f", True),
        ("0.0", True),
        ("yes", True),
        ([], False),
        ({}, False),
        ([0], True),
        ({"a": None}, True),
    ],
)
def test_truth(value: Any, truth: bool) -> None:
    assert is_true(value) is truth
    assert Guard("{{ x }}").holds({"x": value}) is truth


@pytest.mark.parametrize(("source", "holds"), [(True, True), (False, False)])
def test_a_boolean_is_a_guard(source: bool, holds: bool) -> None:
    guard = Guard(source)

    assert guard.holds({}) is holds
    assert guard.reads.names == frozenset()


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("{{ event.name == 'step.done' }}", True),
        ("{{ event.name == 'step.done' and ctx.n > 3 }}", True),
        ("{{ 1 < ctx.n < 4 }}", False),
        ("{{ 1 < ctx.n <= 4 != 5 in [5] }}", True),
        ("{{ 5 < ctx.n < 'x' }}", False),
        ("{% if ctx.n == 4 %}true{% else %}false{% endif %}", True),
        ("{{ ctx.n == 5 }} ", False),
        ("  {{ false }}  ", False),
        ("-{{ false }}", True),
    ],
)
def test_a_template_is_a_guard(text: str, holds: bool) -> None:
    assert Guard(text).holds({"event": {"name": "step.done"}, "ctx": {"n": 4}}) is holds


@pytest.mark.parametrize("text", ["ctx.n > 3", "true", "", "{# only a comment #}"])
def test_plain_text_is_none(text: str) -> None:
    """PBK-029: it would always be true."""
    with pytest.raises(SyntaxFault, match="plain text"):
        Guard(text)
