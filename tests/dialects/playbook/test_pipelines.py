"""Pipelines that leave the server: a worker applies the rules of its tasks as the server would (SRV-034)."""

from types import MappingProxyType
from typing import Any

import pytest

from perdure.kernel import inputs as i
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant
from perdure.kernel.outcomes import Succeeded
from tests.dialects.playbook.cases import VARIABLES, Case, all_cases, steer, tools
from tests.dialects.playbook.world import World, playbook
from tests.dialects.universe import Life


class WithWorkers(World):
    """Tasks are done by workers of a pool, which apply the rules and report what they made of each outcome.

    With `judges=False` they report the outcome alone, and the rules are applied by the server.
    """

    routes = MappingProxyType(dict.fromkeys(("say", "flaky", "slow", "fail", "echo"), "gpu"))

    def __init__(self, *about: Any, judges: bool = True, **more: Any) -> None:
        self.judges = judges
        self.judged: list[Any] = []
        super().__init__(*about, **more)

    def result_of(self, life: Life, result: i.TaskResult, after: Instant) -> i.TaskResult:
        pipeline = life.pipelines.get(result.task)
        if pipeline is None:
            return result
        outcome = result.outcome
        if isinstance(outcome, Succeeded):
            outcome = Succeeded(jsontext.encode(self.data(outcome.value)))
        judged = None
        if self.judges:
            judged = life.dialect.apply_rules(
                life.text, jsontext.decode(pipeline.body), outcome, self.now, self.now + after
            )
            self.judged.append(judged)
        text = None if judged is None else jsontext.encode(judged)
        about = (result.task, result.attempt, result.delivery, result.outcome, pipeline.number, "lease", 1, b"")
        return i.PipelineResult(*about, text)


def play(case: Case, **more: Any) -> WithWorkers:
    world = WithWorkers(case.document, case.workload, work=tools(), children=case.children, **more)
    steer(world, case)
    return world


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_a_worker_makes_of_every_outcome_what_the_server_makes_of_it(case: Case) -> None:
    """SRV-034: the same events, in the same order, whoever applies the rules."""
    by_workers = play(case, variables=VARIABLES)

    assert by_workers.events == play(case, judges=False, variables=VARIABLES).events


PAGES = playbook("""
workflow:
  - step: s
    loop: {in: [1, 2], iterator: n, spec: {mode: parallel, reduce: {total: sum}}}
    tool:
      - get:
          kind: say
          value: "{{ iter.page | default(0) }}"
          spec:
            policy:
              rules:
                - when: "{{ outcome.result < iter.n }}"
                  then: {do: jump, to: get, set_iter: {page: "{{ outcome.result + 1 }}"}}
                - {when: "{{ outcome.result == 1 }}", then: {do: break, set_ctx: {total: "{{ outcome.result }}"}}}
                - {else: {then: {do: continue, set_ctx: {total: 10}}}}
      - end:
          kind: fail
          spec: {policy: {rules: [{when: "{{ outcome.error.kind == 'unknown' }}", then: {do: continue}}]}}
""")


def test_every_directive_and_patch_is_applied_by_workers() -> None:
    by_workers = WithWorkers(PAGES, work=tools())
    by_workers.settle()
    by_server = WithWorkers(PAGES, work=tools(), judges=False)
    by_server.settle()

    judged = [judgement for judgement in by_workers.judged if judgement is not None]
    assert len(judged) == len(by_workers.judged) == 6
    assert {judgement["directive"] for judgement in judged} == {"continue", "jump", "break"}
    assert by_workers.show()["ctx"] == {"total": 11}
    assert by_workers.events == by_server.events
    assert {
        judgement["directive"] for case in all_cases() for judgement in play(case).judged if judgement is not None
    } >= {
        "continue",
        "retry",
        "fail",
    }, "the cases above compare more than the server with itself"


def test_a_worker_reads_ctx_as_it_was_when_it_got_the_task() -> None:
    """SRV-034: what others change in `ctx` comes with the next report, never in the middle of a task."""
    text = playbook("""
workflow:
  - step: s
    tool:
      - first:
          kind: slow
          seconds: 5
          spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: "{{ ctx.x | default('old') }}"}}}}]}}
      - second: {kind: say, value: "{{ ctx.x }}"}
""")
    seen = {}
    for judges in (True, False):
        world = WithWorkers(text, work=tools(), judges=judges)
        world.pass_time(1)
        world.patch({"x": "new"})
        world.settle()
        seen[judges] = world.show()["ctx"]["seen"], world.performed[-1][1]

    assert seen == {True: ("old", {"value": "new"}), False: ("new", {"value": "new"})}


def test_a_pipeline_with_much_to_read_leaves_task_by_task() -> None:
    """What goes with a task has a limit."""
    text = playbook("""
workflow:
  - {step: s, tool: [{first: {kind: say, value: 1}}, {second: {kind: say, value: 2}}]}
""")
    small, large = WithWorkers(text, work=tools()), WithWorkers(text, work=tools())
    large.patch({"a": "x" * 40_000, "b": "x" * 40_000})
    for world in (small, large):
        world.settle()

    assert (len(small.life.pipelines), len(large.life.pipelines)) == (2, 0)
    assert small.show()["status"] == large.show()["status"] == "success"
