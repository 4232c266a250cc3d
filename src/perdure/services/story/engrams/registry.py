"""The registry of Engrams whose code is loaded."""

import importlib
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from perdure.providers.context import BlockingContext, TaskContext, argument_text
from perdure.providers.off_loop import run_in_thread
from perdure.providers.registry import Mode, Provider, Registry, shared
from perdure.services.story.engrams import engram_resources
from perdure.services.story.engrams.context import EngramContext
from perdure.services.story.engrams.hydration import hydrate_inputs, mentions_storage
from perdure.services.story.engrams.shipped import TEMPLATES

# Adapts an Engram's function to the arguments of a provider.


def as_task(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a provider calls it: with the task's arguments by name (see the Story's task contract)."""
    parameter_count = _parameters(function)

    def arguments(
        engram_context: EngramContext, context: TaskContext | BlockingContext, task: dict[str, Any]
    ) -> list[Any]:
        return [inputs_of(context, task), engram_context][:parameter_count]

    def inputs_of(context: TaskContext | BlockingContext, task: dict[str, Any]) -> dict[str, Any]:
        namespace = str((task.get("storyRun") or {}).get("namespace") or "default")
        return hydrate_inputs(task, context.secrets, namespace, context.run, argument_text(context))

    def call(context: BlockingContext, **task: Any) -> Any:
        if parameter_count == 1:  # it has no context to log with
            return function(inputs_of(context, task))
        engram_context = EngramContext(context, task)
        try:
            return function(*arguments(engram_context, context, task))
        finally:
            engram_context.logbook.report_blocking(context)

    async def call_coroutine(context: TaskContext, **task: Any) -> Any:
        engram_context = EngramContext(context, task)
        try:
            if mentions_storage(task.get("inputs")):  # reads files, which may be large
                return await function(
                    *await run_in_thread(lambda: arguments(engram_context, context, task), "perdure-storage")
                )
            return await function(*arguments(engram_context, context, task))
        finally:
            await engram_context.logbook.report(context)

    return call_coroutine if inspect.iscoroutinefunction(function) else call


def _parameters(function: Callable[..., Any]) -> int:
    """How many of `inputs` and `context` a function takes, in that order."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return 2
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return 2
    required = [parameter for parameter in positional[2:] if parameter.default is parameter.empty]
    if required or any(
        parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty for parameter in parameters
    ):
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"engram {name!r} must take (inputs, context), (inputs) or no arguments")
    return min(len(positional), 2)


_F = TypeVar("_F", bound=Callable[..., Any])


def provider_name(template: str, version: str) -> str:
    return f"engram:{template}@{version}"


class Engrams:
    """Templates by name, each with the Engram of that name in `default`. Applied resources take precedence."""

    def __init__(self, providers: Registry) -> None:
        self._providers = providers
        self._templates: dict[str, dict[str, Any]] = {}
        self.streaming: dict[str, Callable[..., Any]] = {}  # workers of streaming Stories, by provider

    def find(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """The resource that represents loaded code, if any."""
        template = self._template(name)
        if template is None:
            return None
        if kind == "EngramTemplate":
            return template
        if kind == "Engram":
            mode = template["spec"]["supportedModes"][0]
            return engram_resources.engram(name, namespace, template["spec"]["version"], mode)
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

        `retry` and `timeout` are recommendations that an Engram, a Story or a step may override; an `isolated`
        function runs in a subprocess that can be killed.
        """

        def register(function: _F) -> _F:
            text = description or (function.__doc__ or "").strip()
            template = engram_resources.template(
                name,
                version,
                description=text,
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

    def streaming_engram(
        self,
        name: str,
        *,
        version: str = "1.0.0",
        description: str = "",
        input_schema: Mapping[str, Any] | None = None,
        config_schema: Mapping[str, Any] | None = None,
        secrets: Mapping[str, Any] | None = None,
        retry: Mapping[str, Any] | None = None,
    ) -> Callable[[_F], _F]:
        """Register the decorated worker of streaming Stories; it stays an ordinary function.

        `async def work(config, messages, context)` reads messages and publishes; a plain
        `def work(config, message, context)` is called for every message, and what it returns is published.
        """

        def register(function: _F) -> _F:
            template = engram_resources.template(
                name,
                version,
                description=description or (function.__doc__ or "").strip(),
                input_schema=input_schema,
                config_schema=config_schema,
                secrets=secrets,
                retry=retry,
                modes=("deployment", "statefulset"),
            )
            from perdure.services.story.streams.topology_task import topology_provider

            provider = provider_name(name, version)
            self._providers.add(topology_provider(provider, function))
            self._templates[name] = template
            self.streaming[provider] = function
            return function

        return register

    def add(self, template: dict[str, Any], function: Callable[..., Any], *, isolated: bool = False) -> None:
        self._providers.add(as_provider(template, function, mode=Mode.ISOLATED if isolated else None))
        self._templates[template["metadata"]["name"]] = template

    def _template(self, name: str) -> dict[str, Any] | None:
        template = self._templates.get(name)
        if template is None and name in TEMPLATES:
            template = self._templates[name] = importlib.import_module(TEMPLATES[name]).TEMPLATE
        return template


def as_provider(
    template: dict[str, Any],
    function: Callable[..., Any],
    *,
    mode: Mode | None = None,
    close: Callable[[], Awaitable[None]] | None = None,
    computes: bool = False,
) -> Provider:
    """The provider that executes an Engram's code. With `computes`, it runs in a thread or a process of its own."""
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
    """Isolate tasks with stored values: these may be large, and reading them would block every thread."""
    return Mode.ISOLATED if mentions_storage(task.get("inputs")) else Mode.THREAD


shared_engrams = Engrams(shared)
"""The Engrams of this process."""

engram = shared_engrams.engram
streaming_engram = shared_engrams.streaming_engram
