"""What a Flow can call: everything in the registry, other documents, and custom middleware."""

from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.flow.middleware import KNOWN, register
from perdure.dialects.flow.middleware.protocol import Again, Emit, Middleware, MiddlewareDirective, Pass, PhaseContext
from perdure.dialects.flow.plan.schemas import Parameters
from perdure.dialects.flow.views.result_comparison import differences
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.services.flow.conformance import read_suite
from perdure.testing import FakeClock
from perdure.testing import World as EngineWorld
from perdure.wiring import Engine
from tests.dialects.flow.documents import call, codes, flow, inner, mock, returns, task
from tests.dialects.flow.suite import OWN
from tests.dialects.flow.world import World

CATCH = [{"match": {"codes": ["*"]}, "next": "caught"}]


async def result_of(tmp_path: Path, document: dict[str, Any], input: Any = None) -> Any:
    async with Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        handle = await engine.start(document, input)
        await engine.wait(handle.id)
        return await handle.show()


async def test_a_registered_provider_is_called_by_its_uri(tmp_path: Path) -> None:
    document = flow({"c": call(task("echo")), "done": returns()})

    assert await result_of(tmp_path, document, {"a": [1, None]}) == {"type": "success", "value": {"a": [1, None]}}


async def test_a_database_is_a_provider_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = {"command": "CREATE TABLE t(a UNIQUE); INSERT INTO t VALUES (1)", "database": f"{tmp_path}/t.db"}
    query = {"query": "SELECT a + ? AS b FROM t", "params": ["{{ 1 + 1 }}"], "database": f"{tmp_path}/t.db"}
    steps = {"c": call(task("sqlite", **table), next="d"), "d": call(task("sqlite", **query)), "done": returns()}
    again = flow({"c": call(task("sqlite", **{**table, "command": "INSERT INTO t VALUES (1)"})), "done": returns()})

    result = await result_of(tmp_path, flow(steps))
    assert result["value"] == {"rows": [{"b": 3}], "row_count": 1, "columns": ["b"]}
    assert "Provider.Call.Sqlite.Constraint" in codes(await result_of(tmp_path, again))


async def test_arguments_are_validated_before_the_provider_runs(tmp_path: Path) -> None:
    """MWL-253 MWL-071"""
    document = flow({"c": call(task("shell", bogus=1)), "done": returns()})

    assert codes(await result_of(tmp_path, document)) == ["System.ParameterValidationFailed"]


async def test_a_failing_provider_is_a_failure_that_catch_and_retry_see(tmp_path: Path) -> None:
    document = flow(
        {
            "c": call(task("shell", script="exit 3"), catch=CATCH),
            "caught": returns("{{ failure }}"),
            "done": returns(),
        }
    )

    failure = (await result_of(tmp_path, document))["value"]

    assert failure["type"] == "error"
    assert failure["code"].startswith("Provider.Call.Shell.")


async def test_another_document_runs_as_a_child(tmp_path: Path) -> None:
    child = flow(
        {"r": returns("{{ [step.input, vars.n] }}")},
        parameters={"type": "object", "properties": {"n": {"default": 0}}},
    )
    target = {**task("run", document=text_of(child), arguments={"n": 5}), "input": "given"}
    document = flow({"c": call(target), "done": returns()})

    assert await result_of(tmp_path, document) == {"type": "success", "value": ["given", 5]}


async def test_a_child_that_fails_is_an_ordinary_failure(tmp_path: Path) -> None:
    child = flow({"r": {"action": "Raise", "result": {"code": "Child.Failed", "message": "m", "details": {"d": 1}}}})
    document = flow(
        {
            "c": call(task("run", document=text_of(child)), catch=CATCH),
            "caught": returns("{{ failure }}"),
            "done": returns(),
        }
    )

    failure = (await result_of(tmp_path, document))["value"]

    assert failure == {"type": "error", "code": "Child.Failed", "message": "m", "details": {"d": 1}}


def text_of(document: dict[str, Any]) -> str:
    """As text: in an object the calling Flow would evaluate the expressions itself (MWL-104)."""
    return jsontext.encode(document).decode()


