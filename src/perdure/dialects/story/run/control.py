"""Words of operators: decide a gate, retry now, redrive, cancel; and why one cannot be taken (STY-105, 128, 183)."""

from typing import Any

from perdure.dialects.story.plan.program import Program
from perdure.dialects.story.run import redrive, signals_and_effects
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.phases import Phase
from perdure.dialects.story.steps import STEP_KINDS
from perdure.dialects.story.steps.gate import DECISIONS
from perdure.kernel import inputs as i
from perdure.kernel import jsontext
from perdure.kernel.execution import Execution
from perdure.kernel.input_recording import ended
from perdure.kernel.turn import Turn
from perdure.kernel.values import Payload


def steer(turn: Turn, verb: str, said: Any, by: str) -> None:
    said = said if isinstance(said, dict) else {}
    match verb:
        case "gate":
            turn.emit(_decided(turn, said, by))
        case "retry":
            turn.drop_timer(turn.body.steps[said["step"]].poll)
            turn.emit(s.RetryHastened(said["step"], by))
        case "clean":
            turn.emit(s.ChildrenCleaned(turn.now))
        case "redrive":
            redrive.ask(turn, said.get("step") or "", said.get("token") or "", by)


def _decided(turn: Turn, said: dict[str, Any], by: str) -> s.GateDecided:
    """A decision is merged into what is there: what it does not name stays, null takes away (STY-105)."""
    body: Body = turn.body
    known = body.gates.get(said["step"])
    before = {} if known is None else {"state": known.state, "message": known.message, "by": known.by}
    after = before | said | ({"by": by} if by and not said.get("by") else {})
    return s.GateDecided(
        said["step"], after.get("state") or "Pending", after.get("message") or "", after.get("by") or "", turn.now
    )


def reopen(turn: Turn, said: Any, by: str) -> None:
    said = said if isinstance(said, dict) else {}
    redrive.reopen(turn, said.get("step") or "", said.get("token") or "", by)


def refusal(execution: Execution, given: i.Signal | i.Steer | i.Reopen) -> str | None:
    """Why an operator's word cannot be taken now."""
    body: Body = execution.body
    program: Program = execution.program
    match given:
        case i.Signal(name, _, _, by):
            if signals_and_effects.step_of_task(program, by) is not None:
                return None
            step, _, key = name.partition(".")
            if step not in program.steps or not key:
                return "a signal to a Story is named <step>.<key>"
            return _why_no_signal(body, step)
        case i.Reopen(said):
            return _why_no_redrive(program, said)
        case i.Steer("clean"):
            return None if execution.state.status.is_final else "the run has not ended"
        case i.Steer(verb) if execution.state.status.is_final and verb != "redrive":
            return f"{ended(execution)}; redrive it instead"
        case i.Steer("gate", said):
            return _why_no_decision(body, program, said)
        case i.Steer("retry", said):
            return _why_no_retry(body, said)
        case i.Steer("redrive", said):
            return "a redrive is under way" if body.redrive is not None else _why_no_redrive(program, said)
        case i.Steer(verb):
            return f"a Story cannot be asked to {verb!r}"


def _decoded(given: Payload) -> dict[str, Any] | None:
    said = jsontext.decode(given) if isinstance(given, bytes) else None
    return said if isinstance(said, dict) else None


def _why_no_decision(body: Body, program: Program, given: Payload) -> str | None:
    said = _decoded(given)
    if said is None or not set(said) <= {"step", "state", "message", "by"}:
        return 'a decision is {"step": …, "state"?: …, "message"?: …, "by"?: …}'
    step = program.steps.get(str(said.get("step")))
    if step is None:
        return f"there is no step {said.get('step')!r}"
    if not STEP_KINDS[step.kind].takes_decisions:
        return f"step {step.name!r} is not a gate"
    if said.get("state") is None and not set(said) - {"step"}:
        return f"nothing is said of gate {step.name!r}; name a state, a message or who decides"
    if said.get("state") is not None and said["state"] not in DECISIONS:
        return f"a gate's state is {', '.join(DECISIONS)}, not {said.get('state')!r}"
    if any(not isinstance(said.get(name, ""), str | None) for name in ("message", "by")):
        return "message and by are texts"
    state = body.steps.get(step.name)
    if state is not None and state.phase.is_terminal:
        decided = body.gates.get(step.name)
        by = f" by {decided.by}" if decided is not None and decided.by else ""
        why = "" if decided is None or decided.state == "Pending" else f" ({decided.state}{by})"
        return f"gate {step.name!r} has already ended as {state.phase}{why}"
    return None


def _why_no_signal(body: Body, step: str) -> str | None:
    """To a step that has ended it is data; one that was stopped with its Story will never read it."""
    state = body.steps.get(step)
    if body.interruption is None or state is None or state.phase not in (Phase.CANCELED, Phase.SKIPPED):
        return None
    return f"step {step!r} has ended as {state.phase}: {body.interruption.message}"


def _why_no_retry(body: Body, given: Payload) -> str | None:
    said = _decoded(given) or {}
    state = body.steps.get(str(said.get("step")))
    waits = state is not None and state.phase is Phase.PENDING and state.run is not None and state.run.next_retry_at
    looks = state is not None and state.phase is Phase.BLOCKED and (state.poll or state.awaited)
    return None if waits or looks else f"step {said.get('step')!r} does not wait for a retry"


def _why_no_redrive(program: Program, given: Payload) -> str | None:
    said = _decoded(given)
    if said is None:
        return None if given == b"null" else 'a redrive is {"token"?: …, "step"?: …}'
    step = said.get("step")
    if step and (step not in program.steps or program.steps[step].parent):
        return f"there is no step {step!r} to redrive from"
    return None
