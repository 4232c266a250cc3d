"""The list of Engrams whose code is here, and how one is added to it."""

import importlib
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from perdure.providers.context import BlockingContext, TaskContext
from perdure.providers.off_loop import run_in_thread
from perdure.providers.registry import Mode, Provider, Registry, shared
from perdure.services.story.engrams import catalog_entries
from perdure.services.story.engrams.context import EngramContext
from perdure.services.story.engrams.hydration import hydrate_inputs, mentions_storage
from perdure.services.story.engrams.shipped import TEMPLATES

# From a task to the call of an Engram's function, and from what it gave to the step's output.


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
            ours.logbook.report_blocking(context)

    async def call_coroutine(context: TaskContext, **task: Any) -> Any:
        ours = EngramContext(context, task)
        try:
            if mentions_storage(task.get("inputs")):  # files, and perhaps large ones
                return await function(*await run_in_thread(lambda: arguments(ours, context, task), "perdure-storage"))
            return await function(*arguments(ours, context, task))
        finally:
            await ours.logbook.report(context)

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


_F = TypeVar("_F", bound=Callable[..., Any])


def provider_name(template: str, version: str) -> str:
    return f"engram:{template}@{version}"


class Engrams:
    """Templates by name, each with the Engram of that name in `default`. What users apply comes before these."""

    def __init__(self, providers: Registry) -> None:
        self._providers = providers
        self._templates: dict[str, dict[str, Any]] = {}

    def find(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """The resource that stands for code of ours, if there is one."""
        template = self._template(name)
        if template is None:
            return None
        if kind == "EngramTemplate":
            return template
        if kind == "Engram" and namespace == catalog_entries.NAMESPACE:
            return catalog_entries.engram(name, template["spec"]["version"])
        return None

    def names(self) -> list[str]:
        return sorted({*self._templates, *TEMPLATES})

    def engram(
        self,
        name: str,
        *,
        version: str = "1.0.0",
        description: str = "",
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        config_schema: Mapping[str, Any] | None = None,
        secrets: Mapping[str, Any] | None = None,
        output_keys: Sequence[str] = (),
        timeout: str = "",
        retry: Mapping[str, Any] | None = None,
        isolated: bool = False,
    ) -> Callable[[_F], _F]:
        """Register the decorated `f(inputs, context)`, plain or a coroutine function; it stays an ordinary function.

        `retry` and `timeout` are recommendations, which an Engram, a Story or a step may override;
        an `isolated` function runs in a subprocess that can be killed.
        """

        def register(function: _F) -> _F:
            said = description or (function.__doc__ or "").strip()
            template = catalog_entries.template(
                name,
                version,
                description=said,
                input_schema=input_schema,
                output_schema=output_schema,
                config_schema=config_schema,
                secrets=secrets,
                output_keys=tuple(output_keys),
                timeout=timeout,
                retry=retry,
            )
            self.add(template, function, isolated=isolated)
            return function

        return register

    def add(self, template: dict[str, Any], function: Callable[..., Any], *, isolated: bool = False) -> None:
        self._providers.add(as_provider(template, function, mode=Mode.ISOLATED if isolated else None))
        self._templates[template["metadata"]["name"]] = template

    def _template(self, name: str) -> dict[str, Any] | None:
        found = self._templates.get(name)
        if found is None and name in TEMPLATES:
            found = self._templates[name] = importlib.import_module(TEMPLATES[name]).TEMPLATE
        return found


def as_provider(
    template: dict[str, Any],
    function: Callable[..., Any],
    *,
    mode: Mode | None = None,
    close: Callable[[], Awaitable[None]] | None = None,
    computes: bool = False,
) -> Provider:
    """An Engram's code among the providers. One of ours that `computes` does so where it holds up nobody."""
    name, version = template["metadata"]["name"], template["spec"]["version"]
    schema = template["spec"].get("inputSchema", {})
    return Provider.of(
        provider_name(name, version),
        as_task(function),
        mode=mode,
        description=template["spec"].get("description", ""),
        declared={"type": "object", "properties": {"inputs": schema}, "required": ["inputs"]},
        prefix="Engram",
        source=Provider.of(name, function).source,
        close=close,
        memory=_memory if computes else None,
        mode_for=_mode if computes else None,
        stands_for=function,
    )


def _memory() -> int:
    return 1024 * 1024 * 1024


def _mode(task: Mapping[str, Any]) -> Mode:
    """What lies in storage may be large, and reading it would hold up every thread."""
    return Mode.ISOLATED if mentions_storage(task.get("inputs")) else Mode.THREAD


shared_engrams = Engrams(shared)
"""Those of this process."""

engram = shared_engrams.engram
