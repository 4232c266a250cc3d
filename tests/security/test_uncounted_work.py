"""Work of a turn that was not counted, so that it was done on the event loop: threat model, line 5; rule (e)."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.decision_threads import DecisionThreads
from perdure.expressions import bounded_calls, jinja
from perdure.expressions.cel import compile_program
from perdure.expressions.gotemplate.structure import Structure
from perdure.expressions.gotemplate.template import Template as GoTemplate
from perdure.expressions.jinja.program import Program, compile_text
from perdure.expressions.mwl import Template as FlowTemplate
from perdure.kernel.turn_budget import TurnBudget, TurnTooExpensive
from perdure.testing import World
from perdure.wiring import languages
from tests.dialects.flow.documents import flow, returns
from tests.dialects.story.world import story

Render = Callable[[dict[str, Any]], Any]


def go(value: Any) -> Render:
    return Structure(value).render


def cel(text: str) -> Render:
    return compile_program(text).evaluate


def of_flow(value: Any) -> Render:
    return FlowTemplate(value, frozenset({"x"})).evaluate


def of_playbook(value: Any) -> Render:
    return jinja.Template(value).render


WIDE = "ä" * 20_000
CASES: dict[str, tuple[Render, int]] = {
    "operands of `or`": (go("{{ range 50 }}{{ if or " + "0 " * 1_000 + "}}{{ end }}{{ end }}"), 100_000),
    "arguments of a function": (go("{{ range 50 }}{{ $x := add " + "1 " * 1_000 + "}}{{ end }}"), 100_000),
    "arguments of decimal arithmetic": (go("{{ $x := mulf " + "1.1 " * 1_000 + "}}"), 300_000),
    "conditions": (go("{{ range 100 }}{{ if 0 }}" + "{{ else if $.q }}" * 200 + "{{ end }}{{ end }}"), 100_000),
    "a byte of a long text": (go("{{ range 50 }}{{ $y := $.x[5] }}{{ end }}"), 300_000),
    "a long sum": (cel("1" + "+1" * 5_000), 30_000),
    "a long list": (cel("[1" + ",1" * 10_000 + "]"), 30_000),
    "many short expressions": (of_flow(["{{ 1 }}"] * 2_000), 50_000),
    "many short paths": (go(["{{ .x }}"] * 2_000), 50_000),
    "many short templates": (of_playbook(["{{ x }}"] * 2_000), 50_000),
    "literals beside an expression": (of_flow(["{{ 1 }}", *[1] * 20_000]), 50_000),
    "literals beside a Go template": (go(["{{ .x }}", *[1] * 20_000]), 50_000),
    "literals beside a template": (of_playbook(["{{ x }}", *[1] * 20_000]), 50_000),
    "a long template": (of_playbook(["{{ [" + "x," * 600 + "] | length }}"] * 20), 50_000),
    "comparisons without Jinja": (of_playbook(["{{ x == x }}"] * 2_000), 50_000),
    "a long text among others": (of_playbook("{{ (x ~ 'a') in [x ~ 'b'] * 1000 }}"), 50_000),
    "long lists that are equal": (of_playbook("{{ [1] * 60000 == [1] * 60000 }}"), 200_000),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_evaluated_is_counted(name: str) -> None:
    """Rule (e): what an expression may cost is counted, whatever it is made of."""
    render, least = CASES[name]
    with pytest.raises(TurnTooExpensive), TurnBudget(least):
        render({"x": WIDE})


def test_nothing_begins_when_the_budget_is_used_up() -> None:
    with TurnBudget(-1), pytest.raises(TurnTooExpensive):
        compile_program("1").evaluate({})


def test_a_turn_on_the_event_loop_pays_for_compiling() -> None:
    """Elsewhere what was accepted is compiled, however long it takes."""
    text = "a" * 3_000
    for compile_it in (
        lambda: GoTemplate("{{ .x }}" + text),
        lambda: compile_program(text),
        lambda: compile_text("{{ x }}" + text),
    ):
        with pytest.raises(TurnTooExpensive), TurnBudget(100_000, counts_compiling=True):
            compile_it()
        with TurnBudget(1):
            compile_it()


@pytest.mark.parametrize("key", ["x", "[x] * 3", "9 ** 500", "{'a': x}"])
def test_an_error_does_not_quote_data_that_were_used_as_a_key(key: str) -> None:
    """Nor is it searched for in the template, as a pattern of megabytes."""
    for text in (f"{{{{ y[{key}] }}}}", f"{{{{ y | attr({key}) }}}}", f"{{{{ [1].index({key}) }}}}"):
        program = compile_text(text)
        assert isinstance(program, Program)
        with pytest.raises(jinja.TemplateError) as caught:
            program.render({"x": "k" * 300_000, "y": {"a": 1}})
        assert len(caught.value.message) < 200


def test_long_lists_are_searched_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the results of one call."""
    monkeypatch.setattr(bounded_calls, "PARTS", 7)
    numbers = list(range(40)) * 2
    for text in (
        "x.count(3)",
        "x.index(39)",
        "x.index(3, 10)",
        "39 in x",
        "-1 in x",
        "x == x[:] ",
        "x != x[1:] + [39]",
    ):
        expected = eval(text, {"x": numbers})
        assert compile_text(f"{{{{ {text} }}}}").render({"x": numbers}) == expected, text
    for text in ("3.0 in range(5)", "2.5 in range(5)", "'3' in range(5)", "true in range(5)", "7 in range(0, 9, 2)"):
        expected = eval(text, {"true": True})
        assert compile_text(f"{{{{ {text} }}}}").render({}) == expected, text


