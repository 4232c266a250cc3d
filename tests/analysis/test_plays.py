"""Random documents of each language, played on the kernel: what happens was foreseen (ANA-004, ANA-008)."""

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from perdure.analysis.soundness import judge
from perdure.dialects.playbook.plan.program import OnFailure
from perdure.dialects.playbook.state.events import JoinCompleted
from perdure.kernel import events as e
from perdure.kernel.codec import decode_turns
from perdure.kernel.dialect import Dialect
from perdure.kernel.graphs.net import Certainty, Defect, DefectKind
from perdure.kernel.graphs.run_trace import VisitStatus, trace_turns
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from tests.dialects.flow.documents import call, flow, returns
from tests.dialects.flow.test_properties import Author
from tests.dialects.flow.test_properties import world as flow_world
from tests.dialects.playbook.cases import tools
from tests.dialects.playbook.test_properties import document as playbook_document
from tests.dialects.playbook.world import World as PlaybookWorld
from tests.dialects.story.test_random import RandomWorld
from tests.dialects.story.test_random import document as story_document

WAITS = {DefectKind.NO_SENDER, DefectKind.UNBOUNDED_WAIT, DefectKind.DEADLOCK, DefectKind.UNDECIDED}
ENDLESS = {DefectKind.ENDLESS_LOOP, DefectKind.UNBOUNDED_TOKENS, DefectKind.UNBOUNDED_RETRY}


def _findings(dialect: Dialect, program: Any) -> list[Defect]:
    net = dialect.net(program)
    assert net is not None
    return judge(net, most_states=3_000)


def _visited(dialect: Dialect, program: Any, rows: Iterable[bytes]) -> set[str]:
    """The nodes that were used, as the graph of the document calls them."""
    trace = trace_turns(dialect.tracer(program), (turn for row in rows for turn in decode_turns(dialect, row)))
    return {visit.node for visit in trace.visits if visit.status is not VisitStatus.SKIPPED}


def _started(dialect: Dialect, rows: Iterable[bytes]) -> set[str]:
    """The steps of a Playbook that ran: a token that waits for others at a join has not started its step."""
    turns = [turn for row in rows for turn in decode_turns(dialect, row)]
    return {event["step"] for event in dialect.history(RunId("r"), turns) if event["event_type"] == "step.started"}


def _dead(findings: list[Defect]) -> list[Defect]:
    kinds = {DefectKind.DEAD_STEP, DefectKind.FINAL_NEVER, DefectKind.HANDLER_UNREACHABLE, DefectKind.ADMISSION_NEVER}
    return [defect for defect in findings if defect.kind in kinds]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(40))
def test_what_a_playbook_does_was_foreseen(seed: int) -> None:
    text = playbook_document(Random(seed))
    dialect = PlaybookWorld(text, work=tools()).dialect
    program = dialect.parse(text).program
    assert program is not None
    findings = _findings(dialect, program)
    certain = {defect.kind for defect in findings if defect.certainty is Certainty.WILL}
    for workload, order in ((0, None), (1, None), (1, seed)):
        world = PlaybookWorld(text, {"w": workload}, work=tools(), seed=order)
        world.settle()
        started = _started(dialect, world.rows)
        for defect in _dead(findings):
            assert defect.step not in started, defect
        joined = {event.step for event in world.events if isinstance(event, JoinCompleted)}
        assert not joined & {defect.step for defect in findings if defect.kind is DefectKind.JOIN_NEVER}
        if not world.is_over:
            assert {defect.kind for defect in findings} & WAITS, world.show()
        elif certain & ENDLESS and program.completion.on_failure not in (OnFailure.IGNORE, OnFailure.PARTIAL):
            assert world.show()["status"] != "success", "only a limit of the engine ends it"
        assert not (world.is_over and DefectKind.DEADLOCK in certain)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(40))
def test_what_a_story_does_was_foreseen(seed: int) -> None:
    random = Random(seed)
    document = story_document(random)
    for step in document["spec"]["steps"]:
        if step.get("type") in ("wait", "gate") and random.random() < 0.7:
            del step["with"]["timeout"]  # then it may wait for ever
    for order in (None, seed):
        world = RandomWorld(document, seed=order)
        world.settle()
        life = world.life
        findings = _findings(life.dialect, life.execution.program)
        visited = _visited(life.dialect, life.execution.program, life.rows)
        for defect in _dead(findings):
            assert defect.step not in visited, defect
        if not life.is_over:
            assert {defect.kind for defect in findings} & WAITS, world.show()["status"]
        certain = {defect.kind for defect in findings if defect.certainty is Certainty.WILL}
        assert not (life.is_over and DefectKind.DEADLOCK in certain), findings


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(40))
def test_what_a_flow_does_was_foreseen(seed: int) -> None:
    document = flow({"c": call({"flow": Author(seed).flow()}), "done": returns()})
    world = flow_world(document)
    program = world.dialect.parse(jsontext.encode(document)).program
    findings = _findings(world.dialect, program)
    world.run()
    visited = _visited(world.dialect, program, world.rows)

    for defect in findings:
        if defect.kind is DefectKind.DEAD_STEP:
            assert "/" + "/".join(str(part).replace("/", "~1") for part in defect.place) not in visited, defect
        assert not (defect.kind in ENDLESS and defect.certainty is Certainty.WILL)
    assert any(isinstance(event, e.RunEnded) for event in world.events)
