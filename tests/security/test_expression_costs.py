"""What expressions and templates of a hostile author cost, where results are not: threat model, lines 1 and 5."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from perdure.dialects.playbook.values.template_scopes import gather_all
from perdure.engine.decision_threads import LARGE, SMALL, THREADS, ProgramCache, done_aside
from perdure.expressions import bounded_calls, gotemplate, jinja
from perdure.expressions.cel import compile_program
from perdure.expressions.errors import EvaluationFault, LimitExceeded
from perdure.expressions.gotemplate.structure import FEW, Structure
from perdure.expressions.jinja import operators
from perdure.expressions.jinja import program as jinja_program
from perdure.expressions.mwl.expression import compile_expression
from perdure.expressions.mwl.results import ConstructBudget
from perdure.expressions.regex import price_of_compiling
from perdure.kernel.turn_budget import TurnBudget, TurnTooExpensive
from perdure.wiring import languages

LARGE_TEXT = "x" * 1_000_000


def test_templates_that_return_the_same_data_pay_for_each_copy() -> None:
    """A value of a few kilobytes may refer to data of megabytes a thousand times."""
    data = {"b": LARGE_TEXT, "l": [LARGE_TEXT]}
    for path in ("b", "l"):
        with pytest.raises(LimitExceeded, match="larger than"):
            Structure([f"{{{{ .inputs.{path} }}}}"] * 40).render({"inputs": data})
        with pytest.raises(jinja.LimitExceeded, match="bytes of values"):
            jinja.Template([f"{{{{ workload.{path} }}}}"] * 120).render({"workload": data})

    few = ["{{ .inputs.b }}"] * FEW
    assert Structure(few).render({"inputs": data}) == [LARGE_TEXT] * FEW
    assert jinja.Template(["{{ workload.b }}"] * 9).render({"workload": data}) == [LARGE_TEXT] * 9


def test_copies_of_data_count_as_work_of_the_turn() -> None:
    structure = Structure(["{{ .inputs.b }}"] * 9)
    with pytest.raises(TurnTooExpensive), TurnBudget(100_000):
        structure.render({"inputs": {"b": LARGE_TEXT}})


def test_an_error_does_not_quote_a_large_key() -> None:
    """It may be absorbed, again and again."""
    for text in ("{t: 1, t: 2}", "{}[t]", f"{{}}.{'a' * 5_000}", f"1.{'a' * 5_000}"):
        with pytest.raises(EvaluationFault) as caught:
            compile_program(text).evaluate({"t": LARGE_TEXT})
        assert len(caught.value.message) < 200


@pytest.mark.parametrize("call", ["rfind(part)", "rindex(part, 0, 90)", "rpartition(part)", "rsplit(part, 1)"])
def test_templates_search_for_long_parts_forwards(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, part = "ab" * 20 + "-" * 20 + "ba" * 20, "-" * 20
    searched: list[str] = []

    def spy(search: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            searched.append(arguments[1])
            return search(*arguments)

        return noted

    for name in ("rfind", "rsplit"):
        monkeypatch.setattr(bounded_calls, name, spy(getattr(bounded_calls, name)))

    result = jinja.compile_text(f"{{{{ text.{call} }}}}").render({"text": text, "part": part})

    expected = eval(f"text.{call}", {"text": text, "part": part})
    assert result == (list(expected) if isinstance(expected, tuple) else expected)
    assert searched == [part]


def test_large_values_become_the_same_text_in_pieces() -> None:
    value = {"a": [1, 2.5, "ä'\"", None, True, {"b": []}] * 2_000, "c": {}}

    assert jinja.compile_text("{{ x | string }}").render({"x": value}) == str(value)
    assert jinja.compile_text("{{ x ~ '!' }}").render({"x": value}) == f"{value}!"
    assert jinja.compile_text("[{{ x }}]").render({"x": value}) == f"[{value}]"
    assert jinja.compile_text("{{ x | join('-') }}").render({"x": value["a"]}) == "-".join(map(str, value["a"]))


def test_what_many_templates_read_is_joined_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other took the square of their number, on the event loop."""
    monkeypatch.setattr(jinja.TemplateReads, "__or__", lambda *_: pytest.fail("one by one"))
    template = jinja.Template([f"{{{{ ctx.a{at} + y.b }}}}" for at in range(20)] + ["{{ workload }}"])

    assert template.reads.members["ctx"] == frozenset(f"a{at}" for at in range(20))
    assert template.reads.members["workload"] is None
    assert gather_all({"y": lambda members: members}, [template, template]) == {"y": frozenset({"b"})}


