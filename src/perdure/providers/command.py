"""One command, run to its end: its input, its output, and how it is stopped.

Stopping ends its whole process group. Only the beginning of its output is kept.
"""

import asyncio
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import MOST_DETAILS
from perdure.providers.context import TaskContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.off_loop import aside
from perdure.providers.process import OutputCapture, Process, inherited_environment, open_read_pipe, open_write_pipe
from perdure.providers.text import excerpt, is_quick, readable

USUAL_OUTPUT = 1024 * 1024  # bytes of each stream that are kept
LARGEST_OUTPUT = 16 * 1024 * 1024  # whatever a document asks for
GRACE = 2.0  # seconds between SIGTERM and SIGKILL

_DRAIN = 0.5  # seconds that output may take to arrive after the process has ended


@dataclass
class Command:
    """What to run. `prefix` begins the codes of its failures."""

    prefix: str
    argv: list[str]
    env: dict[str, str]
    stdin: bytes = b""
    cwd: str | None = None
    timeout: float | None = None
    grace: float = GRACE
    limit: int = USUAL_OUTPUT
    stop: Callable[[], Awaitable[None]] | None = None  # what else must be stopped with it

    async def run(self) -> "CommandResult":
        limit = max(0, min(self.limit, LARGEST_OUTPUT))
        with ExitStack() as ours, ExitStack() as theirs:
            feed, stdin = await open_write_pipe()
            ours.callback(feed.abort)
            theirs.callback(os.close, stdin)
            out_pipe, out, stdout = await open_read_pipe(lambda: OutputCapture(limit))
            ours.callback(out_pipe.close)
            theirs.callback(os.close, stdout)
            err_pipe, err, stderr = await open_read_pipe(lambda: OutputCapture(limit))
            ours.callback(err_pipe.close)
            theirs.pop_all()  # from here on they belong to the process
            process = await self._start(stdin, stdout, stderr)
            feed.send(self.stdin)
            try:
                code = await asyncio.wait_for(asyncio.shield(process.exited), self.timeout)
            except TimeoutError:
                await self._end(process)
                facts = {"timeout": self.timeout, "stdout": excerpt(out.raw), "stderr": excerpt(err.raw)}
                message = f"not finished after {self.timeout} s"
                raise ProviderFailure(f"{self.prefix}.Timeout", message, retryable=True, details=facts) from None
            except asyncio.CancelledError:
                await self._end(process)
                raise
            # A process that left the group may hold the pipes open for ever; its output is not awaited.
            await asyncio.wait([out.ended, err.ended], timeout=_DRAIN)
            is_little = is_quick(out.size + err.size)
            return CommandResult(code, out, err) if is_little else await aside(CommandResult, code, out, err)

    async def _start(self, stdin: int, stdout: int, stderr: int) -> Process:
        try:
            return await Process.start(self.argv, stdin=stdin, stdout=stdout, stderr=stderr, cwd=self.cwd, env=self.env)
        except (OSError, ValueError) as error:
            facts = {"command": self.argv[0], "cwd": self.cwd}
            raise ProviderFailure(f"{self.prefix}.NotStarted", str(error), retryable=False, details=facts) from None

    async def _end(self, process: Process) -> None:
        if self.stop is not None:
            await self.stop()
        await process.stop(self.grace)


LINES_LOGGED = 1_000
_LINES_AT_ONCE = 50  # each is searched for secrets
_BYTES_LOGGED = 1 << 20  # in which they are looked for
_END_IN_A_FAILURE = 100_000  # characters of output that is too much for one, a multiple of four for Base64


