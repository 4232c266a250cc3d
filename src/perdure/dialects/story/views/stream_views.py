"""Streaming steps as they are shown: their numbers (STR-100, 133), and their TransportBindings (STR-007)."""

from collections.abc import Mapping
from typing import Any

from perdure.dialects.story.plan import stream_settings
from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources.kinds import RESOURCE_KINDS
from perdure.dialects.story.resources.resource import Resource, spec_of
from perdure.dialects.story.resources.step_run_names import step_run_name
from perdure.dialects.story.resources.timestamps import timestamp
from perdure.dialects.story.state.body import Body, Handoff, StepState
from perdure.dialects.story.state.phases import StoryPhase
from perdure.kernel.execution import Execution
from perdure.kernel.graphs.step_overview import StepOverview
from perdure.kernel.json_values import jsontext
from perdure.streams.inlet import InletState
from perdure.streams.stream_rows import read_states

_STATES = {StoryPhase.RUNNING: "ready", StoryPhase.PAUSED: "connecting", StoryPhase.PENDING: "connecting"}


def stream_of(execution: Execution, name: str, state: StepState) -> dict[str, Any] | None:
    """The numbers of a step: its last ones, or those that its topology wrote at most a second ago."""
    program: Program = execution.program
    if state.stream is not None:
        last: dict[str, Any] = jsontext.decode(state.stream)
        return last
    if not program.streams(program.steps[name].block) if name in program.steps else True:
        return None
    if execution.body.topology is None or state.phase.is_terminal:
        return None
    numbers = read_states(execution.stream_rows).get(name)
    return shown_stream(InletState() if numbers is None else numbers, _STATES.get(state.phase, "closed"))


def describe_worker(execution: Execution, step: StepOverview, state: StepState) -> None:
    """Say of an open streaming step who does it elsewhere, or why nobody does, and what its packets do."""
    numbers = None if execution.body.topology is None else read_states(execution.stream_rows).get(step.name)
    if numbers is None or state.phase.is_terminal or state.run is None:
        return
    if numbers.awaits and state.phase is not StoryPhase.RUNNING:
        step.note = numbers.awaits
        return
    stream = shown_stream(numbers, "")
    parts = [f"worker {numbers.worker} since {timestamp(numbers.since)}"] if numbers.worker else []
    if waiting := stream["buffered"]["messages"]:
        parts.append(f"{waiting} packets wait")
    if stream["paused"]:
        parts.append("its publishers are asked to pause")
    if dropped := sum(stream["dropped"].values()):
        parts.append(f"{dropped} packets were dropped")
    step.work = "; ".join(parts)
    step.note = "; ".join(part for part in (step.note, step.work) if part)


def handoff_of(execution: Execution, step: Step, handoff: Handoff) -> dict[str, Any]:
    """How the worker of a step was replaced last (STR-088)."""
    program: Program = execution.program
    entry = stream_settings.entry_of(program, step)
    transport = program.resources.find("Transport", "", stream_settings.transport_name(entry))
    settings = stream_settings.merge_settings(transport or stream_settings.BUILT_IN, entry, program.settings)
    return {
        "strategy": stream_settings.strategy_of(settings) or stream_settings.ROLLING,
        "phase": handoff.phase,
        "message": handoff.message,
        "updatedAt": timestamp(handoff.at),
    }


def transport_bindings(execution: Execution) -> list[Resource]:
    """One for each streaming Engram step that has a StepRun; made by the engine, never applied."""
    program: Program = execution.program
    body: Body = execution.body
    if body.topology is None:
        return []
    steps = [step for step in program.steps.values() if step.block == "steps"]
    return [
        _binding(execution, step, state)
        for step in steps
        if (state := body.steps.get(step.name)) is not None and state.run is not None
    ]


def _binding(execution: Execution, step: Step, state: StepState) -> Resource:
    program: Program = execution.program
    body: Body = execution.body
    entry = stream_settings.entry_of(program, step)
    name = stream_settings.transport_name(entry)
    transport = program.resources.find("Transport", "", name) or stream_settings.BUILT_IN
    assert state.run is not None
    capabilities = _capabilities(spec_of(transport))
    is_ready = state.phase is StoryPhase.RUNNING
    return {
        "apiVersion": RESOURCE_KINDS["TransportBinding"].api_version,
        "kind": "TransportBinding",
        "metadata": {"name": step_run_name(body, step.name), "namespace": body.namespace},
        "spec": {
            "transportRef": name,
            "storyRunRef": {"name": body.name},
            "stepName": step.name,
            "engramName": state.run.engram.partition("/")[2],
            "driver": spec_of(transport).get("driver"),
            **{kind: {"direction": "bidirectional", **formats} for kind, formats in capabilities.items()},
            "rawSettings": stream_settings.merge_settings(transport, entry, program.settings),
        },
        "status": {
            **{f"negotiated{kind.title()}": formats for kind, formats in capabilities.items()},
            "endpoint": "",
            "upstreamHost": "",
            "downstreamHost": "",
            "conditions": [{"type": "Ready", "status": "True" if is_ready else "False", "message": state.message}],
        },
    }


def _capabilities(transport: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What a Transport carries, by kind of frame: workers of one process take all of it."""
    carried: dict[str, dict[str, Any]] = {}
    for kind in ("audio", "video"):
        if formats := transport.get(f"supported{kind.title()}"):
            carried[kind] = {"codecs": [str(format.get("name")) for format in formats]}
    if types := transport.get("supportedBinary"):
        carried["binary"] = {"mimeTypes": types}
    return carried


def shown_stream(numbers: InletState, state: str) -> dict[str, Any]:
    counters = numbers.counters
    dropped = sum(counters.dropped.values())
    shown: dict[str, Any] = {
        "state": state,
        "received": counters.received,
        "from": dict(counters.arrived),
        "published": counters.published,
        "delivered": counters.delivered,
        "acked": counters.acked,
        "errors": counters.errors,
        "dropped": dict(counters.dropped),
        "buffered": {"messages": max(0, counters.received - counters.delivered - dropped), "bytes": numbers.bytes},
        "unacked": max(0, counters.delivered - counters.acked) if numbers.sequences else 0,
        "lastAck": dict(numbers.acked),
        "paused": numbers.is_paused,
        "fill": numbers.fill,
    }
    if numbers.worker:
        shown["worker"] = {"name": numbers.worker, "since": timestamp(numbers.since)}
    elif numbers.awaits:
        shown["awaits"] = {"message": numbers.awaits, "since": timestamp(numbers.since)}
    if counters.watermark:
        shown["watermark"] = timestamp(counters.watermark)
    if counters.last_packet_at:
        shown["lastPacketAt"] = timestamp(counters.last_packet_at)
    return shown
