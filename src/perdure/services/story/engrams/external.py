"""Engrams whose code is no Python function: a command, an HTTP endpoint, a container image.

Each is given its task as one JSON object (see the Story's task contract), with references filled in and the number of
the attempt, and answers with one:

    command, image   the task on standard input, the output as JSON on standard output; the exit code is the step's
    endpoint         the task as the body of a POST; a status from 400 on is a failure, as is what `error` in it says

Output that is no JSON becomes `{"stdout": …}` or `{"body": …}`.
"""

from typing import Any

from perdure.kernel import jsontext
from perdure.providers.context import TaskContext
from perdure.services.story.engrams.context import EngramContext
from perdure.services.story.engrams.failure import EngramError
from perdure.services.story.engrams.hydration import fill, hydrate_inputs
from perdure.services.story.engrams.step_log import StepLog


def task_document(context: TaskContext, task: dict[str, Any]) -> dict[str, Any]:
    """The task as it is told to code elsewhere."""
    namespace = EngramContext(context, task).namespace
    inputs = hydrate_inputs(task, context.secrets, namespace, context.run)
    rest = {name: value for name, value in task.items() if name != "references"}
    return {**rest, "inputs": inputs, "attempt": context.attempt, "delivery": context.delivery}


def filled_texts(context: TaskContext, task: dict[str, Any], members: dict[str, Any] | None) -> dict[str, str]:
    """Headers or variables as the template has them, as texts, with references filled in."""
    namespace = EngramContext(context, task).namespace
    return {name: str(fill(value, context.secrets, namespace)) for name, value in (members or {}).items()}


async def report_stderr(context: TaskContext, said: dict[str, Any]) -> None:
    """What a process writes to standard error is its log."""
    book = StepLog()
    book.add_text(said.get("stderr") or "")
    await book.report(context)


def output_of(code: int, said: dict[str, Any]) -> dict[str, Any]:
    """What a process that has ended gave; raises when its exit code is not 0."""
    out, errors = said.get("stdout") or "", said.get("stderr") or ""
    if code != 0:
        lines = [line for line in (errors or out).strip().splitlines() if line.strip()]
        message = lines[-1] if lines else f"the command ended with exit code {code}"
        raise EngramError(message, exit_code=code, details={"stdout": out[-2_000:], "stderr": errors[-2_000:]})
    if not out.strip():
        return {}
    try:
        found = jsontext.read_strict(out.encode())
    except jsontext.NotJson:
        return {"stdout": out}
    return found if isinstance(found, dict) else {"value": found}
