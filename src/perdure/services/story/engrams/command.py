"""`engram.command`: an Engram whose code is a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perdure.providers.command import Command, by_shell, environment, refuse_secrets, stdin_of
from perdure.providers.context import TaskContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.registry import Provider
from perdure.services.story.engrams.external import check_origin, filled_texts, output_of, report_stderr, task_document
from perdure.services.story.engrams.failure import EngramError

_SIGNALLED = 128  # shell convention: the exit code is 128 plus the signal number


async def command(context: TaskContext, run: dict[str, Any], **task: Any) -> dict[str, Any]:
    """Execute `run.argv` (a list, or a string for the shell) in `run.cwd`, with `run.env` added to the environment."""
    check_origin(context, PROVIDER.name, task)
    argv = run.get("argv")
    if not argv:
        raise EngramError("the template does not name a command", type="initialization_error")
    stdin = await stdin_of(task_document(context, task))
    variables = filled_texts(context, task, run.get("env"))
    try:
        with command_words(argv, context) as words:
            result = await Command(
                "Engram", words, environment(variables, context), stdin=stdin, cwd=run.get("cwd")
            ).run()
    except ProviderFailure as failure:
        raise EngramError(failure.message, type="initialization_error", exit_code=127) from None
    await report_stderr(context, result.output())
    return await output_of(exit_code(result.exit_code), result.output())


def exit_code(status: int) -> int:
    """The exit code of a process as a shell has it, also of one that a signal has ended."""
    return status if status >= 0 else _SIGNALLED - status


@contextmanager
def command_words(argv: str | list[Any], context: TaskContext) -> Iterator[list[str]]:
    if isinstance(argv, str):
        with by_shell(argv, context) as words:
            yield words
    else:
        yield refuse_secrets([str(word) for word in argv], context, "Engram")


PROVIDER = Provider.of("engram.command", command, prefix="Engram")
