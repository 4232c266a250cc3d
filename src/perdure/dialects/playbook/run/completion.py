"""When nothing can run and nothing is in flight: wait, end denied tokens, finalize, finish (sections 8 and 9).

calm ──▶ pending tokens? ──▶ wait | end them ──▶ final step, once ──▶ finished
"""

from typing import Any

from perdure.dialects.playbook.plan.program import Admission, OnFailure, OnFinalFailure, OnStranded, Program
from perdure.dialects.playbook.run.admission import can_be_opened, is_disabled, reads_of
from perdure.dialects.playbook.run.ends import drop_token
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.names import run_id, token_id
from perdure.dialects.playbook.state.task_errors import Error, error
from perdure.dialects.playbook.state.values import NOTHING, Value
from perdure.dialects.playbook.values import lent_references
from perdure.dialects.playbook.values.references import reference_of
from perdure.kernel.execution import Execution
from perdure.kernel.inputs import CONTROL_WAIT_RANK
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Failed, Status, Succeeded
from perdure.kernel.turn import Turn
from perdure.kernel.turn_budget import rests

LISTED = 100  # entries of each list in the summary (PBK-143)
DEADLOCK = "ADMISSION_DEADLOCK"

NO_MATCH = error("policy_fail", "no arc matched", "NO_MATCHING_ARC")
STRANDED = error("policy_fail", "tokens wait that nothing can admit", DEADLOCK)
FINAL_FAILED = error("policy_fail", "the final step failed", "FINAL_STEP_FAILED")

CompletionVerdict = tuple[str, str]
"""A status and, if it is not success, its code."""


def end_if_idle(turn: Turn) -> bool:
    """One move towards the end; False while the execution waits for a patch."""
    body: b.Body = turn.body
    program: Program = turn.program
    if body.waiting:
        return False
    if body.pending:
        _end_pending(turn, body, program)
    elif program.final_step is not None and not body.finalizing and not _has_run(body, program.final_step):
        _finalize(turn, body, program, program.final_step)
    else:
        _finish(turn, body, program)
    return True


def _has_run(body: b.Body, step: str) -> bool:
    return not body.finalizes_again and step in body.tallies and body.tallies[step].runs > 0


def ended_steps(execution: Execution, turns: Any) -> frozenset[str]:
    body: b.Body = execution.body
    return frozenset(name for name, tally in body.tallies.items() if tally.finished)


# Denied tokens.


def _end_pending(turn: Turn, body: b.Body, program: Program) -> None:
    policy = program.completion.on_stranded
    may_wait = policy in (OnStranded.AUTO, OnStranded.WAIT) and not body.wait_expired and body.stopped is None
    gates = {number: _gate(program, body.tokens[number]) for number in body.pending}
    if may_wait and any(can_be_opened(gate) for gate in gates.values()):
        is_lost = verdict(body, program)[0] == "failed"
        if policy is OnStranded.WAIT or not is_lost:
            timeout = program.completion.wait_timeout
            timer = 0 if timeout is None else turn.set_timer(turn.now + timeout, CONTROL_WAIT_RANK)
            turn.emit(p.WorkflowWaiting(tuple((number, reads_of(gate)) for number, gate in gates.items()), timer))
            return
    for number, gate in gates.items():
        reason, ending = _fate(policy, gate, body.tokens[number], body.wait_expired)
        drop_token(turn, number, reason, ending)


def _gate(program: Program, token: b.Token) -> Admission:
    gate = program.steps[token.step].admission
    assert gate is not None, "only a gate makes a token wait"
    return gate


def _fate(policy: OnStranded, gate: Admission, token: b.Token, waited_enough: bool) -> tuple[str, str]:
    if policy is OnStranded.DISCARD:
        return "admission_deadlock", b.BranchEnding.NORMAL
    is_careful = policy in (OnStranded.AUTO, OnStranded.WAIT) and not waited_enough
    if is_careful and is_disabled(gate, token):
        return "disabled", b.BranchEnding.SKIPPED
    return "admission_deadlock", b.BranchEnding.STRANDED


# The status.


def verdict(body: b.Body, program: Program) -> CompletionVerdict:
    """The status as it would be now. Worst wins: failed over partial over success (PBK-138)."""
    if body.stopped is None and not (body.unrouted or body.stranded or body.failures or body.final == "failed"):
        return "success", ""
    verdicts = [
        ("failed" if body.stopped is not None else "success", body.stopped),
        ("failed" if body.unrouted else "success", NO_MATCH),
        (_status_of_stranded(body, program), STRANDED),
        (_of_failures(body, program), _first_failure(body)),
        (_of_finalization(body, program), FINAL_FAILED),
    ]
    for status in ("failed", "partial"):
        causes = [cause for verdict, cause in verdicts if verdict == status and cause is not None]
        if causes:
            return status, next((code for cause in causes if (code := _own_code(cause))), "")
    return "success", ""


def _of_failures(body: b.Body, program: Program) -> str:
    on_failure = program.completion.on_failure
    counted = body.unhandled
    if on_failure is OnFailure.IGNORE:
        counted = 0
    elif on_failure is OnFailure.FAIL_ON_ANY:
        counted += body.handled
    if not counted:
        return "success"
    is_partial = on_failure is OnFailure.PARTIAL and body.branches.get(b.BranchEnding.NORMAL, 0) > 0
    return "partial" if is_partial else "failed"


