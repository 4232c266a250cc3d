"""From a task to the call of an Engram's function, and from what it gave to the step's output."""

import inspect
from collections.abc import Callable
from typing import Any

from perdure.providers.context import BlockingContext, TaskContext
from perdure.providers.off_loop import apart
from perdure.services.story.engrams.context import EngramContext
from perdure.services.story.engrams.hydration import hydrate_inputs, mentions_storage


def as_task(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a provider calls it: with the task's arguments by name (see the Story's task contract)."""
    given = _parameters(function)

    def arguments(ours: EngramContext, context: TaskContext | BlockingContext, task: dict[str, Any]) -> list[Any]:
        inputs = hydrate_inputs(task, context.secrets, ours.namespace, context.run)
        return [inputs, ours][:given]

    def call(context: BlockingContext, **task: Any) -> Any:
        ours = EngramContext(context, task)
        try:
            return function(*arguments(ours, context, task))
        finally:
            ours.logbook.tell_blocking(context)

    async def call_coroutine(context: TaskContext, **task: Any) -> Any:
        ours = EngramContext(context, task)
        try:
            if mentions_storage(task.get("inputs")):  # files, and perhaps large ones
                return await function(*await apart(lambda: arguments(ours, context, task), "perdure-storage"))
            return await function(*arguments(ours, context, task))
        finally:
            await ours.logbook.tell(context)

    return call_coroutine if inspect.iscoroutinefunction(function) else call


def _parameters(function: Callable[..., Any]) -> int:
    """An Engram takes `inputs` and `context`, or as many of them as it wants, in that order."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return 2
    wanted = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 2
    required = [p for p in wanted[2:] if p.default is p.empty]
    if required or any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"engram {name!r} must take (inputs, context), (inputs) or nothing")
    return min(len(wanted), 2)