def playbook(**start: Any) -> dict[str, Any]:
    steps = [{"step": "start", "tool": {"kind": "noop"}, **start}, {"step": "e", "tool": {"kind": "noop"}}]
    return {"apiVersion": "noetl.io/v10", "kind": "Playbook", "metadata": {"name": "p", "path": "p"}, "workflow": steps}


DOCUMENTS = {
    "an expression of 30 kB": flow({"r": returns("{{ 1" + "+1" * 15_000 + " }}")}),
    "many variables of one step": flow(
        {"a": {"action": "Pass", "assign": {f"v{at}": at for at in range(1_500)}, "next": "r"}, "r": returns(1)}
    ),
    "an output of 6 kB": story("steps: [{name: a, type: condition}]\noutput: {x: '{{ or " + "0 " * 3_000 + "}}'}"),
    "many codes of a catch": flow(
        {
            "a": {
                "action": "Call",
                "call": {"flow": {"entrypoint": "x", "steps": {"x": returns("{{ 1 / 0 }}")}}},
                "catch": [
                    {"match": {"codes": [f"X.C{at}" for at in range(20_000)]}, "next": "r"},
                    {"match": {"codes": ["*"]}, "next": "r"},
                ],
                "next": "r",
            },
            "r": returns(1),
        }
    ),
    "many arcs": playbook(next={"arcs": [{"step": "e", "when": False}] * 2_500}),
    "many assignments": playbook(set={f"ctx.v{at}": at for at in range(800)}),
}


@pytest.mark.sampled(2)
async def test_documents_of_many_parts_are_decided_in_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 29: the event loop goes on."""
    current: list[str] = []
    decided: list[str] = []
    decide = DecisionThreads.decide

    async def noted(threads: DecisionThreads, slot: Any, make: Any) -> Any:
        decided.append(current[-1])
        return await decide(threads, slot, make)

    monkeypatch.setattr(DecisionThreads, "decide", noted)
    async with World(tmp_path, spoken=languages()) as world:
        for name, document in DOCUMENTS.items():
            current.append(name)
            run = await world.start(document)
            await world.settle()
            await run.result()

    assert set(decided) == set(DOCUMENTS)


@pytest.mark.parametrize("text", ["y | format(1)", "[1, 2] | join(y)", "'a' | replace('a', y)"])
def test_large_values_do_not_become_text_in_one_call(text: str) -> None:
    """A list of 300,000 mappings became text in one call of 0.2 seconds."""
    made: list[int] = []

    class Shown(list[Any]):
        def __str__(self) -> str:
            made.append(1)
            return "shown"

    value = Shown([1] * 120_000)
    with contextlib.suppress(jinja.TemplateError):
        compile_text(f"{{{{ {text} }}}}").render({"y": value})
    assert made == []
