"""How the topology of a streaming Story starts: every worker at once, carried by one task (STR-021 to 026).

    resolve Engrams and Transports ─▶ render every `with` once ─▶ StepRuns ─▶ one task

The task's arguments are `{"topology": …, "templates": …, "workers": …, "inputs": …, "storyRun": …, …}`. `topology` is
the graph with the meaning of its settings (`perdure.streams.stream_graph`), `templates` are the texts that are
evaluated for every packet, and `workers` holds for each Engram step what a batch task would get (`engram_contract`).
"""

from collections.abc import Container
from typing import Any

import msgspec

from perdure.dialects.story.plan import stream_settings
from perdure.dialects.story.plan.engram_code import COMMAND, place_of
from perdure.dialects.story.plan.execution_policy import grace
from perdure.dialects.story.plan.program import Program, Step, object_at
from perdure.dialects.story.resources.durations import read_positive
from perdure.dialects.story.resources.resource import Reference, Resource, spec_of
from perdure.dialects.story.run import engram_lookup
from perdure.dialects.story.run.engram_lookup import InvalidReference, MissingResource, ResolvedEngram
from perdure.dialects.story.run.step_end import end_step, skip
from perdure.dialects.story.run.story_end import end_run
from perdure.dialects.story.run.topology import PATH
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state import stream_events
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.dialects.story.state.step_errors import StepError
from perdure.dialects.story.steps.engram import InputRefused, created, worker_arguments
from perdure.dialects.story.steps.step_kind import ENGRAM
from perdure.kernel.ids import family_of
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.kernel.tasks.assignments import short_name
from perdure.kernel.turn import Turn
from perdure.streams.guards import HubCapacity, guard_problem
from perdure.streams.hub import STEP_READY, STORY_READY
from perdure.streams.stream_graph import Settings, StreamGraph, StreamStep, Topology, fan_out_problem

TOPOLOGY = "engram.topology"
"""The provider that carries topologies. Where a step has loaded code, its provider does so: it is known only there."""

STREAMS_SINCE = 5  # the record version that has `TopologyStarted`
BUILT_IN_READY = "Realtime runtime is ready"
HYBRID = "hybrid"


def start(turn: Turn) -> bool:
    """Start the topology, or find out what it waits for. False if there is nothing to do now."""
    body: Body = turn.body
    for name in list(body.agenda):
        state = body.steps.get(name)
        if state is not None and engram_lookup.is_held_back(state):
            engram_lookup.release_waiter(turn, state)
            return True
    engrams: dict[str, ResolvedEngram] = {}
    is_waiting = False
    for step in _engram_steps(turn.program):
        engram = engram_lookup.find_engram(turn, step)
        if isinstance(engram, InvalidReference):
            return _refuse(turn, engram.reason, engram.message)
        if isinstance(engram, MissingResource):
            if _looks_further(turn, step, engram):
                return True
            is_waiting = True
        elif engram_lookup.lacks_code(turn, engram):
            if step.name not in body.steps:
                engram_lookup.block_for_code(turn, step, engram)
                return True
            is_waiting = True
        else:
            engrams[step.name] = engram
    transports: dict[str, Resource] = {}
    for step in _all_steps(turn.program):
        transport = _transport(turn, step)
        if isinstance(transport, MissingResource):
            if _looks_further(turn, step, transport):
                return True
            is_waiting = True
        elif isinstance(transport, str):
            return _refuse(turn, Reason.TRANSPORT_REFERENCE_INVALID, transport)
        else:
            transports[step.name] = transport
    if is_waiting:
        return False
    jobs = {name for name, engram in engrams.items() if engram_lookup.mode_of(engram.engram) == "job"}
    _launch(turn, {name: engram for name, engram in engrams.items() if name not in jobs}, transports)
    return True


def _engram_steps(program: Program) -> list[Step]:
    return [step for step in _all_steps(program) if step.kind == ENGRAM]


def _all_steps(program: Program) -> list[Step]:
    """The main steps in story order, branches behind their parents."""
    return [step for step in program.steps.values() if step.block == "steps"]


def _looks_further(turn: Turn, step: Step, missing: MissingResource) -> bool:
    if engram_lookup.retry_lookup(turn, missing):
        return True
    state = turn.body.steps.get(step.name)
    if state is not None and engram_lookup.is_held_back(state):
        return False
    engram_lookup.block(turn, step, missing)
    return True