def test_a_playbook_has_a_limited_number_of_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = "".join(f"    k{at}: '{{{{ ctx.a{at} + 1 }}}}'\n" for at in range(50))
    document = (
        "apiVersion: noetl.io/v10\nkind: Playbook\nmetadata: {name: p, path: p}\nworkflow:\n"
        f"- step: start\n  tool: {{kind: noop}}\n  set:\n{texts}"
    ).encode()
    assert not languages()["playbook"].parse(document).has_errors

    jinja_program._compile.cache_clear()
    monkeypatch.setattr(jinja_program, "MOST_PARTS", 500)
    problems = languages()["playbook"].parse(document).problems
    assert {"at most 500 parts" in problem.message for problem in problems} == {True}
    assert 10 < len(problems) < 50


async def test_what_is_small_does_not_wait_behind_what_is_large() -> None:
    done, begun = threading.Event(), list[int]()

    def wait() -> None:
        begun.append(1)
        done.wait(60)

    held = [asyncio.create_task(done_aside(LARGE + 1, wait)) for _ in range(THREADS)]
    try:
        async with asyncio.timeout(30):
            while len(begun) < THREADS:
                await asyncio.sleep(0.01)
            assert await done_aside(SMALL + 1, lambda: "checked") == "checked"
    finally:
        done.set()
        await asyncio.gather(*held)


def test_programs_are_kept_by_the_size_of_their_texts() -> None:
    cache: ProgramCache[str, str] = ProgramCache(3, 100)
    for name, size in (("a", 40), ("b", 40), ("c", 40)):
        cache.add(name, name.upper(), size)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (None, "B", "C")

    cache.add("large", "L", 1_000)
    assert len(cache) == 1 and cache.get("large") == "L"
    for name in "defg":
        cache.add(name, name, 1)
    assert [name in cache for name in ("large", "d", "e", "f", "g")] == [False, False, True, True, True]


class Held(dict[str, Any]):
    """Data of which it can be seen when they are gone."""


@contextmanager
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "render",
    [
        lambda data: compile_program("x.a || x.b || x.c").evaluate({"x": data}),
        lambda data: compile_program("[1, 2].exists(i, x.a == i)").evaluate({"x": data}),
        lambda data: compile_program("x.orValue(1)").evaluate({"x": data}),
        lambda data: compile_program("optional.none().or(x)").evaluate({"x": data}),
        lambda data: gotemplate.compile_template("{{ index .inputs 1 }}x").render({"inputs": data}),
        lambda data: gotemplate.compile_template("{{ nil | len }}{{ .inputs.x | 5 }}").render({"inputs": data}),
        lambda data: Structure(
            {"$bubuTemplate": "{{ .a }}", "$bubuTemplateVars": {"$bubuTemplate": "{{ .inputs.t }}"}}
        ).render({"inputs": data}),
        lambda data: jinja.compile_text("{{ x.a + 1 }}").render({"x": data}),
        lambda data: jinja.compile_text("{{ x | round }}").render({"x": data}),
    ],
)
def test_a_failure_does_not_keep_its_data(render: Callable[[Any], Any]) -> None:
    """Until Python looks for circular garbage, which it does not while much is computed."""
    data = Held(t="text")
    seen = weakref.ref(data)
    with uncollected():
        with pytest.raises(Exception) as caught:
            render(data)
        assert type(caught.value).__module__.startswith("perdure")
        del caught, data
        assert seen() is None


