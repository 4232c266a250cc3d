"""`engram.container`: an Engram whose code is a container image, run with docker or podman."""

from typing import Any

import msgspec

from perdure.providers.container import container
from perdure.providers.context import TaskContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.job_folders import JobRuntime
from perdure.providers.registry import Provider
from perdure.services.story.engrams.external import check_origin, filled_texts, output_of, report_stderr, task_document
from perdure.services.story.engrams.failure import EngramError


async def image(context: TaskContext, run: dict[str, Any], **task: Any) -> dict[str, Any]:
    """Run the container `run.image` to its end, with `run.command`, `run.args` and `run.env`."""
    check_origin(context, PROVIDER.name, task)
    members: dict[str, Any] = {name: run[name] for name in ("image", "command", "args") if name in run}
    members["env"] = filled_texts(context, task, run.get("env"))
    try:
        answer = await container(context, msgspec.convert(members, JobRuntime), args=task_document(context, task))
    except ProviderFailure as failure:
        facts = failure.details if isinstance(failure.details, dict) else {}
        if "exit_code" not in facts:
            message = failure.message
            raise EngramError(message, type="initialization_error", retryable=failure.retryable) from None
        answer = facts
    await report_stderr(context, answer)
    return await output_of(answer["exit_code"], answer)


PROVIDER = Provider.of("engram.container", image, prefix="Engram")