def _transport(turn: Turn, step: Step) -> Resource | MissingResource | str:
    """The Transport of a step; a text says why it cannot be used (STR-006)."""
    name = stream_settings.transport_name(stream_settings.entry_of(turn.program, step))
    transport = engram_lookup.find(turn, "Transport", "", name)
    if transport is None:
        if name == stream_settings.LOCAL:
            return stream_settings.BUILT_IN
        return MissingResource("Transport", Reference(name, ""), Reason.REFERENCE_NOT_FOUND)
    spec = spec_of(transport)
    driver = spec.get("driver")
    if driver not in stream_settings.DRIVERS:
        known = ", ".join(stream_settings.DRIVERS)
        return f"Transport '{name}' has the driver {driver!r}, which does not exist here (there is: {known})"
    if driver == stream_settings.NATS:
        if problem := stream_settings.nats_problem(object_at(spec, "defaultSettings").get("nats")):
            return f"Transport '{name}': {problem}"
        entry = stream_settings.entry_of(turn.program, step)
        if "nats" in object_at(entry, "settings"):
            return f"transport '{entry.get('name')}' of the Story may not set `nats`: servers belong to the Transport"
    return transport


def _refuse(turn: Turn, reason: str, message: str) -> bool:
    """The topology cannot start: nothing of the run has happened, so nothing is cleaned up."""
    skip(turn, list(turn.body.unstarted), f"Skipped because the topology cannot start: {message}")
    end_run(turn, StoryPhase.FAILED, reason, message)
    return True


def _launch(turn: Turn, engrams: dict[str, ResolvedEngram], transports: dict[str, Resource]) -> None:
    body: Body = turn.body
    program: Program = turn.program
    if turn.record_version < STREAMS_SINCE:
        message = "a server of an earlier version is connected to this store and cannot read streaming runs"
        _refuse(turn, Reason.INVALID_CONFIGURATION, message)
        return
    settings = {
        step.name: stream_settings.merge_settings(
            transports[step.name], stream_settings.entry_of(program, step), program.settings
        )
        for step in _all_steps(program)
    }
    meaning = {
        name: stream_settings.read_settings(program, merged, spec_of(transports[name])["driver"])
        for name, merged in settings.items()
    }
    topology = _topology(program, meaning, engrams)
    limits = {name: stream_settings.max_downstreams(merged) for name, merged in settings.items()}
    graph, guards = (
        StreamGraph(topology),
        HubCapacity(program.settings.hub_max_streams, program.settings.hub_max_buffers),
    )
    problem = fan_out_problem(graph, limits) or guard_problem(graph, guards) or _quorum_problem(topology)
    if problem := problem or _place_problem(topology, transports):
        _refuse(turn, Reason.INVALID_CONFIGURATION, problem)
        return
    prepared: dict[str, tuple[str, bytes]] = {}
    for name, engram in engrams.items():
        try:
            prepared[name] = worker_arguments(turn, program.steps[name], engram)
        except InputRefused as refused:
            turn.emit(created(turn, engram, ""))
            error = StepError.make(refused.type, refused.message, retryable=False)
            end_step(turn, name, StoryPhase.FAILED, refused.message, reason=refused.reason, error=error)
            skip(turn, list(body.unstarted), "Skipped due to fail-fast policy")
            return
    drain = _drain_time(program, settings)
    arguments = _arguments(turn, topology, settings, engrams, prepared, drain)
    arguments["nats"] = next(filter(None, map(stream_settings.read_nats, transports.values())), None)
    for step in _all_steps(program):
        if step.name in engrams:
            key, text = prepared[step.name]
            turn.emit(created(turn, engrams[step.name], key, turn.keep(text)))
        else:
            turn.emit(s.StepStarted(step.name, StoryPhase.RUNNING, BUILT_IN_READY, turn.now))
    here = [engram.pair for engram in engrams.values() if not _pool(turn, engram)]
    provider = next((pair.provider for pair in here if pair.run is None), TOPOLOGY)
    turn.emit(stream_events.TopologyStarted(turn.next_number, turn.now))
    turn.schedule_task(
        provider, PATH, jsontext.encode(arguments), max_deliveries=0, grace=drain + grace(program) + 5 * SECOND
    )


def _pool(turn: Turn, engram: ResolvedEngram) -> str:
    """The pool of workers elsewhere that does the step: as the Engram says, or the operator; empty: none."""
    return engram.execution.pool or turn.routes.get(short_name(engram.pair.provider, turn.execution.dialect.name), "")


def _handoff(settings: dict[str, Any], drain: Instant) -> dict[str, Any]:
    """How a worker is replaced by another one (STR-088)."""
    strategy = stream_settings.strategy_of(settings)
    most = object_at(settings, "lifecycle").get("maxInFlight") or 0
    own = stream_settings.drain_seconds(settings) * SECOND or drain
    return {"strategy": strategy, "maxInFlight": most, "drain": 0 if strategy == stream_settings.ROLLING else own}