class CommandResult:
    """What is known about a process that has ended."""

    def __init__(self, exit_code: int, out: OutputCapture, err: OutputCapture) -> None:
        self.exit_code = exit_code
        self.out = out.captured
        self.err = err.captured
        self._output = _members({"stdout": (self.out, out.is_truncated), "stderr": (self.err, err.is_truncated)})
        self._lines = {"stdout": _last_lines(self.out), "stderr": _last_lines(self.err)}

    async def log(self, context: TaskContext, *streams: str) -> None:
        """Its output as lines of the task's log, of very much the last lines; others have their turn between them."""
        for name in streams:
            for count, line in enumerate(self._lines[name], 1):
                context.log(line, stream=name)
                if count % _LINES_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def result(self) -> dict[str, Any]:
        return {"exit_code": self.exit_code, **self.output()}

    def output(self) -> dict[str, Any]:
        """Members for stdout and stderr; flags only where they are true."""
        return dict(self._output)

    def failure(self, prefix: str) -> ProviderFailure:
        """For an exit code that does not count as success."""
        facts: dict[str, Any] = self.output()
        for name in ("stdout", "stderr") if len(facts["stdout"]) + len(facts["stderr"]) > MOST_DETAILS // 2 else ():
            if len(facts[name]) > _END_IN_A_FAILURE:
                facts[name], facts[f"{name}_truncated"] = facts[name][-_END_IN_A_FAILURE:], True
        if self.exit_code >= 0:
            facts["exit_code"] = self.exit_code
            message = f"the command ended with exit code {self.exit_code}"
            return ProviderFailure(f"{prefix}.Exit{self.exit_code}", message, details=facts)
        name = signal.Signals(-self.exit_code).name
        facts["signal"] = name
        return ProviderFailure(f"{prefix}.Killed", f"the command was ended by {name}", details=facts)


def _last_lines(data: bytes) -> list[str]:
    """Of very much only the end is split: millions of lines take as long as everything else together."""
    begin = max(0, len(data) - _BYTES_LOGGED)
    if begin:  # not in the middle of a line, if it has an end
        begin = data.find(b"\n", begin - 1) + 1 or begin
    lines = data[begin:].decode("utf-8", "replace").splitlines()
    omitted = len(lines) - LINES_LOGGED
    if begin or omitted > 0:
        count = max(omitted, 0) + data.count(b"\n", 0, begin)
        lines = [f"[{count} lines before these are not shown]", *lines[-LINES_LOGGED:]]
    return lines


async def stdin_of(value: Any) -> bytes:
    """A value as JSON for the standard input of a command; nothing for None."""
    if value is None:
        return b""
    return await aside(jsontext.encode, value) if jsontext.is_large(value) else jsontext.encode_finite(value)


def _members(streams: dict[str, tuple[bytes, bool]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, (data, is_truncated) in streams.items():
        members[name], encoding = readable(data, is_cut=is_truncated)
        if encoding:
            members[f"{name}_encoding"] = encoding
        if is_truncated:
            members[f"{name}_truncated"] = True
    return members


def task_environment(context: TaskContext) -> dict[str, str]:
    """What a command may need to know about its task, to act only once."""
    trace = {"TRACEPARENT": context.traceparent} if context.traceparent else {}
    return trace | {
        "PERDURE_RUN": context.run,
        "PERDURE_PATH": context.path,
        "PERDURE_ATTEMPT": str(context.attempt),
        "PERDURE_IDEMPOTENCY_KEY": context.idempotency_key,
    }


def environment(overlay: dict[str, str] | None, context: TaskContext) -> dict[str, str]:
    """The environment of this process without secrets, the task's variables, and those that the task adds."""
    return {**inherited_environment(), **task_environment(context), **(overlay or {})}


def refuse_secrets(arguments: list[str], context: TaskContext, prefix: str) -> list[str]:
    """The arguments, if none contains a secret: every user of the machine can list the arguments of a process."""
    for place, argument in enumerate(arguments):
        if context.secrets.are_in(argument):
            message = (
                f"argument {place} of the command contains a secret, and every user of this machine can list"
                " the arguments of a process; give it by env or stdin instead"
            )
            raise ProviderFailure(f"{prefix}.SecretInArguments", message, retryable=False, details={"argument": place})
    return arguments


@contextmanager
def by_shell(text: str, context: TaskContext) -> Iterator[list[str]]:
    """The arguments that run this in a shell. A text with a secret is read from a file that only its owner can read."""
    if not context.secrets.are_in(text):
        yield ["/bin/sh", "-c", text]
        return
    with tempfile.TemporaryDirectory(prefix="perdure-script-") as folder:  # 0700
        file = Path(folder, "script")
        file.touch(0o600)
        file.write_text(text, "utf-8")
        yield ["/bin/sh", str(file)]
