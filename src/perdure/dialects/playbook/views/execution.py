"""A run as JSON data: status, `ctx`, counts by step and branch, failures, order, result."""

from collections.abc import Mapping
from typing import Any

from perdure.dialects.playbook.plan.program import Program
from perdure.dialects.playbook.run.admission import reads_of
from perdure.dialects.playbook.run.completion import branch_counts, failure_view, result_of
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.names import run_id, token_id
from perdure.dialects.playbook.state.values import Reader
from perdure.dialects.playbook.values.references import ctx_uri, lookup
from perdure.kernel.errors import ReferenceNotAvailable
from perdure.kernel.execution import Execution
from perdure.kernel.json_values.values import Instant, Payload, Ref, digest
from perdure.kernel.outcomes import Status
from perdure.kernel.turn import MissingValues


def show(execution: Execution, texts: Mapping[bytes, bytes]) -> dict[str, Any]:
    body: b.Body = execution.body
    program: Program = execution.program

    text = _reader(texts)
    view: dict[str, Any] = {"execution_id": execution.id, "status": status_of(execution, body)}
    if body.code:
        view["code"] = body.code
    view |= {
        "ctx": body.ctx.data,
        "steps": {name: _step(tally) for name, tally in body.tallies.items()},
        "branches": branch_counts(body),
        "stranded": [_stranded(token) for token in body.stranded],
        "failures": [failure_view(failure) for failure in body.failures],
        "order": [list(entry) for entry in body.order],
        "result": result_of(body, program, execution.state.options).read(text) if body.status else None,
    }
    if not execution.state.status.is_final:
        view |= _live(body, program)
    return view


def _reader(texts: Mapping[bytes, bytes]) -> Reader:
    def text(payload: Payload) -> bytes:
        if isinstance(payload, bytes):
            return payload
        content = texts.get(payload.digest)
        if content is None:
            raise MissingValues((payload.digest,))
        return content

    return text


def body_of(execution: Execution, texts: Mapping[bytes, bytes], ref: str, now: Instant) -> Any:
    """The value behind a reference of this run, or the run's own result, with all nested bodies (PBK-174)."""
    body: b.Body = execution.body

    read_text = _reader(texts)

    def text(payload: Payload) -> bytes:
        content = read_text(payload)
        if isinstance(payload, Ref) and digest(content) != payload.digest:
            raise ReferenceNotAvailable(f"the body of {ref or 'the result'} is not what was stored: its digest differs")
        return content

    if not ref:
        return result_of(body, execution.program, execution.state.options).whole(text)
    if ref == ctx_uri(execution.id):
        return body.ctx.data
    stored = lookup(body, ref)
    if stored is None or (execution.state.status.is_final and stored.expires and now >= stored.expires):
        raise ReferenceNotAvailable(f"the body of {ref} is not available")
    body_value = stored.value.whole(text)
    return body_value["results"] if stored.value.parts is not None and ref.endswith("/results") else body_value


def brief(execution: Execution) -> dict[str, Any]:
    """The state of a run: counts, failures, what runs and what waits for what; none of its results (PBK-213)."""
    body: b.Body = execution.body
    live: dict[str, Any] = {"current": [], "pending": []}
    if not execution.state.status.is_final:
        live = _live(body, execution.program)
    return {
        "status": status_of(execution, body),
        "code": body.code or None,
        **live,
        "steps": {name: _step(tally) for name, tally in body.tallies.items()},
        "branches": branch_counts(body),
        "failures": [failure_view(failure) for failure in body.failures],
    }


def _live(body: b.Body, program: Program) -> dict[str, Any]:
    view: dict[str, Any] = {}
    view["current"] = [_current(number, run) for number, run in body.runs.items()]
    trackers = [(fork, step, tracker) for fork, node in body.forks.items() for step, tracker in node.trackers.items()]
    joins = [_join(program, fork, step, tracker) for fork, step, tracker in trackers if any(tracker.held.values())]
    if joins:
        view["joins"] = joins
    view["pending"] = [_pending(program, number, body.tokens[number]) for number in body.pending]
    return view