def _drain_time(program: Program, settings: dict[str, dict[str, Any]]) -> Instant:
    """How long a topology that is cancelled may go on with what it has (STR-034)."""
    longest = max(map(stream_settings.drain_seconds, settings.values()), default=0)
    return longest * SECOND if longest else grace(program)


def _topology(program: Program, settings: dict[str, Settings], workers: Container[str]) -> Topology:
    concurrency = object_at(program.spec, "concurrency")
    texts = jsontext.encode([[step.condition, step.data.get("runtime")] for step in _all_steps(program)])
    return Topology(
        tuple(_plan(program, step, settings[step.name], workers) for step in _all_steps(program)),
        concurrency.get("mode") or "parallel",
        concurrency.get("scope") or "storyrun",
        program.continues_on_failure,
        b"steps" in texts or b"steps" in jsontext.encode(program.spec.get("transports")),
    )


def _plan(program: Program, step: Step, settings: Settings, workers: Container[str]) -> StreamStep:
    """An Engram step without a worker of its own is hybrid: a job for each packet."""
    condition = step.condition.strip().lower()
    main = program.plan.blocks["steps"]
    return StreamStep(
        step.name,
        HYBRID if step.kind == ENGRAM and step.name not in workers else step.kind,
        tuple(name for name in step.data.get("needs") or () if name in main),
        bool(condition),
        step.data.get("runtime") is not None,
        tuple(event for event in (STORY_READY, STEP_READY) if event in condition),
        tuple(branch.name for branch in step.branches),
        step.allows_failure,
        settings,
    )


def _quorum_problem(topology: Topology) -> str | None:
    for step in topology.steps:
        if step.settings.join == "quorum" and len(step.needs) > 1 and step.settings.quorum > len(step.needs):
            return f"step '{step.name}' joins {len(step.needs)} steps; a quorum of {step.settings.quorum} never comes"
    return None


def _place_problem(topology: Topology, transports: dict[str, Resource]) -> str | None:
    """Publications and the acknowledgement of what they answer are one change: there is one place for them."""
    servers = {
        jsontext.encode(nats) for transport in transports.values() if (nats := stream_settings.read_nats(transport))
    }
    if len(servers) > 1:
        return "the steps use several NATS Transports with unlike settings; a topology has one NATS stream"
    durable = [step.name for step in topology.steps if step.settings.driver == "local" and step.settings.is_durable]
    if servers and durable:
        return (
            f"step '{durable[0]}' has durable replay with the driver local, other steps have nats: choose one of them"
        )
    return None


def _arguments(
    turn: Turn,
    topology: Topology,
    settings: dict[str, dict[str, Any]],
    engrams: dict[str, ResolvedEngram],
    prepared: dict[str, tuple[str, bytes]],
    drain: Instant,
) -> dict[str, Any]:
    body: Body = turn.body
    program: Program = turn.program
    workers: dict[str, Any] = {}
    for name, engram in engrams.items():
        retry = engram.execution.retry()
        place, pool = place_of(engram.template), _pool(turn, engram)
        workers[name] = {
            **({"pool": pool} if pool else {}),
            "handoff": _handoff(settings[name], drain),
            "provider": COMMAND if place == COMMAND else engram.pair.provider,
            "task": jsontext.decode(prepared[name][1]),
            "retry": {**msgspec.to_builtins(retry), "backoff": retry.backoff.value},
        }
    templates = {
        step.name: {
            "if": step.condition,
            "runtime": step.data.get("runtime"),
            "with": {} if step.kind == ENGRAM else step.with_block,
            "when": [str(rule.get("when") or "") for rule in stream_settings.rules_of(settings[step.name])],
        }
        for step in _all_steps(program)
    }
    return {
        "topology": msgspec.to_builtins(topology),
        "templates": templates,
        "workers": workers,
        "inputs": jsontext.decode(turn.text(body.inputs)),
        "storyRun": {"name": body.name, "namespace": body.namespace, "uid": turn.execution.id},
        "story": {"name": program.name, "namespace": program.namespace},
        "life": body.life,
        "drain": drain,
        "guards": {"streams": program.settings.hub_max_streams, "buffers": program.settings.hub_max_buffers},
        "messageTimeout": program.settings.hub_message_timeout,
        "hangTimeout": 0 if (text := program.settings.hub_hang_timeout) == "none" else read_positive(text),
        "offloadedData": "controller" if program.reads_in_process or program.injects else "error",
        **({"families": [family_of(run) for run in turn.state.forked_from]} if turn.state.forked_from else {}),
        "recording": {
            name: recording for name, merged in settings.items() if (recording := object_at(merged, "recording"))
        },
    }
