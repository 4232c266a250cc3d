"""`shell`: run a command or a script.

The command finds its task's input as JSON on its standard input, and what it needs to act once
(`PERDURE_IDEMPOTENCY_KEY` and others) in its environment. Cancelling it ends its whole process group.
"""

import asyncio
import os
import signal
from contextlib import ExitStack
from typing import Any, Literal

from perdure.kernel import jsontext
from perdure.providers.context import TaskContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.process import Capture, Process, inherited_environment, read_end, write_end
from perdure.providers.registry import Provider
from perdure.providers.text import excerpt, readable

PREFIX = "Provider.Call.Shell"

_DRAIN = 0.5  # seconds that output may take to arrive after the process has ended


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
    """Run `argv`, or `script` with `interpreter` (default `/bin/sh -c`); answer with exit code and output.

    `max_output` bounds each of stdout and stderr, `expect` lists the exit codes that count as success,
    `parse: json` reads stdout. After `timeout` seconds or a cancel: SIGTERM, `grace` seconds, SIGKILL.
    """
    command = _command(argv, script, interpreter)
    fed = stdin.encode() if stdin is not None else b"" if input is None else jsontext.encode_finite(input)
    ended = await _execute(command, fed, _environment(env, context), cwd, timeout, grace, max_output)
    if ended.exit_code not in (expect or [0]):
        raise _exit_failure(ended)
    return _result(ended, parse)


class _Ended:
    """What is known of a process that has ended."""

    def __init__(self, exit_code: int, out: Capture, err: Capture) -> None:
        self.exit_code = exit_code
        self.out = out
        self.err = err


def _command(argv: list[str] | None, script: str | None, interpreter: list[str] | None) -> list[str]:
    if argv and script is None and interpreter is None:
        return argv
    if script is not None and argv is None:
        return [*(interpreter or ["/bin/sh", "-c"]), script]
    raise ProviderFailure(f"{PREFIX}.BadArguments", "give either argv or script", retryable=False)


def _environment(overlay: dict[str, str] | None, context: TaskContext) -> dict[str, str]:
    return {
        **inherited_environment(),
        "PERDURE_RUN": context.run,
        "PERDURE_PATH": context.path,
        "PERDURE_ATTEMPT": str(context.attempt),
        "PERDURE_IDEMPOTENCY_KEY": context.idempotency_key,
        **(overlay or {}),
    }


async def _execute(
    command: list[str],
    fed: bytes,
    env: dict[str, str],
    cwd: str | None,
    timeout: float | None,
    grace: float,
    limit: int,
) -> _Ended:
    with ExitStack() as ours, ExitStack() as theirs:
        feed, stdin = await write_end()
        ours.callback(feed.abort)
        theirs.callback(os.close, stdin)
        out_pipe, out, stdout = await read_end(lambda: Capture(limit))
        ours.callback(out_pipe.close)
        theirs.callback(os.close, stdout)
        err_pipe, err, stderr = await read_end(lambda: Capture(limit))
        ours.callback(err_pipe.close)
        theirs.pop_all()  # from here on they belong to the process
        process = await _start(command, stdin, stdout, stderr, cwd, env)
        feed.send(fed)
        try:
            code = await asyncio.wait_for(asyncio.shield(process.exited), timeout)
        except TimeoutError:
            await process.stop(grace)
            facts = {"timeout": timeout, "stdout": excerpt(out.kept), "stderr": excerpt(err.kept)}
            message = f"not finished after {timeout} s"
            raise ProviderFailure(f"{PREFIX}.Timeout", message, retryable=True, details=facts) from None
        except asyncio.CancelledError:
            await process.stop(grace)
            raise
        # A process that left the group may hold the pipes open for ever; what it still says is not ours.
        await asyncio.wait([out.ended, err.ended], timeout=_DRAIN)
        return _Ended(code, out, err)


async def _start(
    command: list[str], stdin: int, stdout: int, stderr: int, cwd: str | None, env: dict[str, str]
) -> Process:
    try:
        return await Process.start(command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env)
    except (OSError, ValueError) as error:
        facts = {"command": command[0], "cwd": cwd}
        raise ProviderFailure(f"{PREFIX}.NotStarted", str(error), retryable=False, details=facts) from None


def _exit_failure(ended: _Ended) -> ProviderFailure:
    facts: dict[str, Any] = _output(ended)
    if ended.exit_code >= 0:
        facts["exit_code"] = ended.exit_code
        message = f"the command ended with exit code {ended.exit_code}"
        return ProviderFailure(f"{PREFIX}.Exit{ended.exit_code}", message, details=facts)
    name = signal.Signals(-ended.exit_code).name
    facts["signal"] = name
    return ProviderFailure(f"{PREFIX}.Killed", f"the command was ended by {name}", details=facts)


def _result(ended: _Ended, parse: str | None) -> dict[str, Any]:
    result: dict[str, Any] = {"exit_code": ended.exit_code, **_output(ended)}
    if parse == "json":
        try:
            result["stdout"] = jsontext.read_strict(bytes(ended.out.kept))
        except jsontext.NotJson as error:
            message = f"the output is not JSON: {error}"
            raise ProviderFailure(f"{PREFIX}.InvalidJson", message, retryable=False, details=result) from None
        result.pop("stdout_encoding", None)
    return result


def _output(ended: _Ended) -> dict[str, Any]:
    """Members for stdout and stderr; flags only where there is something to flag."""
    members: dict[str, Any] = {}
    for name, stream in (("stdout", ended.out), ("stderr", ended.err)):
        members[name], encoding = readable(bytes(stream.kept), is_cut=stream.is_truncated)
        if encoding:
            members[f"{name}_encoding"] = encoding
        if stream.is_truncated:
            members[f"{name}_truncated"] = True
    return members


PROVIDER = Provider.of("shell", shell)
