"""The list of everything that tasks may call, shared by all languages.

Shipped providers are one line each and imported at their first use; importing this module must stay cheap, because
every command does it.
"""

import importlib
import importlib.util
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from perdure.providers.function import Function
from perdure.providers.task_outcomes import code_prefix
from perdure.services import PROVIDERS as LANGUAGE_PROVIDERS

_log = logging.getLogger("perdure.worker")

ENTRY_POINTS = "perdure.providers"

SHIPPED: Mapping[str, str] = {
    "container": "perdure.providers.container",
    "duckdb": "perdure.providers.duckdb",
    "echo": "perdure.providers.echo",
    "http": "perdure.providers.http",
    "nats": "perdure.providers.nats",
    "python": "perdure.providers.python",
    "postgres": "perdure.providers.postgres",
    "script": "perdure.providers.script",
    "shell": "perdure.providers.shell",
    "sqlite": "perdure.providers.sqlite",
    **{name: module for brought in LANGUAGE_PROVIDERS for name, module in brought.modules.items()},
}
"""Name → module whose `PROVIDER` is meant."""

REPLACEABLE = frozenset(name for brought in LANGUAGE_PROVIDERS for name in brought.replaceable)
"""Shipped providers that give way to a user's of the same name."""

_OWNERS = {prefix: brought.language for brought in LANGUAGE_PROVIDERS for prefix in brought.prefixes}


@lru_cache(maxsize=4096)
def language_of(name: str) -> str | None:
    """The language whose engine alone calls this provider; None: documents may name it.

    The arguments of such a provider contain what the engine has validated: which places are references to secrets,
    whose stored values may be read. Neither a document nor data may set them.
    """
    return next((language for prefix, language in _OWNERS.items() if name.startswith(prefix)), None)


EXTRAS: Mapping[str, tuple[str, str]] = {
    "duckdb": ("duckdb", "duckdb"),
    "nats": ("nats", "nats"),
    "postgres": ("psycopg", "postgres"),
}
"""Name → the library that it needs, and Perdure's extra that installs it."""

ANYTHING: Mapping[str, Any] = {"type": "object", "additionalProperties": True}
"""The schema of arguments of which nothing is known here."""

DATABASE = "database"
"""The group of providers that use databases; a worker limits how many tasks of a group it runs."""

_F = TypeVar("_F", bound=Callable[..., Any])


class Mode(Enum):
    """Where a provider's function runs."""

    INLINE = "inline"  # on the event loop, called directly: for cheap pure code
    ASYNC = "async"  # a coroutine on the event loop
    THREAD = "thread"  # off the event loop; can be abandoned, not stopped
    ISOLATED = "isolated"  # in a warm subprocess, which can be killed


QUICK = 0.005  # seconds that a call of a quick function may take

slow_providers: set[str] = set()
"""Those that were declared quick, of which a call in this process took longer."""


def note_slow(name: str, seconds: float) -> None:
    slow_providers.add(name)
    _log.warning(
        "%s was declared quick, but a call took %.1f ms: from now on it runs in threads", name, seconds * 1_000
    )


class DuplicateProvider(Exception):
    """Two functions have the same name; which one a workflow gets must not depend on import order."""

    def __init__(self, name: str, first: str, second: str) -> None:
        super().__init__(f"provider {name!r} is defined at {first} and again at {second}; rename one of them")


