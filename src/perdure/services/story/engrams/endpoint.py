"""`engram.http`: an Engram whose code is an HTTP endpoint."""

from typing import Any

from perdure.providers.context import TaskContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.http import http
from perdure.providers.http_client import close_clients
from perdure.providers.registry import Provider
from perdure.services.story.engrams.context import EngramContext
from perdure.services.story.engrams.external import filled_texts, task_document
from perdure.services.story.engrams.failure import EngramError

_ANY_STATUS = list(range(100, 600))


async def endpoint(context: TaskContext, run: dict[str, Any], **task: Any) -> dict[str, Any]:
    """POST the task to `run.url`, with `run.headers`."""
    headers = filled_texts(context, task, run.get("headers"))
    key = EngramContext(context, task).idempotency_key
    try:
        answer = await http(
            context,
            str(run.get("url", "")),
            "POST",
            {"idempotency-key": key, **headers},
            json=task_document(context, task),
            timeout=float(run.get("timeout", 300)),
            expect=_ANY_STATUS,
        )
    except ProviderFailure as failure:
        raise EngramError(failure.message, retryable=failure.retryable, code=failure.code) from None
    status, body = answer["status"], answer["body"]
    error = body.get("error") if isinstance(body, dict) else None
    if status >= 400 or isinstance(error, dict):
        raise _refusal(status, error if isinstance(error, dict) else {})
    return body if isinstance(body, dict) else {} if body is None else {"body": body}


def _refusal(status: int, error: dict[str, Any]) -> EngramError:
    by_status = "rateLimited" if status == 429 else "retry" if status in (408, 425) or status >= 500 else "terminal"
    return EngramError(
        str(error.get("message") or f"the endpoint answered {status}"),
        type=error.get("type"),
        exit_code=error.get("exitCode"),
        exit_class=error.get("exitClass") or (None if "retryable" in error else by_status),
        retryable=error.get("retryable"),
        code=error.get("code"),
        details={"status": status, **(error.get("details") or {})},
    )


PROVIDER = Provider.of("engram.http", endpoint, prefix="Engram", close=close_clients)
