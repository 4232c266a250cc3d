"""`container`: run a container to its end, with the command line of docker or podman.

The container's name is derived from the task's key: stopping the task stops the container itself, not only the program
that watches it, and a delivery after a crash first removes what the lost worker left running.
"""

import hashlib
from typing import Any

from perdure.providers.command import Command, environment, refuse_secrets, stdin_of, task_environment
from perdure.providers.context import TaskContext
from perdure.providers.external_texts import Script
from perdure.providers.failure import ProviderFailure
from perdure.providers.job_folders import JobFolder, JobRuntime, folder, search
from perdure.providers.off_loop import run_in_thread
from perdure.providers.process import inherited_environment
from perdure.providers.registry import Provider

PREFIX = "Provider.Call.Container"
CHOICE = "PERDURE_CONTAINER_RUNTIME"
WORKSPACE = "/workspace"

_DAEMON_FAILED = 125  # by convention of both programs: the program failed, not the container
_STOP_SECONDS = 1
_TIDY_SECONDS = 4.0
_OF_THE_PROGRAM = ("DOCKER", "CONTAINER", "PODMAN", "BUILDAH", "XDG_", "PATH", "HOME", "LD_", "TMPDIR")


async def container(
    context: TaskContext,
    runtime: JobRuntime,
    script: Script | str | None = None,
    args: Any = None,
    timeout: float | None = None,
) -> dict[str, Any]:
    """Run `runtime.image` once; return exit code and output.

    `runtime.command` replaces the image's entry point, `runtime.args` follow it. `script` and `runtime.files` are in
    `/workspace`; without a command the script is run. `args` are passed as JSON on the standard input. After `timeout`
    or `runtime.timeoutSeconds` the container is stopped. `cleanup: false` keeps it afterwards.
    """
    if not runtime.image:
        raise ProviderFailure(f"{PREFIX}.BadArguments", "runtime needs an image", retryable=False)
    program = search(("docker", "podman"), CHOICE)
    if program is None:
        message = (
            "neither docker nor podman is installed on this worker; install one, "
            f"name another program in {CHOICE}, or use the script provider"
        )
        raise ProviderFailure(f"{PREFIX}.NoContainerRuntime", message, retryable=False)
    name = _name(context)
    with folder(PREFIX) as job:
        await run_in_thread(lambda: job.fill(script, runtime.files), "perdure-files")
        if context.delivery > 1:
            await _run_cleanup(program, "rm", "--force", name)
        argv = [program, "run", *_options(name, job, runtime, context), *_invocation(job, runtime, args, context)]
        result = await Command(
            PREFIX,
            refuse_secrets(argv, context, PREFIX),
            environment(runtime.environment(), context),
            stdin=await stdin_of(args),
            timeout=runtime.timeout(timeout),
            stop=lambda: _stop(program, name, runtime.cleanup),
        ).run()
    if result.exit_code == _DAEMON_FAILED:
        facts = result.output()
        message = f"the container was not started: {facts['stderr'].strip()[-500:]}"
        raise ProviderFailure(f"{PREFIX}.NotStarted", message, details=facts)
    if result.exit_code != 0:
        raise result.failure(PREFIX)
    return result.result()


def _name(context: TaskContext) -> str:
    """One per attempt: all its deliveries mean the same container."""
    key = f"{context.idempotency_key}\n{context.attempt}"
    return f"perdure-{hashlib.sha256(key.encode()).hexdigest()[:20]}"


def _options(name: str, job: JobFolder, runtime: JobRuntime, context: TaskContext) -> list[str]:
    options = ["--name", name, "--interactive"]
    if runtime.cleanup:
        options.append("--rm")
    for variable, value in (task_environment(context) | runtime.environment()).items():
        # Only the name: the value comes from the program's own environment and is not visible in a process list.
        is_shared = variable.startswith(_OF_THE_PROGRAM)
        options += ["--env", f"{variable}={value}" if is_shared else variable]
    options += ["--volume", f"{job.path / 'workspace'}:{WORKSPACE}", "--workdir", WORKSPACE]
    for place, file in job.elsewhere.items():
        options += ["--volume", f"{file}:{place}:ro"]
    return options


def _invocation(job: JobFolder, runtime: JobRuntime, args: Any, context: TaskContext) -> list[str]:
    command = job.command(runtime, WORKSPACE, "python3", args, context)
    assert runtime.image is not None
    if runtime.command or job.script is not None:
        return ["--entrypoint", command[0], runtime.image, *command[1:]]
    return [runtime.image, *command]


async def _stop(program: str, name: str, is_cleaned: bool) -> None:
    await _run_cleanup(program, "stop", "--time", str(_STOP_SECONDS), name)
    if is_cleaned:
        await _run_cleanup(program, "rm", "--force", name)


async def _run_cleanup(program: str, *arguments: str) -> None:
    """A container that does not exist (any more) is not a failure."""
    try:
        await Command(PREFIX, [program, *arguments], inherited_environment(), timeout=_TIDY_SECONDS).run()
    except ProviderFailure:
        pass


PROVIDER = Provider.of("container", container)
