"""`engram.command`: an Engram whose code is a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perdure.kernel import jsontext
from perdure.providers.command import Command, by_shell, environment, refuse_secrets
from perdure.providers.context import TaskContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.registry import Provider
from perdure.services.story.engrams.external import filled_texts, output_of, report_stderr, task_document
from perdure.services.story.engrams.failure import EngramError

_SIGNALLED = 128  # by convention of shells: added to the number of the signal


async def command(context: TaskContext, run: dict[str, Any], **task: Any) -> dict[str, Any]:
    """Execute `run.argv` (a list, or one text for the shell), in `run.cwd`, with `run.env` added to the environment."""
    argv = run.get("argv")
    if not argv:
        raise EngramError("the template names no command", type="initialization_error")
    fed = jsontext.encode(task_document(context, task))
    given = filled_texts(context, task, run.get("env"))
    try:
        with _words(argv, context) as words:
            ended = await Command("Engram", words, environment(given, context), stdin=fed, cwd=run.get("cwd")).run()
    except ProviderFailure as failure:
        raise EngramError(failure.message, type="initialization_error", exit_code=127) from None
    await report_stderr(context, ended.output())
    code = ended.exit_code if ended.exit_code >= 0 else _SIGNALLED - ended.exit_code
    return output_of(code, ended.output())


@contextmanager
def _words(argv: str | list[Any], context: TaskContext) -> Iterator[list[str]]:
    if isinstance(argv, str):
        with by_shell(argv, context) as words:
            yield words
    else:
        yield refuse_secrets([str(word) for word in argv], context, "Engram")


PROVIDER = Provider.of("engram.command", command, prefix="Engram")
