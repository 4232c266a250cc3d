"""`shell`: run a command or a script.

The command finds its task's input as JSON on its standard input, and what it needs to act once
(`PERDURE_IDEMPOTENCY_KEY` and others) in its environment. Cancelling it ends its whole process group.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.jsontext import MOST_VALUES, has_too_many_values
from perdure.providers.command import Command, CommandResult, by_shell, environment, refuse_secrets, stdin_of
from perdure.providers.context import TaskContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.off_loop import aside
from perdure.providers.registry import Provider
from perdure.providers.text import READ_AT_ONCE

PREFIX = "Provider.Call.Shell"


async def shell(
    input: Any,
    context: TaskContext,
    argv: list[str] | None = None,
    script: str | None = None,
    interpreter: list[str] | None = None,
    env: dict[str, str] | None = None,
    cwd: str | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
    grace: float = 2.0,
    max_output: int = 1024 * 1024,
    expect: list[int] | None = None,
    parse: Literal["json"] | None = None,
) -> dict[str, Any]:
    """Run `argv`, or `script` with `interpreter` (default `/bin/sh -c`); return exit code and output.

    `max_output` (at most 16 MiB) bounds each of stdout and stderr, `expect` lists the exit codes that count as success,
    `parse: json` reads stdout. After `timeout` seconds or a cancel: SIGTERM, `grace` seconds, SIGKILL. Every user of
    the machine can list arguments: a script with a secret is read from a private file by `/bin/sh`, and a secret in
    `argv` or for another interpreter is refused.
    """
    with _command(argv, script, interpreter, context) as arguments:
        result = await Command(
            PREFIX,
            arguments,
            environment(env, context),
            stdin=await stdin_of(input) if stdin is None else stdin.encode(),
            cwd=cwd,
            timeout=timeout,
            grace=grace,
            limit=max_output,
        ).run()
    await result.log(context, *(("stderr",) if parse == "json" else ("stdout", "stderr")))
    if result.exit_code not in (expect or [0]):
        raise result.failure(PREFIX)
    is_little = len(result.out) <= READ_AT_ONCE
    return _result(result, parse) if is_little else await aside(_result, result, parse)


@contextmanager
def _command(
    argv: list[str] | None, script: str | None, interpreter: list[str] | None, context: TaskContext
) -> Iterator[list[str]]:
    if argv and script is None and interpreter is None:
        yield refuse_secrets(argv, context, PREFIX)
        return
    if script is not None and argv is None:
        if interpreter:
            yield refuse_secrets([*interpreter, script], context, PREFIX)
            return
        with by_shell(script, context) as arguments:
            yield arguments
        return
    raise ProviderFailure(f"{PREFIX}.BadArguments", "give either argv or script", retryable=False)


def _result(command_result: CommandResult, parse: str | None) -> dict[str, Any]:
    result = command_result.result()
    if parse == "json":
        if has_too_many_values(command_result.out):
            message = f"the output has more than {MOST_VALUES} values"
            raise ProviderFailure(f"{PREFIX}.TooLarge", message, retryable=False, details={"values": MOST_VALUES})
        try:
            result["stdout"] = jsontext.read_strict(command_result.out)
        except jsontext.NotJson as error:
            message = f"the output is not JSON: {error}"
            raise ProviderFailure(f"{PREFIX}.InvalidJson", message, retryable=False, details=result) from None
        result.pop("stdout_encoding", None)
    return result


PROVIDER = Provider.of("shell", shell)
