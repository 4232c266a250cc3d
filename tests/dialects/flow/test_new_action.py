"""A new action is one file and one line in the registry: here both are in this test, and nothing else changes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

import perdure.dialects.flow
from perdure.dialects.flow import Flow
from perdure.dialects.flow.document import parts
from perdure.dialects.flow.document.cursor import Cursor, warning
from perdure.dialects.flow.plan.compiler import Compiler, Lexical
from perdure.dialects.flow.plan.program import AMBIENT, Clause, Field, pointer
from perdure.dialects.flow.run.move import Move
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import Step
from perdure.dialects.flow.state.failures import Fault, invalid
from perdure.dialects.flow.state.values import Result
from perdure.dialects.flow.steps import ACTIONS
from perdure.dialects.flow.steps.protocol import Action
from perdure.documents.cursor import DocumentFinding
from perdure.kernel.documents.problems import Problem, Severity
from perdure.kernel.graphs.graph import Edge
from perdure.kernel.json_values import jsontext
from perdure.kernel.turn import Turn
from perdure.wiring import Engine
from tests.dialects.flow.documents import flow, returns
from tests.dialects.flow.world import World


class GuardFields(msgspec.Struct, frozen=True):
    condition: Field
    otherwise: Clause

    def all_fields(self) -> Any:
        return (self.condition, self.otherwise)


class GuardAction(Action):
    """Goes on where a condition holds, and elsewhere where it does not."""

    name = "Guard"
    members: ClassVar = {"condition": parts.boolean, "otherwise": parts.next_step, "next": parts.next_step}
    required = ("condition", "otherwise", "next")

    def check(self, cursor: Cursor) -> None:
        if "next" in cursor.value and cursor.value.get("otherwise") == cursor.value["next"]:
            cursor.problem("GUARD", "both ways of a Guard lead to the same Step")

    def compile(self, compiler: Compiler, raw: dict[str, Any], site: str, lexical: Lexical) -> GuardFields:
        condition = Field(raw["condition"], AMBIENT | {"step"}, pointer(site, "condition"))
        return GuardFields(condition, Clause(raw["otherwise"], None, {}))

    def advise(self, fields: GuardFields) -> Iterator[DocumentFinding]:
        if fields.condition.is_literal:
            yield warning("GUARD", "this condition never changes", fields.condition.site)

    def advance(self, move: Move, step: Step) -> None:
        program = move.step_program(step)
        scope = move.step_scope(step, move.now)
        try:
            holds = scope.value(program.fields.condition)
            if not isinstance(holds, bool):
                raise invalid("'condition' must be a boolean", program.fields.condition.site, holds)
        except Fault as fault:
            move.resolve_failed(fault.envelope)
        else:
            following = program.next if holds else program.fields.otherwise.next
            move.emit(f.StepLeft(move.number, following, move.now, move.next_step))

    def show_results(self, turn: Turn, step: Step, result: Result | None) -> dict[str, Any]:
        return {"guarded": True}

    def branches(self, fields: GuardFields) -> list[tuple[str, Clause]]:
        return [("otherwise", fields.otherwise)]

    def notes(self, fields: GuardFields) -> tuple[str, ...]:
        return ("guards",)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ACTIONS, "Guard", GuardAction())


def guarded(condition: Any, **members: Any) -> dict[str, Any]:
    guard = {"action": "Guard", "condition": condition, "next": "large", "otherwise": "small", **members}
    return flow({"guard": guard, "large": returns("large"), "small": returns("small")})


def problems(document: dict[str, Any]) -> list[Problem]:
    return list(Flow().parse(jsontext.encode(document)).problems)


SIZE = "{{ step.guarded && step.input > 5 }}"


def test_its_members_are_checked() -> None:
    assert problems(guarded(SIZE)) == []

    document = guarded(3, next="small", calls=[])
    document["steps"]["guard"].pop("otherwise")
    assert sorted((problem.code, problem.path) for problem in problems(document)) == [
        ("MWL-022", "steps.guard"),
        ("MWL-022", "steps.guard.condition"),
        ("MWL-027", "steps.guard.calls"),
    ]
    assert [problem.code for problem in problems(guarded(SIZE, otherwise="large"))] == ["GUARD"]
    assert [problem.code for problem in problems(guarded(SIZE, otherwise="nowhere"))] == ["MWL-024"]


def test_other_actions_know_its_members_as_those_of_another() -> None:
    document = flow({"first": {"action": "Pass", "otherwise": "done", "next": "done"}, "done": returns()})

    assert [(problem.code, problem.path) for problem in problems(document)] == [("MWL-027", "steps.first.otherwise")]


def test_check_warns_of_what_it_advises() -> None:
    (problem,) = problems(guarded(True))

    assert (problem.code, problem.path, problem.severity) == ("GUARD", "steps.guard.condition", Severity.WARNING)


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize(("size", "result"), [(9, "large"), (1, "small")])
def test_it_runs(size: int, result: str, crash: bool) -> None:
    assert World(guarded(SIZE), size, crash=crash).run() == {"type": "success", "value": result}


def test_its_failure_is_a_failure_of_the_flow() -> None:
    assert World(guarded("{{ step.input }}"), "no boolean").run()["type"] == "error"


async def test_it_runs_in_an_engine(tmp_path: Path) -> None:
    async with Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        handle = await engine.start(guarded(SIZE), 9)
        await engine.wait(handle.id)

        assert await handle.show() == {"type": "success", "value": "large"}


def test_it_is_drawn() -> None:
    language = Flow()
    graph = language.graph(language.load(jsontext.encode(guarded(SIZE))))

    (node,) = [node for node in graph.nodes if node.label == "guard"]
    assert (node.kind, node.notes) == ("Guard", ("guards",))
    assert [edge for edge in graph.edges if edge.source == node.id] == [
        Edge(node.id, "/steps/large"),
        Edge(node.id, "/steps/small", "otherwise"),
    ]


def test_no_other_package_names_an_action() -> None:
    root = Path(perdure.dialects.flow.__file__).parent
    name = re.compile(rf'"(?:{"|".join(ACTIONS)})"')
    naming = [str(file.relative_to(root)) for file in sorted(root.rglob("*.py")) if name.search(file.read_text())]

    assert [file for file in naming if not file.startswith("steps/")] == []
