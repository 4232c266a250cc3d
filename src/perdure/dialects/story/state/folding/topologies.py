"""The topology of a streaming Story: its start, its workers, its hooks, and the sub-runs of its packets."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.story.state import stream_events
from perdure.dialects.story.state.body import RUNS_KEPT, Body, Handoff, PacketRun, TopologyState
from perdure.dialects.story.state.folding.runs import STARTING
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.kernel import events as e
from perdure.kernel.events import Event
from perdure.kernel.outcomes import Failed, Succeeded

QUEUED = "queued"
READY = "Realtime runtime is ready"  # STR-023
REPLACING = "Handing over: another worker starts first"
HANDING_OVER = "Handing over: the process of the worker ends"
CUTTING_OVER = "Handing over: another worker goes on"
HANDOFFS = {REPLACING: "pending", HANDING_OVER: "draining", CUTTING_OVER: "cutover"}
"""Phases of a handoff, by the message of the change (STR-088)."""


def _started(body: Body, event: stream_events.TopologyStarted) -> None:
    body.topology = TopologyState(event.task)
    for name in body.plan.order:
        state = body.steps.get(name)
        if state is not None and state.run is not None and body.plan.block_of[name] == "steps":
            state.run.attempt, state.run.began_at = 1, event.at
            state.run.execution = f"{event.task}.1"


def _changed(body: Body, event: stream_events.StreamChanged) -> None:
    state = body.steps[event.step]
    if state.phase.is_terminal:
        return
    if event.state == QUEUED:
        state.phase, state.reason, state.message = StoryPhase.PENDING, Reason.QUEUED, event.message
        body.phase, body.reason, body.message = StoryPhase.PENDING, Reason.QUEUED, event.message
        return
    if body.reason == Reason.QUEUED:
        body.phase, body.reason, body.message = StoryPhase.RUNNING, Reason.STARTING, STARTING
    is_ready = event.state == "ready"
    state.phase = StoryPhase.RUNNING if is_ready else StoryPhase.PAUSED
    state.reason = Reason.RUNNING if is_ready else Reason.PAUSED
    state.message = event.message
    if event.message in HANDOFFS:
        state.handoff = Handoff(HANDOFFS[event.message], event.message, event.at)
    elif is_ready and state.handoff is not None:
        state.handoff = Handoff("ready", event.message, event.at)


def _hook_sent(body: Body, event: stream_events.HookSent) -> None:
    if body.topology is not None:
        body.topology.hooks[f"{event.hook}:{event.step}"] = None


def _reported(body: Body, event: stream_events.StreamReported) -> None:
    state = body.steps.get(event.step)
    if state is not None:
        state.stream = event.body


def _run_started(body: Body, event: stream_events.PacketRunStarted) -> None:
    topology = body.topology
    if topology is None:
        return
    topology.runs[event.key] = PacketRun(event.step, event.child, event.sub_run)
    if event.awaited:
        topology.children[event.child] = event.key
    while len(topology.runs) > RUNS_KEPT:
        del topology.runs[next(iter(topology.runs))]


def _run_ended(body: Body, event: stream_events.PacketRunEnded) -> None:
    if body.topology is not None:
        body.topology.children.pop(event.child, None)


def keep_packet_result(body: Body, event: e.ChildEnded) -> None:
    """Keep how the sub-run of a packet has ended, for the packet if it comes again."""
    topology = body.topology
    key = None if topology is None else topology.children.get(event.child)
    if topology is not None and key is not None and key in topology.runs and isinstance(event.outcome, Succeeded):
        topology.runs[key].result = event.outcome.value


def note_end(body: Body, event: e.TaskEnded) -> None:
    """A topology whose task failed is lost: nobody has said how its steps ended (STR-030)."""
    if body.topology is not None and body.topology.task == event.task and isinstance(event.outcome, Failed):
        body.topology.is_lost = True


def restart_workers(body: Body, event: e.TaskRedelivered) -> bool:
    """Every worker begins anew with the task that carries it; False if another task is meant (STR-026)."""
    if body.topology is None or body.topology.task != event.task:
        return False
    for name, state in body.steps.items():
        if state.run is not None and not state.phase.is_terminal and body.plan.block_of.get(name) == "steps":
            state.run.restarts += 1
            state.run.execution = f"{event.task}.{event.delivery}"
            state.phase, state.reason, state.message = StoryPhase.PAUSED, Reason.PAUSED, event.reason
            at = state.started_at if state.handoff is None else state.handoff.at
            state.handoff = Handoff("cutover", event.reason, at)
    return True


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    stream_events.TopologyStarted: _started,
    stream_events.StreamChanged: _changed,
    stream_events.HookSent: _hook_sent,
    stream_events.StreamReported: _reported,
    stream_events.PacketRunStarted: _run_started,
    stream_events.PacketRunEnded: _run_ended,
}
