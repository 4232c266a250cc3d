"""A streaming worker that is a command: one JSON object per line, in both directions (STR-093).

The command reads messages from standard input, in the form of STR-038 with base64 frames. It writes messages to
standard output, each with `replyTo` if it answers one, and `{"done": ID}` for every message it is done with. Its input
ends when no more messages come; it then ends by itself. `PERDURE_STREAM_CONFIG` holds its configuration as JSON.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from perdure.kernel.json_values import jsontext
from perdure.providers.command import environment
from perdure.providers.context import TaskContext
from perdure.providers.failure import ProviderFailure
from perdure.services.story.engrams.command import command_words, exit_code
from perdure.services.story.engrams.external import filled_texts
from perdure.services.story.engrams.failure import EngramError
from perdure.services.story.streams.stream_session import StreamSession
from perdure.services.story.streams.worker_context import InboundMessage
from perdure.streams.inlet import MOST_PENDING
from perdure.streams.stream_messages import BadMessage, read_message

LONGEST_LINE = 16 * 1024 * 1024
CONFIG = "PERDURE_STREAM_CONFIG"
GRACE = 2.0  # seconds between SIGTERM and SIGKILL


async def run_command(
    context: TaskContext, task: dict[str, Any], config: Any, session: StreamSession, started: Callable[[], None]
) -> None:
    run = task.get("run") or {}
    argv = run.get("argv")
    if not argv:
        raise EngramError("the template does not name a command", type="initialization_error")
    variables = {**filled_texts(context, task, run.get("env")), CONFIG: jsontext.encode(config).decode()}
    with ExitStack() as script:
        try:
            words = script.enter_context(command_words(argv, context))
        except ProviderFailure as failure:
            raise EngramError(failure.message, type="initialization_error", exit_code=127) from None
        await _speak_with(context, words, variables, run.get("cwd"), session, started)


async def _speak_with(
    context: TaskContext,
    words: list[str],
    variables: dict[str, str],
    folder: str | None,
    session: StreamSession,
    started: Callable[[], None],
) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment(variables, context),
            cwd=folder,
            limit=LONGEST_LINE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise EngramError(f"the command cannot be started: {error}", type="initialization_error") from None
    session.reads_ahead = True
    started()
    conversation = _Conversation(session, process)
    try:
        await conversation.hold()
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await process.wait()


class _Conversation:
    def __init__(self, session: StreamSession, process: asyncio.subprocess.Process) -> None:
        self._session = session
        self._process = process
        self._open: dict[str, InboundMessage] = {}

    async def hold(self) -> None:
        feeding = asyncio.create_task(self._feed())
        try:
            await self._listen()
            code = exit_code(await self._process.wait())
            if code != 0:
                raise EngramError(f"the command ended with exit code {code}", exit_code=code)
        finally:
            feeding.cancel()

    async def _feed(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(ConnectionError):
            while (message := await self._session.next()) is not None:
                self._open[message.message_id] = message
                if len(self._open) > MOST_PENDING:  # under best effort nobody has to say `done`
                    del self._open[next(iter(self._open))]
                stdin.write(jsontext.encode(message.json()) + b"\n")
                await stdin.drain()
            stdin.close()

    async def _listen(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        while line := await stdout.readline():
            self._session.note_life()
            if not line.strip():
                continue
            try:
                value = jsontext.read_strict(line)
            except jsontext.NotJson as error:
                raise EngramError(
                    f"the command wrote a line that is not JSON: {error}", type="serialization_error"
                ) from None
            if isinstance(value, dict) and set(value) == {"done"}:
                message = self._open.pop(str(value["done"]), None)
                if message is not None:
                    await self._session.finish(message)
            else:
                await self._publish(value)

    async def _publish(self, value: Any) -> None:
        reply_to = self._open.get(str(value.pop("replyTo", ""))) if isinstance(value, dict) else None
        try:
            members = publication(value)
        except BadMessage as error:
            raise EngramError(
                f"the command wrote a message that is not valid: {error}", type="validation_error"
            ) from None
        await self._session.publish(members, reply_to)


def publication(value: Any) -> dict[str, Any]:
    """What `publish` is called with for a message in its JSON form. Raises `BadMessage`."""
    message = read_message(value, "", 0)
    return {
        "payload": value.get("payload"),
        "inputs": value.get("inputs"),
        "transports": value.get("transports"),
        "kind": value.get("kind") or "",
        "metadata": value.get("metadata"),
        "message_id": value.get("messageId") or "",
        "audio": message.audio,
        "video": message.video,
        "binary": message.binary,
        "envelope": value.get("envelope") if message.chunk is not None else None,
    }
