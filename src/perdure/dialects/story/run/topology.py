"""The life of a topology: what its task reports, how it is stopped, and how it ends (STR-026 to 034, 128).

Pending ─▶ Paused (connecting) ─▶ Running (ready) ─▶ Succeeded | Failed | Finished (closed by the engine)
"""

from typing import Any

from perdure.dialects.story.plan.program import Program, Step, object_at
from perdure.dialects.story.resources import labels
from perdure.dialects.story.resources.names import compose
from perdure.dialects.story.resources.resource import Reference, merged, spec_of
from perdure.dialects.story.run import child_runs, engram_lookup
from perdure.dialects.story.run.step_end import end_step
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state import stream_events
from perdure.dialects.story.state.body import Body, PacketRun, TopologyState
from perdure.dialects.story.state.folding.topologies import HANDING_OVER, HANDOFFS, QUEUED, READY
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.dialects.story.state.step_errors import StepError
from perdure.dialects.story.steps.step_kind import ENGRAM
from perdure.dialects.story.values.schema_fit import fitted
from perdure.kernel import events as e
from perdure.kernel.input_recording import UnfitMessage
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Failed, Succeeded
from perdure.kernel.turn import Turn
from perdure.streams.stream_messages import BadMessage, read_message

TERMINATED = "realtime topology terminated"  # STR-030
PATH = "/topology"
PACKET = "packet"
LARGEST_JOB_INPUT = 1024 * 1024  # bytes
CONTROL = "engram.stream"
"""The provider that brings something to a topology of the same process: a packet from outside, the end of a sub-run."""


def is_task(body: Body, task: int) -> bool:
    return body.topology is not None and body.topology.task == task


def is_open(turn: Turn) -> bool:
    return turn.body.topology is not None and turn.body.topology.task in turn.state.tasks


# Reports.


def report(turn: Turn, content: dict[str, Any]) -> Any:
    """Record what the topology reports, and answer it."""
    topology: TopologyState = turn.body.topology
    answer: Any = None
    if "queued" in content:
        _note_wait(turn, str(content["queued"]))
        return None
    if "opened" in content:
        if turn.body.reason == Reason.QUEUED:
            _note_wait(turn, "")
        ended = [name for name, state in turn.body.steps.items() if state.phase.is_terminal]
        return {"hooks": list(topology.hooks), "ended": ended}
    if "stopping" in content:
        return _begin_stop(turn, topology, content["stopping"])
    for change in content.get("states") or ():
        is_plain = change["state"] == "ready" and change.get("message") not in HANDOFFS
        message = READY if is_plain else str(change.get("message") or "")
        turn.emit(stream_events.StreamChanged(change["step"], change["state"], message, turn.now))
    if isinstance(hook := content.get("hook"), dict):
        is_new = f"{hook['event']}:{hook['step']}" not in topology.hooks
        if is_new:
            turn.emit(stream_events.HookSent(hook["event"], hook["step"], tuple(hook["targets"]), turn.now))
        answer = is_new
    for notice in content.get("notices") or ():
        times = f" ({notice['count']} times)" if notice.get("count", 1) > 1 else ""
        turn.emit(s.Noted(notice["step"], notice["kind"], f"{notice['message']}{times}", turn.now))
    for end in content.get("ended") or ():
        _end_step(turn, end)
    if isinstance(request := content.get("child"), dict):
        answer = _start_child(turn, request)
    return answer


def _note_wait(turn: Turn, message: str) -> None:
    """The topology waits for room in its process, or has found it (STR-078)."""
    for name, state in list(turn.body.steps.items()):
        if state.run is not None and not state.phase.is_terminal and state.message != message:
            turn.emit(stream_events.StreamChanged(name, QUEUED if message else "connecting", message, turn.now))


def _begin_stop(turn: Turn, topology: TopologyState, steps: list[str]) -> bool:
    """Whether the topology is to end. Otherwise only its process does, and hands it over (STR-088)."""
    is_cancelled = turn.state.tasks[topology.task].cancelling
    message = "Draining" if is_cancelled else HANDING_OVER
    for step in steps:
        turn.emit(stream_events.StreamChanged(step, "draining", message, turn.now))
    return is_cancelled


