"""Invariant 29: every filter, method and operator pays in advance, by the size of its arguments."""

import tracemalloc
from typing import Any

import pytest
from jinja2 import Environment

from perdure.expressions.jinja import compile_text
from perdure.expressions.jinja.access import METHODS
from perdure.expressions.jinja.budget import Limits
from perdure.expressions.jinja.errors import LimitExceeded, TemplateError
from perdure.expressions.jinja.filters import filters

SMALL = Limits(steps=200_000, memory=2_000_000)
WIDE, PLAIN = "é,x" * 50_000, "a b," * 40_000
DATA: dict[str, Any] = {
    "wide": WIDE,
    "plain": PLAIN,
    "blank": " " * 300_000,
    "numbers": list(range(20_000)),
    "texts": [f"text {at}" for at in range(10_000)],
    "records": [{"x": {"x": at}, "name": f"n{at}"} for at in range(4_000)],
    "mapping": {f"key {at}": at for at in range(8_000)},
    "json": f"[{'[],' * 60_000}1]",
    "digits": "9" * 300_000,
}
ARGUMENTS = ["", "('x.x')", "(3)", "(wide)"]


def peak_of(text: str) -> int:
    """The most memory that a rendering with a small budget has held at once."""
    program = compile_text(text, SMALL)
    tracemalloc.start(1)
    try:
        program.render(DATA)
    except TemplateError:
        pass  # refused: what was made before that is what counts here
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(name for name in filters if not name.startswith("$")))
def test_a_filter_stays_within_the_budget(name: str) -> None:
    """Invariant 29."""
    for value in ("wide", "texts", "records"):
        for arguments in ARGUMENTS:
            try:
                peak = peak_of(f"{{{{ {value} | {name}{arguments} }}}}")
            except TemplateError:
                continue  # not a template
            assert peak < 3 * SMALL.memory, (value, arguments)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_stays_within_the_budget(name: str) -> None:
    """Invariant 29."""
    for value in ("wide", "blank", "mapping"):
        for arguments in ("", "','", "'é', 'yyyyyyyy'", "100000"):
            assert peak_of(f"{{{{ {value}.{name}({arguments}) }}}}") < 3 * SMALL.memory, (value, arguments)


@pytest.mark.parametrize(
    "text",
    [
        "{{ ('f' * 100000) | int(base=16) % 7 }}",
        "{{ ('9' * 100000) | float }}",
        "{% set n = ('f' * 1900) | int(base=16) %}{{ (n * n) // 7 }}",
        "{{ records | map(attribute='x' ~ '.x' * 5000) | list }}",
        "{{ records | sort(attribute='x' ~ ',x' * 5000) }}",
        "{{ plain.strip(wide) }}",
        "{{ ('a' * 300000).strip('bcdefghijklmnopqrstuvwxyz' * 400 + 'a') }}",
        "{{ ('a' * 300000) | trim('bcdefghijklmnopqrstuvwxyz' * 400 + 'a') }}",
        "{{ (wide * 3).split(',') }}",
        "{{ (wide * 3) | list }}",
        "{{ (plain * 3) | title }}",
        "{% for i in range(100000) %}{% set x = plain.upper() %}{% endfor %}",
        "{{ [numbers] * 1000000 }}",
        "{{ (json * 5) | fromjson }}",
    ],
)
def test_what_would_cost_too_much_is_refused_before_it_is_done(text: str) -> None:
    """Invariant 29."""
    program = compile_text(text, SMALL)
    tracemalloc.start(1)
    try:
        with pytest.raises(LimitExceeded):
            program.render(DATA)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * SMALL.memory


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("{{ range(150000) | list | length }}", 150_000),
        ("{{ range(150000) | list }}", list(range(150_000))),
        ("{{ numbers100 | sort(reverse=true) | first }}", 99_999),
        ("{{ numbers100 | map('string') | join(',') | length }}", 588_889),
        ("{% for i in numbers100 %}{{ i % 10 }}{% endfor %}", "0123456789" * 10_000),
        ("{{ numbers100[:50000] | tojson | fromjson | length }}", 50_000),
    ],
)
def test_sizes_that_contracts_name_pass(text: str, answer: Any) -> None:
    assert compile_text(text).render({"numbers100": list(range(100_000))}) == answer


def test_sorting_in_pieces_is_jinjas_sorting() -> None:
    rows = [{"a": at % 7, "b": f"{'xX'[at % 2]}{at % 13}"} for at in range(200)]
    for arguments in ("attribute='b'", "attribute='b,a'", "attribute='a', reverse=true", "true, true, 'b'"):
        ours = compile_text(f"{{{{ rows | sort({arguments}) }}}}").render({"rows": rows})
        assert ours == Environment().compile_expression(f"rows | sort({arguments})")(rows=rows)
    grouped = "{{ rows | groupby('b') | map(attribute='list') | map('length') | sum }}"
    assert compile_text(grouped).render({"rows": rows}) == 200
