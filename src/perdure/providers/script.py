"""`script`: run a script from outside the document, in a folder of its own, without a container."""

from typing import Any

from perdure.providers.command import Command, environment, refuse_secrets, stdin_of
from perdure.providers.context import TaskContext
from perdure.providers.external_texts import Script
from perdure.providers.failure import ProviderFailure
from perdure.providers.job_folders import JobRuntime, folder, own_python
from perdure.providers.off_loop import run_in_thread
from perdure.providers.registry import Provider

PREFIX = "Provider.Call.Script"


async def script(
    context: TaskContext,
    script: Script | str,
    args: Any = None,
    runtime: JobRuntime | None = None,
    timeout: float | None = None,
) -> dict[str, Any]:
    """Fetch `script` and run it; return exit code and output.

    It runs by its `#!` line, a `.py` file by Python, anything else of this kind by the shell; or `runtime.command` says
    how. `args` are passed as JSON on the standard input and as the last argument. It runs in a new folder that contains
    it and `runtime.files`. The image of a runtime is not used. Args that contain a secret are passed on the standard
    input only.
    """
    how = runtime or JobRuntime()
    with folder(PREFIX) as job:
        await run_in_thread(lambda: job.fill(script, how.files), "perdure-files")
        if job.elsewhere:
            message = "without a container a mountPath is relative: it lies in the script's own folder"
            raise ProviderFailure(f"{PREFIX}.BadArguments", message, retryable=False)
        place = str(job.path / "workspace")
        result = await Command(
            PREFIX,
            refuse_secrets(job.command(how, place, own_python(), args, context), context, PREFIX),
            environment(how.environment(), context),
            stdin=await stdin_of(args),
            cwd=place,
            timeout=how.timeout(timeout),
        ).run()
    await result.log(context, "stdout", "stderr")
    if result.exit_code != 0:
        raise result.failure(PREFIX)
    return result.result()


PROVIDER = Provider.of("script", script)