def _end_step(turn: Turn, end: dict[str, Any]) -> None:
    name = end["step"]
    state = turn.body.steps.get(name)
    if state is None or state.phase.is_terminal:
        return
    if end.get("stream") is not None:
        turn.emit(stream_events.StreamReported(name, jsontext.encode(end["stream"])))
    phase = StoryPhase(end["phase"])
    error = end.get("error")
    failed = None
    if isinstance(error, dict):
        members = {key: error.get(key) for key in ("code", "details") if error.get(key) is not None}
        failed = StepError.make(
            error.get("type"), str(error.get("message")), retryable=error.get("retryable"), **members
        )
    output = end.get("output")
    end_step(
        turn,
        name,
        phase,
        str(end.get("message") or ""),
        output=None if output is None else jsontext.encode(output if isinstance(output, dict) else {"value": output}),
        error=failed,
        interrupted=phase in (StoryPhase.FINISHED, StoryPhase.CANCELED),
    )


# Stopping.


def recall(turn: Turn, why: str) -> None:
    """Ask the topology to stop: what it has may flow for a while, and nothing more enters (STR-034)."""
    body: Body = turn.body
    assert body.topology is not None
    message = f"Canceled because {why}"
    for name, state in list(body.steps.items()):
        if state.run is not None and not state.phase.is_terminal and not state.run.recalled:
            turn.emit(s.StepRecalled(name, message))
    for child in list(body.topology.children):
        if child in turn.state.children:
            turn.cancel_child(child, why)
    turn.cancel_task(body.topology.task, why)


def on_end(turn: Turn, end: e.TaskEnded) -> None:
    """The task has ended: the steps that it did not end itself end now, branches before their parents."""
    body: Body = turn.body
    program: Program = turn.program
    value = jsontext.decode(turn.text(end.outcome.value)) if isinstance(end.outcome, Succeeded) else {}
    results = {result["step"]: result for result in value.get("ended") or ()}
    main = [step for step in program.steps.values() if step.block == "steps"]
    for step in sorted(main, key=lambda step: bool(step.branches)):
        state = body.steps.get(step.name)
        if state is None or state.phase.is_terminal:
            continue
        if step.name in results:
            _end_step(turn, results[step.name])
        elif isinstance(end.outcome, Failed):
            message = f"{TERMINATED}: {end.outcome.message}"
            error = StepError.make("execution_error", message, retryable=False)
            end_step(turn, step.name, StoryPhase.FAILED, message, error=error)
        else:
            message = state.message if state.run is not None and state.run.recalled else "Closed with the topology"
            end_step(turn, step.name, StoryPhase.FINISHED, message, interrupted=True)
    stop = value.get("stop")
    if isinstance(stop, dict) and body.interruption is None:
        turn.emit(s.Interrupted("stop", stop["step"], stop["phase"], stop["message"], turn.now))
    for child in list(body.topology.children) if body.topology is not None else ():
        if child in turn.state.children:
            turn.cancel_child(child, "the topology has ended")


# Packets from outside, and sub-runs of packets.


def deliver(turn: Turn, step: str, message: Any) -> None:
    """Bring a packet from outside to the topology (STR-121)."""
    assert turn.body.topology is not None
    arguments = {"run": turn.execution.id, "step": step, "message": message}
    turn.schedule_task(CONTROL, f"{PATH}/{step}", jsontext.encode(arguments), max_deliveries=0)


def _start_child(turn: Turn, request: dict[str, Any]) -> dict[str, Any]:
    """Start the sub-run of a packet, or find the one that it has started before (STR-058)."""
    topology: TopologyState = turn.body.topology
    program: Program = turn.program
    step = program.steps[request["step"]]
    key = f"{step.name}/{request['packet']}"
    known = topology.runs.get(key)
    if known is not None:
        return _answer(turn, known, known.child in topology.children)
    if step.kind == ENGRAM:
        return _start_job(turn, step, key, request)
    story = engram_lookup.find_story(turn, step, step.with_block.get("storyRef"))
    if not isinstance(story, tuple):
        return {"error": story.message}
    target, resource = story
    inputs: Any = merged(merged(_defaults(resource), request.get("with") or {}), {})
    inputs, problems = fitted(spec_of(resource).get("inputsSchema"), inputs)
    if problems:
        return {"error": f"StoryRun inputs failed schema validation: {problems}"}
    above = child_runs.ancestors(turn)
    if child_runs.is_too_deep(turn, above, target, inputs):
        return {"error": child_runs.TOO_DEEP}
    name = compose(turn.body.name, step.name, str(request["packet"]))
    return _launch(turn, step, key, name, target, resource, inputs, above, waits=request.get("waits") is not False)