def _status_of_stranded(body: b.Body, program: Program) -> str:
    if not body.stranded:
        return "success"
    return "partial" if program.completion.on_stranded is OnStranded.PARTIAL else "failed"


def _of_finalization(body: b.Body, program: Program) -> str:
    if body.final != "failed":
        return "success"
    return "partial" if program.completion.on_final_failure is OnFinalFailure.PARTIAL else "failed"


def _first_failure(body: b.Body) -> Error | None:
    """The first unhandled failure; if all were handled, the first one."""
    first = next((failure for failure in body.failures if not failure.handled), None)
    if first is None and body.failures:
        first = body.failures[0]
    return None if first is None else first.error


def _own_code(cause: Error) -> str:
    """A code of the language; codes of a tool are not codes of the execution."""
    return cause.code if isinstance(cause.code, str) and cause.code.isupper() else ""


# The final step.


def _finalize(turn: Turn, body: b.Body, program: Program, step: str) -> None:
    status, _ = verdict(body, program)
    args = turn.keep(jsontext.encode(summary(turn, status)))
    token = p.NewToken(body.tokens_made + 1, step, program.steps[step].admission is not None, args)
    turn.emit(p.WorkflowQuiesced(status, token, turn.now))


def summary(turn: Turn, status: str) -> dict[str, Any]:
    """The summary that the final step receives (PBK-143): counts and references, never bodies."""
    body: b.Body = turn.body
    by_step = {
        name: {"runs": tally.runs, "done": tally.done, "failed": tally.failed} for name, tally in body.tallies.items()
    }
    failures = [failure_view(failure) for failure in body.failures[:LISTED]]
    pending = [{"step": token.step, "token_id": token_id(token.token)} for token in body.stranded[:LISTED]]
    return {
        "execution_id": turn.execution.id,
        "status": status,
        "steps": {
            "total_runs": sum(tally["runs"] for tally in by_step.values()),
            "done": sum(tally["done"] for tally in by_step.values()),
            "failed": sum(tally["failed"] for tally in by_step.values()),
            "by_step": by_step,
        },
        "branches": branch_counts(body),
        "results": {name: reference_of(tally.result, tally.uri, turn.text) for name, tally in body.tallies.items()},
        "failures": failures,
        "failures_total": len(body.failures),
        "pending": pending,
        "pending_total": len(body.stranded),
    }


def branch_counts(body: b.Body) -> dict[str, int]:
    counts = {ending.value: body.branches.get(ending, 0) for ending in b.BranchEnding}
    return {"total": sum(counts.values()), **counts}


def failure_view(failure: b.BranchFailure) -> dict[str, Any]:
    return {
        "step": failure.step or None,
        "step_run_id": run_id(failure.run) if failure.run else None,
        "task": failure.task or None,
        "handled": failure.handled,
        "error": failure.error.summary(),
    }


# The end.


def _finish(turn: Turn, body: b.Body, program: Program) -> None:
    status, code = verdict(body, program)
    if status == "failed":
        cause = _first_failure(body)
        outcome: Succeeded | Failed = Failed(
            code or (cause.kind if cause is not None else "failed"),
            _message(body, code),
            retryable=False,
            previous=None if cause is None else _behind(cause),
        )
        end_status = Status.FAILED
    else:
        result = lent_references.wrap_result(turn, result_of(body, program, turn.state.options), body.ctx.data)
        envelope = {"execution_id": turn.execution.id, "status": status, **result}
        encode = jsontext.encode if rests() else jsontext.encode_finite  # all of it was read from JSON
        outcome = Succeeded(encode(envelope))
        end_status = Status.PARTIAL if status == "partial" else Status.SUCCEEDED
    for timer in body.bounds:
        turn.drop_timer(timer)
    turn.emit(p.WorkflowFinished(status, code))
    turn.end(end_status, outcome)


def _behind(cause: Error) -> bytes:
    """The failure of a step, in the shape that every language can read."""
    failure: dict[str, Any] = {"type": "error", "code": str(cause.code or cause.kind), "message": cause.message}
    details = {} if cause.details is None else jsontext.decode(cause.details)
    if isinstance(details, dict) and isinstance(details.get("previous"), dict):
        failure["previous"] = details.pop("previous")
    return jsontext.encode(
        {**failure, "details": {"kind": cause.kind, **details}} if isinstance(details, dict) else failure
    )


def result_of(body: b.Body, program: Program, options: bytes) -> Value:
    """That of the step the caller named, of the final step, or else of the branch that ended last (PBK-200, 202)."""
    return_step = jsontext.decode(options).get("return_step")
    if return_step is not None:
        return body.tallies[return_step].result if return_step in body.tallies else NOTHING
    if body.final == "done" and program.final_step is not None:
        return body.tallies[program.final_step].result
    return body.last_leaf


def _message(body: b.Body, code: str) -> str:
    if code == DEADLOCK:
        return f"{STRANDED.message}: " + ", ".join(token.step for token in body.stranded[:10])
    if body.final_error is not None:
        return f"{FINAL_FAILED.message}: {body.final_error.message}"
    first = next((failure for failure in body.failures if not failure.handled), None)
    if first is None:
        return "" if body.stopped is None else body.stopped.message
    place = f"step {first.step!r}: " if first.step else ""
    return f"{place}{first.error.message}"
