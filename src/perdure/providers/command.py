"""One command, run to its end: what it is fed, what it said, and how it is stopped.

Stopping ends its whole process group. Of its output only the beginning is kept.
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

from perdure.providers.context import TaskContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.process import OutputCapture, Process, inherited_environment, open_read_pipe, open_write_pipe
from perdure.providers.text import excerpt, readable

USUAL_OUTPUT = 1024 * 1024  # bytes of each stream that are kept
LARGEST_OUTPUT = 16 * 1024 * 1024  # whatever a document asks for
GRACE = 2.0  # seconds between SIGTERM and SIGKILL

_DRAIN = 0.5  # seconds that output may take to arrive after the process has ended


@dataclass
class Command:
    """What is to run. `prefix` begins the codes of its failures."""

    prefix: str
    argv: list[str]
    env: dict[str, str]
    stdin: bytes = b""
    cwd: str | None = None
    timeout: float | None = None
    grace: float = GRACE
    limit: int = USUAL_OUTPUT
    stop: Callable[[], Awaitable[None]] | None = None  # what else has to end when it is stopped

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
                facts = {"timeout": self.timeout, "stdout": excerpt(out.captured), "stderr": excerpt(err.captured)}
                message = f"not finished after {self.timeout} s"
                raise ProviderFailure(f"{self.prefix}.Timeout", message, retryable=True, details=facts) from None
            except asyncio.CancelledError:
                await self._end(process)
                raise
            # A process that left the group may hold the pipes open for ever; what it still says is not ours.
            await asyncio.wait([out.ended, err.ended], timeout=_DRAIN)
            return CommandResult(code, out, err)

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


class CommandResult:
    """What is known of a process that has ended."""

    def __init__(self, exit_code: int, out: OutputCapture, err: OutputCapture) -> None:
        self.exit_code = exit_code
        self.out = out
        self.err = err

    def result(self) -> dict[str, Any]:
        return {"exit_code": self.exit_code, **self.output()}

    def output(self) -> dict[str, Any]:
        """Members for stdout and stderr; flags only where there is something to flag."""
        members: dict[str, Any] = {}
        for name, stream in (("stdout", self.out), ("stderr", self.err)):
            members[name], encoding = readable(bytes(stream.captured), is_cut=stream.is_truncated)
            if encoding:
                members[f"{name}_encoding"] = encoding
            if stream.is_truncated:
                members[f"{name}_truncated"] = True
        return members

    def failure(self, prefix: str) -> ProviderFailure:
        """For an exit code that does not count as success."""
        facts: dict[str, Any] = self.output()
        if self.exit_code >= 0:
            facts["exit_code"] = self.exit_code
            message = f"the command ended with exit code {self.exit_code}"
            return ProviderFailure(f"{prefix}.Exit{self.exit_code}", message, details=facts)
        name = signal.Signals(-self.exit_code).name
        facts["signal"] = name
        return ProviderFailure(f"{prefix}.Killed", f"the command was ended by {name}", details=facts)


def task_environment(context: TaskContext) -> dict[str, str]:
    """What a command may want to know of its task, to act once."""
    return {
        "PERDURE_RUN": context.run,
        "PERDURE_PATH": context.path,
        "PERDURE_ATTEMPT": str(context.attempt),
        "PERDURE_IDEMPOTENCY_KEY": context.idempotency_key,
    }


def environment(overlay: dict[str, str] | None, context: TaskContext) -> dict[str, str]:
    """Our own environment without the secrets, the task's facts, and what the task adds."""
    return {**inherited_environment(), **task_environment(context), **(overlay or {})}


def refuse_secrets(words: list[str], context: TaskContext, prefix: str) -> list[str]:
    """The words, if none of them holds a secret: whoever uses this machine can list the arguments of a process."""
    for place, word in enumerate(words):
        if context.secrets.are_in(word):
            message = (
                f"argument {place} of the command contains a secret, and every user of this machine can list"
                " the arguments of a process; give it by env or stdin instead"
            )
            raise ProviderFailure(f"{prefix}.SecretInArguments", message, retryable=False, details={"argument": place})
    return words


@contextmanager
def by_shell(text: str, context: TaskContext) -> Iterator[list[str]]:
    """The words that let the shell do this. A text with a secret comes from a file that nobody else can read."""
    if not context.secrets.are_in(text):
        yield ["/bin/sh", "-c", text]
        return
    with tempfile.TemporaryDirectory(prefix="perdure-script-") as folder:  # 0700
        file = Path(folder, "script")
        file.touch(0o600)
        file.write_text(text, "utf-8")
        yield ["/bin/sh", str(file)]
