"""A program: compiled once, evaluated many times, the same everywhere."""

import subprocess
import sys

import pytest
from tests.expressions.cel.evaluation import fault_of, value_of

from perdure.expressions.cel import LimitExceeded, Limits, compile_program
from perdure.expressions.cel.program import Environment


def test_evaluating_changes_neither_program_nor_data() -> None:
    program = compile_program("xs.map(x, x + 1) + xs")
    data = {"xs": [1, 2]}

    assert program.evaluate(data) == program.evaluate(data) == [2, 3, 1, 2]
    assert data == {"xs": [1, 2]}


def test_maps_keep_the_order_in_which_they_were_written() -> None:
    assert list(value_of("{'z': 1, 'a': 2, 'm': 3}")) == ["z", "a", "m"]
    assert value_of("m.map(k, k)", m={"z": 1, "a": 2, "m": 3}) == ["z", "a", "m"]
    assert list(value_of("m.transformMap(k, v, v)", m={"z": 1, "a": 2})) == ["z", "a"]


_PROGRAM = """
from perdure.expressions.cel import compile_program
text = '''[{'b': 1, 'a': ['z', 'y']}.map(k, k), ['q', 'p', 'q', 'r'].distinct(), '%s'.format([{'y': 1, 'x': 2}]),
  ['c', 'a', 'b'].sort(), sets.equivalent(['x', 'y'], ['y', 'x']), 'ab'.matches('[a-f]+'), 'b' in ['a', 'b']]'''
print(compile_program(text).evaluate({}))
"""


def test_every_process_gives_the_same_bytes() -> None:
    """Neither the hash seed nor the order of a set may reach a value."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "12345")
    }

    assert len(outputs) == 1


def test_a_budget_runs_out_at_the_same_place_however_warm_the_caches_are() -> None:
    text = "'abababababababababab'.matches('(a|b)*a(a|b){20}c')"

    def needs(steps: int) -> bool:
        try:
            compile_program(text, environment=Environment(limits=Limits(steps=steps))).evaluate({})
        except LimitExceeded:
            return True
        return False

    cold = [steps for steps in range(0, 4000, 50) if needs(steps)]

    assert cold == [steps for steps in range(0, 4000, 50) if needs(steps)]
    assert cold


def test_a_filter_over_a_hundred_thousand_items_works() -> None:
    rows = [{"id": i, "name": f"row {i}", "ok": i % 2 == 0} for i in range(100_000)]

    assert len(value_of("rows.filter(r, r.ok && r.id >= 10 && r.name.startsWith('row'))", rows=rows)) == 49_995


def test_integers_in_data_are_ints_of_64_bits() -> None:
    assert value_of("x + 1", x=41) == 42
    assert fault_of("x", x=2**63).message == "a number in the data is too large for a 64-bit int"
    assert fault_of("m.x", m={"x": 10**400}).message == "a number in the data is too large for a 64-bit int"


def test_without_names_every_name_is_a_variable() -> None:
    assert value_of("anything.at.all", anything={"at": {"all": 1}}) == 1


@pytest.mark.parametrize(("container", "value"), [("", "root"), ("x", "x"), ("x.y", "x.y"), ("x.y.z", "x.y")])
def test_a_container_is_searched_from_the_inside_out(container: str, value: str) -> None:
    roots = {"v": "root", "x.v": "x", "x.y.v": "x.y"}

    assert compile_program("v", frozenset(roots), container=container).evaluate(roots) == value
