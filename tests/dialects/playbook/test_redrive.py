"""A redriven Playbook goes on with the step-runs that failed, or where it was stopped; what had finished stays."""

from typing import Any

import pytest

from perdure.dialects.playbook.views.history import history
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.codec import decode_turns
from perdure.kernel.execution import Limits
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Failed
from tests.dialects.differences import differences
from tests.dialects.playbook import cases
from tests.dialects.playbook.world import Answer, World, playbook
from tests.sampling import Sample

SHOWN = ("status", "code", "ctx", "branches", "stranded", "result")
"""What a redrive does not change: how often was tried, and in which order, is another matter."""


COUNT_CALLS = ("loop-fanout", "pipeline-retry-until-it-works", "secrets-task-feeds-later-tasks")
"""Their tasks answer by how often they were called, which a redrive changes."""


class Tasks:
    """A tool that remembers its calls by `n`; those in `broken` fail until they are mended."""

    def __init__(self, *broken: str) -> None:
        self.made: list[str] = []
        self.broken = set(broken)
        self.after = 0.0

    def __call__(self, arguments: dict[str, Any]) -> Any:
        name = str(arguments["n"])
        self.made.append(name)
        if name in self.broken:
            return Failed("server_error", f"{name} is broken")
        return Answer(f"{name} done", after=int(self.after * SECOND))

    def mend(self) -> list[str]:
        self.broken.clear()
        made, self.made = self.made, []
        return made


def start(workflow: str, tasks: Tasks, *, head: str = "", **options: Any) -> World:
    return World(playbook(f"{head}\nworkflow: {workflow}"), work={"work": tasks}, crash=True, **options)


def redrive(world: World) -> Any:
    world.tell(i.Reopen())
    return world.run()


def step(name: str, *then: str) -> str:
    arcs = ", ".join(f"{{step: {target}}}" for target in then)
    following = f", next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}" if then else ""
    return f"{{step: {name}, tool: {{kind: work, n: {name}}}{following}}}"


ERROR_ENDS = "'{{ event.name == \"step.done\" }}'"


def guarded(name: str, then: str) -> str:
    return f"{{step: {name}, tool: {{kind: work, n: {name}}}, next: {{arcs: [{{step: {then}, when: {ERROR_ENDS}}}]}}}}"


def test_only_the_step_that_failed_is_done_again() -> None:
    tasks = Tasks("b")
    world = start(f"[{guarded('a', 'b')}, {guarded('b', 'c')}, {step('c')}]", tasks)
    assert world.run()["status"] == "failed"
    assert tasks.mend() == ["a", "b"]

    shown = redrive(world)
    assert (shown["status"], shown["failures"]) == ("success", [])
    assert tasks.made == ["b", "c"]
    turns = [turn for row in world.rows for turn in decode_turns(world.dialect, row)]
    names = [event["event_type"] for event in history("run", turns)]
    assert names.count("playbook.redriven") == 1
    assert names[names.index("playbook.redriven") :].count("step.done") == 2
    assert shown["steps"]["b"] | {"task_runs": 0, "task_attempts": 0, "iterations": 0} == {
        "runs": 1,
        "done": 1,
        "failed": 0,
        "task_runs": 0,
        "task_attempts": 0,
        "iterations": 0,
    }


def test_a_pipeline_goes_on_at_the_task_that_failed() -> None:
    tasks = Tasks("two")
    tools = "[{one: {kind: work, n: one}}, {two: {kind: work, n: two}}, {three: {kind: work, n: three}}]"
    world = start(f"[{{step: s, tool: {tools}}}]", tasks)
    assert world.run()["status"] == "failed"
    assert tasks.mend() == ["one", "two"]
    assert redrive(world)["status"] == "success"
    assert tasks.made == ["two", "three"]
    paths = [event.path for event in world.events if isinstance(event, e.TaskScheduled)]
    assert paths[1] == paths[2], "so completed effects of it are found again"


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_only_iterations_that_failed_or_never_ran_are_made(mode: str) -> None:
    tasks = Tasks("1", "3")
    spec = f"{{mode: {mode}}}" if mode == "sequential" else "{mode: parallel, max_in_flight: 2}"
    workflow = (
        f"[{{step: s, loop: {{in: '{{{{ [0, 1, 2, 3, 4] }}}}', iterator: n, spec: {spec}}},"
        " tool: {kind: work, n: '{{ iter.n }}'}}]"
    )
    world = start(workflow, tasks)
    assert world.run()["status"] == "failed"
    done = {name for name in tasks.mend() if name not in ("1", "3")}
    shown = redrive(world)
    assert shown["status"] == "success", shown
    assert sorted(tasks.made) == sorted({"0", "1", "2", "3", "4"} - done)


