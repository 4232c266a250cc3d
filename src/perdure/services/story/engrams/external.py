"""Engrams whose code is not a Python function: a command, an HTTP endpoint or a container image.

Each gets its task as one JSON object (see the Story's task contract), with references resolved and the number of
the attempt, and answers with one:

    command, image   the task on standard input, the output as JSON on standard output; the exit code is the step's
    endpoint         the task as the body of a POST; a status from 400 on is a failure, and so is a member `error`

Output that is not JSON becomes `{"stdout": …}` or `{"body": …}`.
"""

from typing import Any

from perdure.kernel.documents.lookups import FROM_API, ORIGIN
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Code
from perdure.providers.context import TaskContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.off_loop import aside
from perdure.providers.policy import refusal_for_api
from perdure.providers.text import READ_AT_ONCE
from perdure.services.story.engrams.context import EngramContext
from perdure.services.story.engrams.failure import EngramError
from perdure.services.story.engrams.hydration import fill, hydrate_inputs
from perdure.services.story.engrams.step_log import StepLog


def check_origin(context: TaskContext, provider: str, task: dict[str, Any]) -> None:
    """Whether an Engram or template that came through the API may bring code, by the policy of this moment."""
    is_from_api, namespace = task.get(ORIGIN) == FROM_API, EngramContext(context, task).namespace
    refusal = refusal_for_api(provider, namespace) if is_from_api else None
    if refusal is not None:
        raise ProviderFailure(Code.NOT_ALLOWED, refusal, retryable=False)


def task_document(context: TaskContext, task: dict[str, Any]) -> dict[str, Any]:
    """The task as it is sent to external code."""
    namespace = EngramContext(context, task).namespace
    inputs = hydrate_inputs(task, context.secrets, namespace, context.run)
    members = {name: value for name, value in task.items() if name not in ("references", ORIGIN)}
    return {**members, "inputs": inputs, "attempt": context.attempt, "delivery": context.delivery}


def filled_texts(context: TaskContext, task: dict[str, Any], members: dict[str, Any] | None) -> dict[str, str]:
    """Headers or variables of the template as strings, with references resolved."""
    namespace = EngramContext(context, task).namespace
    return {name: str(fill(value, context.secrets, namespace)) for name, value in (members or {}).items()}


async def report_stderr(context: TaskContext, process_output: dict[str, Any]) -> None:
    """Report what a process wrote to standard error as its log."""
    log = StepLog()
    log.add_text(process_output.get("stderr") or "")
    await log.report(context)


async def output_of(code: int, process_output: dict[str, Any]) -> dict[str, Any]:
    """The output of a process that has ended; raises if its exit code is not 0."""
    is_little = len(process_output.get("stdout") or "") <= READ_AT_ONCE
    return _output_of(code, process_output) if is_little else await aside(_output_of, code, process_output)


def _output_of(code: int, process_output: dict[str, Any]) -> dict[str, Any]:
    out, errors = process_output.get("stdout") or "", process_output.get("stderr") or ""
    if code != 0:
        lines = [line for line in (errors or out).strip().splitlines() if line.strip()]
        message = lines[-1] if lines else f"the command ended with exit code {code}"
        raise EngramError(message, exit_code=code, details={"stdout": out[-2_000:], "stderr": errors[-2_000:]})
    if not out.strip():
        return {}
    try:
        value = jsontext.read_strict(out.encode())
    except jsontext.NotJson:
        return {"stdout": out}
    return value if isinstance(value, dict) else {"value": value}
