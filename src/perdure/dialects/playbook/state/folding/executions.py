"""The execution as a whole: started, waiting, stopped, paused, finished."""

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.body import Body
from perdure.dialects.playbook.state.folding.threads import hold
from perdure.dialects.playbook.state.folding.tokens import add_token, add_tokens
from perdure.dialects.playbook.state.values import NOTHING, Value
from perdure.kernel.events import Event


def _workflow_started(body: Body, event: p.WorkflowStarted) -> None:
    body.begun = True
    body.workload = Value(event.workload)
    body.ctx.assign(event.ctx)
    body.ctx_size = event.size
    if event.timer:
        body.bounds[event.timer] = 0
    if event.joins:
        body.forks[b.WHOLE] = b.TokenFork()
    for stored in event.stored:
        hold(body, stored, NOTHING)
    add_tokens(body, (event.entry,), b.Boundary("workflow.started", at=event.at), event.at)


def _request_evaluated(body: Body, event: p.RequestEvaluated) -> None:
    body.request = b.EvaluatedRequest(event.entry, event.workload, event.task, event.timer)
    body.ctx.assign(event.ctx)
    body.ctx_size = event.size
    if event.timer:
        body.bounds[event.timer] = 0
    for stored in event.stored:
        hold(body, stored, NOTHING)


def _keychain_resolved(body: Body, event: p.KeychainResolved) -> None:
    assert body.request is not None
    body.request = msgspec.structs.replace(body.request, is_resolved=True)
    body.dues = event.dues


def _workflow_waiting(body: Body, event: p.WorkflowWaiting) -> None:
    body.waiting = True
    body.wait_timer = event.timer


def _wait_expired(body: Body, event: p.WaitExpired) -> None:
    body.waiting = False
    body.wait_timer = 0
    body.wait_expired = True


def _workflow_stopped(body: Body, event: p.WorkflowStopped) -> None:
    body.stopped = event.error
    body.waiting = False
    if event.is_failure:
        body.failures.append(b.BranchFailure("", 0, "", False, event.error))


def _workflow_quiesced(body: Body, event: p.WorkflowQuiesced) -> None:
    body.finalizing = event.token.token
    token = add_token(body, event.token, b.Boundary("workflow.quiesced", at=event.at), event.at)
    token.is_final = True


def _workflow_finished(body: Body, event: p.WorkflowFinished) -> None:
    body.status = event.status
    body.code = event.code


def _paused(body: Body, event: p.Paused) -> None:
    body.paused = True


def _resumed(body: Body, event: p.Resumed) -> None:
    body.paused = False


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    p.RequestEvaluated: _request_evaluated,
    p.KeychainResolved: _keychain_resolved,
    p.WorkflowStarted: _workflow_started,
    p.WorkflowWaiting: _workflow_waiting,
    p.WaitExpired: _wait_expired,
    p.WorkflowStopped: _workflow_stopped,
    p.WorkflowQuiesced: _workflow_quiesced,
    p.WorkflowFinished: _workflow_finished,
    p.Paused: _paused,
    p.Resumed: _resumed,
}