def test_a_text_that_is_formatted_is_paid_for_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three million percent signs stopped the event loop for more than a second."""
    percents = "%" * 10_000

    for template in ("{{ t % 1 }}", "{{ t | format(1) }}"):
        program = jinja.compile_text(template)
        monkeypatch.setattr(operators, "_FORMAT", None)  # nothing is looked for

        with pytest.raises(jinja.LimitExceeded):
            program.render({"t": "%" * 2_000_000})
        with pytest.raises(TurnTooExpensive), TurnBudget(100_000):
            program.render({"t": percents})


def test_layouts_of_dates_are_short_and_paid_for_by_their_letters() -> None:
    for template in ("{{ date .inputs.t 0 }}", "{{ toDate .inputs.t .inputs.t }}"):
        with pytest.raises(LimitExceeded, match="a layout has at most 4096"):
            gotemplate.compile_template(template).render({"inputs": {"t": "15" * 4_000}})
    with pytest.raises(TurnTooExpensive), TurnBudget(100_000):
        gotemplate.compile_template("{{ range 5 }}{{ date $.inputs.t 0 }}{{ end }}").render(
            {"inputs": {"t": "15" * 2_000}}
        )


def test_an_error_does_not_write_out_a_whole_value() -> None:
    with pytest.raises(EvaluationFault, match="a map has no key that is a list") as caught:
        gotemplate.compile_template("{{ dig .inputs.k 1 .inputs }}").render({"inputs": {"k": [LARGE_TEXT]}})
    assert len(str(caught.value)) < 200


class CountedName(str):
    """Counts how often it is looked up."""

    __slots__ = ()
    looked_up = 0

    def __hash__(self) -> int:
        CountedName.looked_up += 1
        return super().__hash__()


def test_maps_are_compared_no_further_than_their_first_difference() -> None:
    names = [CountedName(number) for number in range(1_000)]
    data = {"l": dict.fromkeys(names, 1), "r": dict.fromkeys(names, 2), "s": dict.fromkeys(names[:9], 1)}
    compare = gotemplate.compile_template("{{ list .inputs.l | has .inputs.r }}{{ list .inputs.l | has .inputs.s }}")
    CountedName.looked_up = 0

    assert compare.render({"inputs": data}) == "falsefalse"
    assert CountedName.looked_up < 10


def test_large_texts_are_escaped_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    translate = bounded_calls.translate

    def noted(text: str, table: Any) -> str:
        lengths.append(len(text))
        return translate(text, table)

    monkeypatch.setattr(bounded_calls, "translate", noted)

    assert gotemplate.compile_template("{{ html .inputs.t }}").render({"inputs": {"t": "<é>"}}) == "&lt;é&gt;"
    assert lengths == [3]


def test_a_pattern_that_is_too_long_is_refused_without_being_read_or_kept() -> None:
    """Ten million characters of one stopped the event loop for three seconds."""
    assert price_of_compiling(")" * 20_000) > 100 * price_of_compiling("(?i)" * 2_500_000) == 0
    with pytest.raises(EvaluationFault, match="longer than 20000 characters"):
        compile_program("'a'.matches(p)").evaluate({"p": "){9}" * 10_000})


@pytest.mark.parametrize("name", ["capitalize", "lower", "upper"])
def test_a_text_that_is_too_long_is_refused_before_it_is_created(name: str) -> None:
    def create(_: str) -> str:
        raise AssertionError("it is created")

    text = type("Text", (str,), {name: create})("é" * 1_100_000)

    with pytest.raises(jinja.LimitExceeded, match="longer than 1048576"):
        jinja.compile_text(f"{{{{ t | {name} }}}}").render({"t": text})


@pytest.mark.parametrize("text", ["sets.intersects(v, [])", "[v, v]"])
def test_lists_that_are_looked_at_are_paid_for(text: str) -> None:
    """A million parts took 0.1 seconds of the event loop, and nothing was counted."""
    with pytest.raises(TurnTooExpensive), TurnBudget(100_000):
        compile_expression(text, frozenset({"v"})).evaluate({"v": [0] * 40_000}, budget=ConstructBudget())
