"""Resolving the keychain: after the request is evaluated, before any token exists (PBK-180).

A worker does it. It reports which entries there are and when they expire; the values stay in its memory.
"""

from typing import Any

from perdure.dialects.playbook.plan.program import Program
from perdure.dialects.playbook.run.ends import end_at_once
from perdure.dialects.playbook.run.keychain import envelope_keychain
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.task_errors import error
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Succeeded
from perdure.kernel.secrets.sealed_arguments import Envelope
from perdure.kernel.turn import Turn

CODE = "KEYCHAIN_RESOLUTION"
PATH = "keychain"
PROVIDER = "playbook.secrets"


def resolve(turn: Turn, workload: Payload) -> int:
    """Let a worker resolve every entry; returns the number of the task."""
    body: dict[str, Any] = {"resolve": True, **envelope_keychain(turn, None, workload=workload)}
    envelope = jsontext.encode(Envelope("playbook", body))
    return turn.schedule_task(PROVIDER, PATH, envelope, max_deliveries=3, sealed=True, pool=turn.program.pool)


def is_awaited(turn: Turn, task: int) -> bool:
    request = turn.body.request
    return request is not None and not turn.body.begun and request.task == task


def on_result(turn: Turn, outcome: Outcome) -> None:
    body: b.Body = turn.body
    program: Program = turn.program
    match outcome:
        case Succeeded(value):
            entries = jsontext.decode(turn.text(value))
            dues = {entry["name"]: entry["due"] for entry in entries if not program.keychain[entry["name"]].renews}
            turn.emit(p.KeychainResolved(dues))
            return
        case Failed(_, message):
            reason_text = message
        case Cancelled(reason):
            reason_text = reason or "the task that resolves it was cancelled"
    for timer in list(body.bounds):
        turn.drop_timer(timer)
    failed = error("auth", f"the keychain cannot be resolved: {reason_text}", CODE)
    turn.emit(p.WorkflowStopped(failed, is_failure=True))
    end_at_once(turn, CODE, failed.message)
