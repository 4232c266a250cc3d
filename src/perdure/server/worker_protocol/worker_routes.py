"""The routes of the worker protocol, a part of the table of routes."""

from typing import Any

from perdure.server.route_table import Handler, Route
from perdure.server.worker_protocol import worker_handlers as workers
from perdure.server.worker_protocol import worker_types as w
from perdure.views.administration.access_tokens import AccessRole

WORKER = "/api/v1/worker"
TASK = "/tasks/{lease}"


def _worker(path: str, handler: Handler, summary: str, body: type | None = None, **more: Any) -> Route:
    """The worker protocol: not audited, for it is in the history of the run."""
    method = more.pop("method", "POST")
    kept: dict[str, Any] = {"refusals": (404, 409, 410), "is_refused_last": True} | more
    return Route(method, f"{WORKER}{path}", AccessRole.WORKER, handler, summary, body=body, **kept)


WORKER_ROUTES = (
    _worker(
        "/lease",
        workers.lease_tasks,
        "get tasks to do, or wait for some",
        w.LeaseBody,
        answer=w.LeaseAnswer,
        is_refused_last=False,
        is_keyed_by_run=True,
    ),
    _worker("/heartbeat", workers.heartbeat, "keep leases", w.HeartbeatBody, answer=w.HeartbeatAnswer),
    _worker("/answers", workers.answer_tasks, "answer many tasks", w.AnswersBody, answer=w.AnswersAnswer),
    _worker("/stream", workers.connect_stream_worker, "do one streaming step, as a WebSocket", method="GET"),
    _worker("/leave", workers.leave_pools, "stop working for pools", w.LeaveBody, answer=dict[str, Any]),
    _worker(f"{TASK}/complete", workers.complete_task, "the task succeeded", w.CompleteBody, answer=w.EndedAnswer),
    _worker(f"{TASK}/fail", workers.fail_task, "the task failed", w.FailBody, answer=w.EndedAnswer),
    _worker(
        f"{TASK}/release",
        workers.release_task,
        "give the task back",
        w.ReleaseBody,
        answer=w.EndedAnswer,
        body_is_optional=True,
    ),
    _worker(
        f"{TASK}/begin",
        workers.begin_task,
        "begin a task that was lost before",
        w.BeginBody,
        answer=w.EndedAnswer,
        body_is_optional=True,
    ),
    *(
        _worker(
            f"{TASK}/effects/{{key}}/{verb}",
            handler,
            f"{verb} an effect",
            body,
            answer=w.EffectAnswer,
            body_is_optional=True,
        )
        for verb, handler, body in (
            ("claim", workers.claim_task_effect, w.EmptyBody),
            ("complete", workers.complete_task_effect, w.EffectResultBody),
            ("release", workers.release_task_effect, w.EmptyBody),
        )
    ),
    _worker(
        f"{TASK}/signals/{{name}}",
        workers.signal_from_task,
        "send a signal to the run",
        w.TaskSignalBody,
        answer=w.EndedAnswer,
        body_is_optional=True,
    ),
    _worker(f"{TASK}/log", workers.log_from_task, "log lines", w.LogBody, answer=w.EndedAnswer),
    _worker(f"{TASK}/report", workers.report_from_task, "report progress", w.ReportBody, answer=w.ReportAnswer),
    _worker(f"{TASK}/values/{{digest}}", workers.get_task_value, "a large value", method="GET"),
    _worker(
        f"{TASK}/values/{{digest}}",
        workers.put_task_value,
        "put a large output",
        method="PUT",
        is_raw=True,
        takes_value=True,
        answer=dict[str, Any],
        status=201,
    ),
    _worker(
        f"{TASK}/documents/{{digest}}",
        workers.get_task_document,
        "a document that opening the task asks for",
        method="GET",
        answer=dict[str, Any],
    ),
    _worker(
        f"{TASK}/secrets",
        workers.send_task_secrets,
        "secrets of the store that the task asks for",
        w.SecretsBody,
        answer=w.SecretsAnswer,
    ),
)
