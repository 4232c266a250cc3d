"""Control messages from operators: decide a gate, retry now, redrive, cancel; and why one is refused (STY-105, 128,
183).
"""

from typing import Any

from perdure.dialects.story.plan.program import Program
from perdure.dialects.story.run import redrive, signals_and_effects, topology
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.phases import StoryPhase
from perdure.dialects.story.steps import STEP_KINDS
from perdure.dialects.story.steps.gate import DECISIONS
from perdure.kernel import inputs as i
from perdure.kernel.execution import Execution
from perdure.kernel.input_recording import describe_end
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.turn import Turn


def steer(turn: Turn, verb: str, arguments: Any, by: str) -> None:
    arguments = arguments if isinstance(arguments, dict) else {}
    match verb:
        case "gate":
            turn.emit(_decided(turn, arguments, by))
        case "retry":
            turn.drop_timer(turn.body.steps[arguments["step"]].poll)
            turn.emit(s.RetryHastened(arguments["step"], by))
        case "clean":
            turn.emit(s.ChildrenCleaned(turn.now))
        case "redrive":
            redrive.ask(turn, arguments.get("step") or "", arguments.get("token") or "", by)


def _decided(turn: Turn, decision: dict[str, Any], by: str) -> s.GateDecided:
    """Merge a decision into the existing one: absent members stay, null removes (STY-105)."""
    body: Body = turn.body
    gate = body.gates.get(decision["step"])
    before = {} if gate is None else {"state": gate.state, "message": gate.message, "by": gate.by}
    after = before | decision | ({"by": by} if by and not decision.get("by") else {})
    return s.GateDecided(
        decision["step"], after.get("state") or "Pending", after.get("message") or "", after.get("by") or "", turn.now
    )


def reopen(turn: Turn, arguments: Any, by: str) -> None:
    arguments = arguments if isinstance(arguments, dict) else {}
    redrive.reopen(turn, arguments.get("step") or "", arguments.get("token") or "", by)


def refusal(execution: Execution, message: i.Signal | i.Steer | i.Reopen) -> str | None:
    """Why a control message cannot be accepted now."""
    body: Body = execution.body
    program: Program = execution.program
    match message:
        case i.Signal(name, payload, _, by):
            if signals_and_effects.step_of_task(program, by) is not None:
                return None
            step, _, key = name.partition(".")
            if step not in program.steps or not key:
                return "the name of a signal to a Story must be <step>.<key>"
            if key == topology.PACKET and program.streams("steps"):
                if execution.state.status.is_final:
                    return describe_end(execution)
                value = jsontext.decode(payload) if isinstance(payload, bytes) else {}
                return topology.signal_problem(body, program, step, value)
            return _why_no_signal(body, step)
        case i.Reopen(payload):
            return _why_no_redrive(program, payload)
        case i.Steer("clean"):
            return None if execution.state.status.is_final else "the run has not ended"
        case i.Steer("metadata", payload):
            return None if _decoded(payload) is not None else 'metadata is {"labels"?: …, "annotations"?: …}'
        case i.Steer(verb) if execution.state.status.is_final and verb != "redrive":
            return f"{describe_end(execution)}; redrive it instead"
        case i.Steer("gate", payload):
            return _why_no_decision(body, program, payload)
        case i.Steer("retry", payload):
            return _why_no_retry(body, payload)
        case i.Steer("redrive", payload):
            return "a redrive is already in progress" if body.redrive is not None else _why_no_redrive(program, payload)
        case i.Steer(verb):
            return f"a Story has no control message {verb!r}"


def _decoded(payload: Payload) -> dict[str, Any] | None:
    value = jsontext.decode(payload) if isinstance(payload, bytes) else None
    return value if isinstance(value, dict) else None


def _why_no_decision(body: Body, program: Program, payload: Payload) -> str | None:
    decision = _decoded(payload)
    if decision is None or not set(decision) <= {"step", "state", "message", "by"}:
        return 'a decision is {"step": …, "state"?: …, "message"?: …, "by"?: …}'
    step = program.steps.get(str(decision.get("step")))
    if step is None:
        return f"there is no step {decision.get('step')!r}"
    if not STEP_KINDS[step.kind].takes_decisions:
        return f"step {step.name!r} is not a gate"
    if decision.get("state") is None and not set(decision) - {"step"}:
        return f"the decision of gate {step.name!r} is empty; set a state, a message or who decides"
    if decision.get("state") is not None and decision["state"] not in DECISIONS:
        return f"a gate's state is {', '.join(DECISIONS)}, not {decision.get('state')!r}"
    if any(not isinstance(decision.get(name, ""), str | None) for name in ("message", "by")):
        return "message and by must be strings"
    state = body.steps.get(step.name)
    if state is not None and state.phase.is_terminal:
        gate = body.gates.get(step.name)
        by = f" by {gate.by}" if gate is not None and gate.by else ""
        why = "" if gate is None or gate.state == "Pending" else f" ({gate.state}{by})"
        return f"gate {step.name!r} has already ended as {state.phase}{why}"
    return None


def _why_no_signal(body: Body, step: str) -> str | None:
    """Why a step cannot receive a signal. A finished step still accepts it as data, one stopped with its Story does
    not.
    """
    state = body.steps.get(step)
    if body.interruption is None or state is None or state.phase not in (StoryPhase.CANCELED, StoryPhase.SKIPPED):
        return None
    return f"step {step!r} has already ended as {state.phase}: {body.interruption.message}"


def _why_no_retry(body: Body, payload: Payload) -> str | None:
    arguments = _decoded(payload) or {}
    state = body.steps.get(str(arguments.get("step")))
    waits = (
        state is not None and state.phase is StoryPhase.PENDING and state.run is not None and state.run.next_retry_at
    )
    polls = state is not None and state.phase is StoryPhase.BLOCKED and (state.poll or state.awaited)
    return None if waits or polls else f"step {arguments.get('step')!r} is not waiting for a retry"


def _why_no_redrive(program: Program, payload: Payload) -> str | None:
    arguments = _decoded(payload)
    if arguments is None:
        return None if payload == b"null" else 'a redrive is {"token"?: …, "step"?: …}'
    step = arguments.get("step")
    if step and (step not in program.steps or program.steps[step].parent):
        return f"there is no step {step!r} to redrive from"
    if step and program.streams(program.steps[step].block):
        return f"step {step!r} is part of a topology, which has no point to go back to; redrive the whole run"
    return None