@pytest.mark.parametrize("is_joined", [False, True])
def test_other_branches_are_not_touched_and_a_join_still_completes(is_joined: bool) -> None:
    tasks = Tasks("c")
    last = step("d").replace("{step: d,", "{step: d, spec: {join: {from: [b, c]}},") if is_joined else step("d")
    world = start(f"[{step('a', 'b', 'c')}, {guarded('b', 'd')}, {guarded('c', 'd')}, {last}]", tasks)
    assert world.run()["status"] == "failed"
    assert tasks.mend() == ["a", "b", "c"] + ["d"] * (not is_joined)
    shown = redrive(world)
    assert (shown["status"], shown["branches"]["failed"]) == ("success", 0)
    assert tasks.made == ["c", "d"]


def test_fail_fast_gives_back_what_it_stopped() -> None:
    tasks = Tasks("b")
    head = "executor: {spec: {policy: {completion: {on_failure: fail_fast}}}}"
    workflow = f"[{step('a', 'b', 'c')}, {guarded('b', 'x')}, {guarded('c', 'y')}, {step('x')}, {step('y')}]"
    world = start(workflow, tasks, head=head)
    shown = world.run()
    assert shown["status"] == "failed", shown
    tasks.mend()
    shown = redrive(world)
    assert shown["status"] == "success", shown
    assert "a" not in tasks.made and {"b", "x", "y"} <= set(tasks.made)


def test_what_is_not_to_be_redriven_is_refused() -> None:
    tasks = Tasks()
    world = start(f"[{step('a')}]", tasks)
    world.run()
    refusal = world.dialect.refusal(world.execution, i.Reopen())
    assert refusal is not None and "nothing to redrive" in refusal
    refusal = world.dialect.refusal(world.execution, i.Reopen(b'{"step": "a"}'))
    assert refusal is not None and "only for a Story" in refusal


@pytest.mark.parametrize(
    "case", [case for case in cases.all_cases() if case.name not in COUNT_CALLS], ids=lambda case: case.name
)
def test_a_scenario_cancelled_at_any_commit_and_redriven_ends_as_expected(case: cases.Case, sample: Sample) -> None:
    calm = _world(case)
    _play(calm, case)
    expected = {name: value for name, value in case.expected.items() if name in SHOWN}
    if calm.show()["status"] == "cancelled":
        return
    for at in sample.take(range(1, len(calm.rows))):
        world = _world(case)
        while len(world.rows) < at and world.queue and not world.is_over:
            world._next()
        if not world.is_over:
            world.tell(i.Cancel("stop"))
        if not world.is_over or world.show()["status"] != "cancelled":
            continue
        if world.dialect.refusal(world.execution, i.Reopen()) is not None:
            assert not world.execution.body.begun
            continue
        world.tell(i.Reopen())
        _play(world, case)
        assert list(differences(expected, world.show())) == [], f"cancelled at commit {at}"


def _world(case: cases.Case) -> World:
    return World(
        case.document,
        case.workload,
        work=cases.tools(),
        children=case.children,
        crash=True,
        limits=Limits(),
        variables=cases.VARIABLES,
    )


def _play(world: World, case: cases.Case) -> None:
    world.settle()
    for message in case.steer:
        if world.is_over:
            break
        world.tell(cases.input_of(message))
        world.settle()