def awaited_gates(execution: Execution) -> list[str]:
    """The gates that wait for a patch, each with what it reads and the command that opens it (PBK-230)."""
    body: b.Body = execution.body
    gates = [_pending(execution.program, number, body.tokens[number]) for number in body.pending]
    paused = ["a resume: it is paused"] if body.paused and execution.state.pause is None else []
    return paused + [
        f"the gate of step {gate['step']!r} ({', '.join(gate['reads']) or 'ctx'});"
        f" open it with: perdure patch {execution.id} --ctx JSON"
        for gate in gates[:GATES_NAMED]
    ]


GATES_NAMED = 5


def status_of(execution: Execution, body: b.Body) -> str:
    """In the language's terms (PBK-137)."""
    if body.status:
        return body.status
    if execution.state.status.is_final:
        return "cancelled" if execution.state.status is Status.CANCELLED else "failed"
    if body.paused:
        return "paused"
    if not body.begun:
        return "pending"
    return "waiting" if body.waiting else "running"


def _step(tally: b.StepTally) -> dict[str, Any]:
    return {
        "runs": tally.runs,
        "done": tally.done,
        "failed": tally.failed,
        "iterations": tally.iterations,
        "task_runs": dict(tally.task_runs),
        "task_attempts": dict(tally.task_attempts),
    }


def _current(number: int, run: b.StepRun) -> dict[str, Any]:
    view: dict[str, Any] = {"step": run.step, "step_run_id": run_id(number)}
    if run.loop is not None:
        loop = run.loop
        view["loop"] = {
            "mode": loop.mode,
            "total": loop.total,
            "pending": loop.total - loop.next + len(loop.repeats),
            "running": loop.active,
            "succeeded": loop.succeeded,
            "failed": loop.failed,
            "retries": sum(loop.retries.values()),
        }
    return view


def _stranded(token: b.StrandedToken) -> dict[str, Any]:
    return {"step": token.step, "token_id": token_id(token.token), "decision": _decision(token.decision)}


def _join(program: Program, fork: int, step: str, tracker: b.JoinTracker) -> dict[str, Any]:
    join = program.steps[step].join
    assert join is not None
    arrived = [branch for branch in join.branches if tracker.held.get(branch)]
    missing = [branch for branch in join.branches if branch not in arrived]
    of = run_id(fork) if fork else None
    return {"step": step, "fork": of, "need": join.need, "arrived": arrived, "missing": missing}


def _pending(program: Program, number: int, token: b.Token) -> dict[str, Any]:
    gate = program.steps[token.step].admission
    reads = [] if gate is None else [name for name in reads_of(gate) if name != b.STEPS]
    return {
        "step": token.step,
        "token_id": token_id(number),
        "reads": [f"ctx.{name}" if name != b.ANY_NAME else "ctx" for name in reads],
        "reason": _reason(token.decision),
        "decision": _decision(token.decision),
    }


def _reason(decision: b.AdmissionDecision | None) -> str:
    """Why a token is not admitted, for people."""
    if decision is None:
        return "its gate has not been evaluated yet"
    if decision.errors:
        return "a guard of its gate cannot be evaluated: " + "; ".join(decision.errors)
    rule = {b.ELSE: "`else` denies it", b.NO_RULE: "no rule of its gate matches"}
    return rule.get(decision.rule, f"rules[{decision.rule}] of its gate denies it")


def _decision(decision: b.AdmissionDecision | None) -> dict[str, Any] | None:
    if decision is None:
        return None
    rule: int | str | None = {b.ELSE: "else", b.NO_RULE: None}.get(decision.rule, decision.rule)
    return {"allow": decision.allow, "matched_rule_index": rule, "guard_errors": list(decision.errors)}