@dataclass(frozen=True)
class Provider:
    """One thing a task may call. `source` is what a subprocess imports to find the function again.

    `mode_for` lets the arguments choose the mode; `close` releases what calls have shared. A worker runs a limited
    number of a `group` at a time, and one at a time of calls with the same `turn_key`. `memory`: bytes that its
    subprocess may use; such a function runs no user code and keeps nothing between calls.
    """

    name: str
    function: Function
    mode: Mode
    description: str = ""
    declared: Mapping[str, Any] | None = None
    side_effects: bool = True
    declares_effects: bool = False  # its author says so; of others it is only possible
    prefix: str = ""
    source: str = ""
    mode_for: Callable[[Mapping[str, Any]], Mode] | None = None
    close: Callable[[], Awaitable[None]] | None = None
    group: str = ""
    memory: Callable[[], int] | None = None
    turn_key: Callable[[Mapping[str, Any]], str] | None = None
    stands_for: Callable[..., Any] | None = None  # what the user wrote, if that is not the function called here
    is_quick: bool = False  # called on the event loop, as long as no call of it has taken long
    carries_streams: bool = False  # it lives as long as its run: a cancel only tells it, and no loss is charged to it

    @classmethod
    def of(cls, name: str, function: Callable[..., Any], *, mode: Mode | None = None, **rest: Any) -> "Provider":
        """Describe a function; defaults are read from the function itself."""
        readable = Function(function)
        rest.setdefault("description", (function.__doc__ or "").strip())
        rest.setdefault("prefix", code_prefix(name))
        rest.setdefault("source", _origin(function))
        natural = Mode.ASYNC if readable.is_coroutine else Mode.THREAD
        return cls(name, readable, mode or natural, **rest)

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments: as declared, otherwise derived from the signature."""
        return self.declared if self.declared is not None else self.function.schema()

    @property
    def repeats_effects(self) -> bool:
        """Whether a second attempt repeats its side effects: it declares some, and is not given a key."""
        return self.declares_effects and not self.function.wants_context

    @property
    def place(self) -> str:
        code = getattr(self.stands_for or self.function.call, "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else self.source or "an unknown place"


@dataclass
class Registry:
    """Names and their providers. Looking up an unknown name returns None: the task then waits visibly."""

    sources: list[str] = field(default_factory=list)  # what `load` has loaded, in order
    _providers: dict[str, Provider] = field(default_factory=dict)
    _entry_points: dict[str, Any] | None = None
    _listeners: tuple[Callable[[], object], ...] = ()
    _elsewhere: set[str] = field(default_factory=set)

    def declare(self, name: str, parameters: Mapping[str, Any] | None = None) -> None:
        """Workers elsewhere have it: documents may call it although no code is here. Loaded code is not replaced."""
        if not self.knows(name):
            self._providers[name] = Provider.of(name, _done_elsewhere, declared=parameters or ANYTHING)
            self._elsewhere.add(name)

    def has_code(self, name: str) -> bool:
        """Whether it can be done in this process."""
        if name in self._elsewhere:
            return False
        return name in self._providers or name in SHIPPED or name in self._installed()  # every task asks: as `knows`

    def add(self, provider: Provider) -> Provider:
        registered = self._providers.get(provider.name)
        if provider.name in self._elsewhere:
            self._elsewhere.discard(provider.name)
            registered = None
        ours, gives_way = SHIPPED.get(provider.name), provider.name in REPLACEABLE
        if registered is not None and registered.source == ours and gives_way:
            registered = None
        if registered is not None or (ours is not None and not gives_way and provider.source != ours):
            first = registered.place if registered else SHIPPED[provider.name]
            raise DuplicateProvider(provider.name, first, provider.place)
        self._providers[provider.name] = provider
        for listeners in self._listeners if ours is None else ():  # shipped ones were known to be available before
            listeners()
        return provider

    def lend(self, provider: Provider) -> Callable[[], None]:
        """Add a provider, or replace one, until the returned function is called; for tests."""
        before = self._providers.get(provider.name)
        self._providers[provider.name] = provider

        def give_back() -> None:
            if before is None:
                self._providers.pop(provider.name, None)
            else:
                self._providers[provider.name] = before

        return give_back

    def with_declared(self, names: Iterable[str]) -> "Registry":
        """Another list, of what is known here and of these names, whose arguments may be anything."""
        known = Registry(self.sources, dict(self._providers), self._entry_points, _elsewhere=set(self._elsewhere))
        for name in names:
            known.declare(name)
        return known

    def watch(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call it, in any thread, after a provider was added; call the returned function to stop."""
        self._listeners = (*self._listeners, listener)

        def stop() -> None:
            self._listeners = tuple(other for other in self._listeners if other is not listener)

        return stop

    def find(self, name: str) -> Provider | None:
        return self._providers.get(name) or self._load_by_name(name)

    def knows(self, name: str) -> bool:
        """Whether `find` would return a provider, without importing anything."""
        return name in self._providers or name in SHIPPED or name in self._installed()

    def is_installed(self, name: str) -> bool:
        """Whether every process has it: it comes with Perdure or with another package."""
        return name in SHIPPED or name in self._installed()

    def lacks(self, name: str) -> str | None:
        """What to install before this provider can work here; None when nothing is missing."""
        library, extra = EXTRAS.get(name, (None, None))
        if library is None or importlib.util.find_spec(library) is not None:
            return None
        return f"perdure[{extra}]"

    def can_be_imported(self, provider: Provider) -> bool:
        """Whether another process can find this provider by importing what was imported here.

        A program's own file is not imported again: that could start the whole program once more.
        """
        if self.is_installed(provider.name):
            return True
        function = provider.stands_for or provider.function.call
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        if (
            module is None
            or module.__name__ == "__main__"
            or "<locals>" in getattr(function, "__qualname__", "<locals>")
        ):
            return False
        if getattr(module, "__file__", None) in self.sources:
            return True
        try:
            return importlib.util.find_spec(module.__name__) is not None
        except (ImportError, ValueError):  # it was created without an import
            return False

    def names(self) -> list[str]:
        return sorted({*self._providers, *SHIPPED, *self._installed()})

    # What documents may name: everything except what the engine of a language calls.

    def find_open(self, name: str) -> Provider | None:
        return self.find(name) if language_of(name) is None else None

    def knows_open(self, name: str) -> bool:
        return language_of(name) is None and self.knows(name)

    def repeats_effects(self, name: str) -> bool:
        provider = self._providers.get(name)  # one that nothing has loaded declares nothing
        return provider is not None and provider.repeats_effects

    def open_names(self) -> list[str]:
        return [name for name in self.names() if language_of(name) is None]

    def __iter__(self) -> Iterator[Provider]:
        """Those that were used or registered in this process."""
        return iter(list(self._providers.values()))

    def provider(
        self,
        name: str,
        *,
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
        side_effects: bool | None = None,
        isolated: bool = False,
        inline: bool = False,
        quick: bool = False,
        prefix: str = "",
    ) -> Callable[[_F], _F]:
        """Register the decorated function; it stays an ordinary function.

        A plain function runs in a thread, a coroutine function on the event loop, an `isolated` one in a subprocess
        that can be killed. `inline` is for pure code of a few microseconds: it delays everything else while it runs.
        `quick` is for a plain function without a context that takes less than 5 ms: it is called without a thread
        while its arguments are small, until a call has taken longer.

        `side_effects=True` says that each call changes something outside: `check` then warns of retries that repeat it,
        unless the function takes a context, which has a key. `False` says that it changes nothing.
        """
        if inline + isolated + quick > 1:
            raise ValueError(f"provider {name!r}: a function is one of inline, isolated and quick")
        mode = Mode.ISOLATED if isolated else Mode.INLINE if inline else None

        def register(function: _F) -> _F:
            texts = {"description": description, "prefix": prefix}
            chosen: dict[str, Any] = {key: value for key, value in texts.items() if value}
            described = Provider.of(
                name,
                function,
                mode=mode,
                declared=parameters,
                side_effects=side_effects is not False,
                declares_effects=side_effects is True,
                is_quick=quick,
                **chosen,
            )
            if quick and (described.function.is_coroutine or described.function.wants_context):
                raise ValueError(f"provider {name!r}: a quick function is a plain one, without a context")
            self.add(described)
            return function

        return register

    def _load_by_name(self, name: str) -> Provider | None:
        if module := SHIPPED.get(name):
            return self.add(importlib.import_module(module).PROVIDER)
        if point := self._installed().get(name):
            loaded = point.load()
            # Loading may have run a decorator, which has registered the provider already.
            return self._providers.get(name) or self.add(
                loaded if isinstance(loaded, Provider) else Provider.of(name, loaded)
            )
        return None

    def _installed(self) -> dict[str, Any]:
        if self._entry_points is None:
            from importlib.metadata import entry_points

            self._entry_points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
        return self._entry_points


def _done_elsewhere(**arguments: Any) -> None:
    """It is done by workers elsewhere."""
    raise RuntimeError("this provider is done by workers elsewhere")


def _origin(function: Callable[..., Any]) -> str:
    """What to load to have the function registered again; a script is its file, because it has no other name."""
    name = getattr(function, "__module__", None) or ""
    return str(getattr(sys.modules[name], "__file__", name)) if name == "__main__" else name


shared = Registry()
"""The registry of this process."""

provider = shared.provider
