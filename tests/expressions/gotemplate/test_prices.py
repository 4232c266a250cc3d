"""Invariant 29: every function of a template pays in advance, by the size of its arguments."""

import tracemalloc
from typing import Any

import pytest

from perdure.expressions.gotemplate import Environment, ExpressionError, LimitExceeded, Limits, compile_template
from perdure.expressions.gotemplate.functions import DETERMINISTIC

SMALL = Environment(limits=Limits(steps=40_000, size=400_000))
BYTES_OF_A_STEP = 100
DATA: dict[str, Any] = {
    "wide": "é,x" * 50_000,
    "plain": "a b," * 40_000,
    "numbers": list(range(10_000)),
    "texts": [f"text {at}" for at in range(8_000)],
    "mapping": {f"key {at}": at for at in range(5_000)},
    "json": f"[{'[],' * 40_000}1]",
}


def peak_of(text: str) -> int:
    template = compile_template(text, SMALL)
    tracemalloc.start(1)
    try:
        template.render(DATA)
    except ExpressionError:
        pass  # refused: what was made before that is what counts here
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(DETERMINISTIC.functions))
def test_a_function_makes_no_more_than_its_steps_stand_for(name: str) -> None:
    """Invariant 29."""
    for value in (".wide", ".texts", ".mapping", ".json"):
        for arguments in ("", '","', '"" "yyyy"', "100000", "3 4"):
            assert peak_of(f"{{{{ {name} {arguments} {value} }}}}") < BYTES_OF_A_STEP * SMALL.limits.steps, arguments


@pytest.mark.parametrize(
    "text",
    [
        "{{ trimAll .wide .plain }}",
        "{{ trimall .plain .wide }}",
        '{{ splitList "," .wide }}',
        '{{ splitList "" .wide }}',
        "{{ sortAlpha .texts }}",
        "{{ fromJson .json }}",
        "{{ uniq .texts }}",
    ],
)
def test_what_would_cost_too_much_is_refused_before_it_is_done(text: str) -> None:
    """Invariant 29."""
    template = compile_template(text, SMALL)
    tracemalloc.start(1)
    try:
        with pytest.raises(LimitExceeded):
            template.render(DATA)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < BYTES_OF_A_STEP * SMALL.limits.steps


def test_sizes_that_stories_have_pass() -> None:
    data = {"numbers": list(range(100_000)), "texts": [str(at) for at in range(50_000)]}

    assert compile_template("{{ len .numbers }}").render(data) == 100_000
    assert compile_template('{{ len (splitList "," (join "," .texts)) }}').render(data) == "50000"
    assert compile_template("{{ first (sortAlpha .texts) }}").render(data) == "0"
    assert compile_template("{{ $n := 0 }}{{ range .numbers }}{{ $n = . }}{{ end }}{{ $n }}").render(data) == "99999"