class Cache(Middleware):
    """Substitutes a Result at entry when it is told one, and doubles what comes up otherwise."""

    uri = "mwl:provider.middleware/tests/cache/v1"
    parameters = {"onEntry": Parameters({"type": "object", "properties": {"hit": {}}})}  # noqa: RUF012
    metadata = {"runs": 0}  # noqa: RUF012

    def on_entry(self, context: PhaseContext) -> MiddlewareDirective:
        assert context.arguments is not None
        if "hit" in context.arguments:
            return Emit(result={"type": "success", "value": context.arguments["hit"]})
        return Pass(becomes={"runs": 1})

    def on_success(self, context: PhaseContext) -> MiddlewareDirective:
        assert context.result is not None
        if context.metadata["runs"] < 3:
            return Again(becomes={"runs": context.metadata["runs"] + 1})
        return Emit(result={"type": "success", "value": [context.result["value"], context.metadata["runs"]]})


def test_a_middleware_of_ones_own_can_substitute_and_run_again() -> None:
    """MWL-380: control and transform actions are answers of a pure function."""
    register(Cache())
    try:
        echo = {"provider": "mwl:provider.call/mwl/mock/v1", "input": "{{ call.input + 'x' }}"}
        entry: dict[str, Any] = {"provider": Cache.uri}
        missed = flow({"c": call(echo, middleware=[entry]), "done": returns()})
        hit = flow({"c": call(echo, middleware=[{**entry, "onEntry": {"with": {"hit": 7}}}]), "done": returns()})

        assert World(missed, "in", crash=True).run()["value"] == ["inxxx", 3]
        assert World(hit, "in", crash=True).run()["value"] == 7
    finally:
        del KNOWN[Cache.uri]


class Careless(Middleware):
    uri = "mwl:provider.middleware/tests/care-less/v1"

    def on_success(self, context: PhaseContext) -> MiddlewareDirective:
        raise ZeroDivisionError("oops")


def test_an_exception_in_ones_own_middleware_is_a_failure_of_its_phase() -> None:
    register(Careless())
    try:
        document = flow({"c": call(mock(), middleware=[{"provider": Careless.uri}]), "done": returns()})

        assert codes(World(document, crash=True).run()) == ["Provider.Middleware.CareLess.Errors.ZeroDivisionError"]
    finally:
        del KNOWN[Careless.uri]


@pytest.mark.parametrize(
    "name", ["h02-interrupted-flow", "h07-gather-under-bound", "e11-cancelled-flow-unwinds", "g12-delays"]
)
async def test_a_case_survives_a_crash_of_the_real_engine_at_every_moment_it_waits(name: str, tmp_path: Path) -> None:
    (scenario,) = read_suite([OWN / name]).scenarios
    async with EngineWorld(tmp_path) as world:
        run = await world.start(jsontext.decode(scenario.definition), scenario.input)
        while await run.status() in ("running", "waiting"):
            await world.crash()
            await world.boot()
            due = world.clock.next_alarm()
            assert due is not None
            await world.advance((due - world.clock.now()) / SECOND)

        assert list(differences(scenario.expected, await run.show())) == []


async def test_a_live_run_shows_where_it_is(tmp_path: Path) -> None:
    document = flow(
        {"c": call({"flow": "sub"}), "done": returns()},
        flows={"sub": inner({"s": {"action": "Sleep", "for": "PT1H", "next": "r"}, "r": returns()})},
    )
    async with Engine(f"sqlite:///{tmp_path}/runs.db", clock=FakeClock()) as engine:
        handle = await engine.start(document)
        view = await handle.show()

        assert view["type"] in ("running", "waiting")
        assert [frame["flow"] for frame in view["frames"]] == ["/", "/flows/sub"]
        await handle.cancel("enough")
        await engine.wait(handle.id)
        assert await handle.show() == {"type": "cancellation", "code": "System.Cancelled", "message": "enough"}


async def test_a_fork_goes_on_from_a_moment_of_the_past(tmp_path: Path) -> None:
    document = flow(
        {
            "c": call(task("echo", value="past"), "s", assign={"past": "{{ step.result.value }}"}),
            "s": {"action": "Sleep", "for": "PT1H", "next": "done"},
            "done": returns("{{ vars.past }}"),
        }
    )
    async with EngineWorld(tmp_path, functions={"echo": lambda arguments, task_input: arguments["value"]}) as world:
        run = await world.start(document)
        assert world.engine is not None
        forked = await world.engine.fork(run.id)
        await world.advance(3_600)

        assert await run.result() == await forked.result() == "past"