def _start_job(turn: Turn, step: Step, key: str, request: dict[str, Any]) -> dict[str, Any]:
    """Start the StepRun of one packet, in a run of its own: so it is retried and timed out as any batch step (STR-067).

    What a packet brings is data: it is read from the inputs of that run, and never rendered as a template.
    """
    body: Body = turn.body
    program: Program = turn.program
    brought = request.get("with")
    with_block, inputs = step.with_block, jsontext.decode(turn.text(body.inputs))
    if brought is not None:
        if not isinstance(brought, dict):
            return {"error": f"the inputs of a packet for step '{step.name}' must be an object"}
        names = {name: f'{{{{ index inputs "p{number}" }}}}' for number, name in enumerate(brought)}
        with_block, inputs = names, {f"p{number}": value for number, value in enumerate(brought.values())}
    if len(jsontext.encode(inputs)) > LARGEST_JOB_INPUT:
        return {"error": f"the input of step '{step.name}' has more than {LARGEST_JOB_INPUT} bytes"}
    above = child_runs.ancestors(turn)
    if child_runs.goes_too_deep(turn, above):
        return {"error": child_runs.TOO_DEEP}
    target = Reference(compose(program.name, step.name), program.namespace)
    upstream = ",".join(step.data.get("needs") or ([step.parent] if step.parent else []))
    policy = {**program.policy, "timeouts": {**object_at(program.policy, "timeouts"), "story": None}}
    story = {
        **program.story,
        "metadata": {
            "name": target.name,
            "namespace": program.namespace,
            "labels": {labels.HYBRID: "true"},
            "annotations": {labels.UPSTREAM_STEP: upstream} if upstream else {},
        },
        "spec": {
            "pattern": "batch",
            "policy": policy,
            "steps": [{**{name: step.data[name] for name in _OF_JOBS if name in step.data}, "with": with_block}],
            "output": {"value": f'{{{{ (index steps "{step.name}").output }}}}'},
        },
    }
    name = compose(body.name, step.name, str(request["packet"]))
    child = child_runs.launch(turn, step, name, target, story, inputs, above, with_any_size=True)
    turn.emit(stream_events.PacketRunStarted(step.name, key, child, name, True))
    return {"subRun": name, "isOpen": True}


_OF_JOBS = ("name", "ref", "execution", "secrets")
"""Members of a hybrid step that its StepRuns have; the others decide about packets."""


def _defaults(resource: dict[str, Any]) -> Any:
    policy = spec_of(resource).get("policy")
    return (policy.get("with") if isinstance(policy, dict) else None) or {}


def _launch(
    turn: Turn,
    step: Step,
    key: str,
    name: str,
    target: Reference,
    resource: dict[str, Any],
    inputs: dict[str, Any],
    above: child_runs.Ancestors,
    *,
    waits: bool,
) -> dict[str, Any]:
    child = child_runs.launch(turn, step, name, target, resource, inputs, above, awaited=waits)
    turn.emit(stream_events.PacketRunStarted(step.name, key, child, name, waits))
    return {"subRun": name, "isOpen": waits}


def _answer(turn: Turn, known: PacketRun, is_open: bool) -> dict[str, Any]:
    if is_open or known.result is None:
        return {"subRun": known.sub_run, "isOpen": is_open}
    end = child_runs.read_result(jsontext.decode(turn.text(known.result)))
    return {"subRun": known.sub_run, "isOpen": False, "output": end.output}


def on_child_end(turn: Turn, end: e.ChildEnded) -> None:
    """Tell the topology how the sub-run of a packet has ended."""
    body: Body = turn.body
    assert body.topology is not None
    key = body.topology.children[end.child]
    result = child_runs.read_end(turn, end)
    step = key.partition("/")[0]
    arguments = {
        "run": turn.execution.id,
        "step": step,
        "child": key,
        "phase": result.phase.value,
        "text": result.message,
        "output": result.output,
    }
    if is_open(turn):
        task = turn.schedule_task(CONTROL, f"{PATH}/{step}", jsontext.encode(arguments), max_deliveries=0)
        turn.emit(stream_events.PacketRunEnded(step, key, end.child, task))
    else:
        turn.emit(stream_events.PacketRunEnded(step, key, end.child, 0))


def signal_problem(body: Body, program: Program, step: str, value: Any) -> str | None:
    """Why a packet from outside cannot be accepted."""
    if program.is_batch or step not in program.steps or program.steps[step].block != "steps":
        return f"step {step!r} is not a step of a topology, so it takes no packets"
    if program.steps[step].kind != ENGRAM:
        return UnfitMessage(f"step {step!r} has no Engram: send the packet to a step that has one")
    try:
        read_message(value, "", 0)
    except BadMessage as problem:
        return UnfitMessage(f"the value of the signal is not a message: {problem}")
    state = body.steps.get(step)
    if state is not None and state.phase.is_terminal:
        return f"step {step!r} has already ended as {state.phase}"
    return None
