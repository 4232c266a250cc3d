"""What a middleware is: a contract, and for each phase a pure action that returns what is to happen.

The engine does the rest: evaluation order, shaping, `assign`, establishment, unwinding. An action only reads its
`PhaseContext` and returns a directive; what it has to remember is part of the directive, as JSON data.

To write a middleware, derive from `Middleware` and register it with `middleware.register`.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from perdure.dialects.flow.plan.schemas import NO_PARAMETERS, Parameters
from perdure.dialects.flow.state.failures import Envelope
from perdure.kernel.json_values.values import Instant

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.program import MiddlewareEntry
    from perdure.dialects.flow.views.net import Ends, FlowNet

PHASES = ("onEntry", "onSuccess", "onFailure", "onAlways")


class PhaseContext(msgspec.Struct, frozen=True):
    """What an action may read."""

    at: Instant  # when the phase was entered
    arguments: dict[str, Any] | None  # validated; None if `when` disabled the action
    result: dict[str, Any] | None  # the Result rising at this position; None on the way in
    config: Any  # what onEntry captured
    memory: Any  # what the last action stored
    metadata: Mapping[str, Any]
    draw: Callable[[], float]  # a number in [0, 1) from the run's recorded seed


class MiddlewareDirective(msgspec.Struct, frozen=True, kw_only=True):
    """`reveals`: metadata readable from this phase's shaping on; `becomes`: metadata of the next run."""

    config: Any = None
    memory: Any = None
    reveals: Mapping[str, Any] = msgspec.field(default_factory=dict)
    becomes: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Pass(MiddlewareDirective, frozen=True, kw_only=True):
    """Change nothing."""


class Emit(MiddlewareDirective, frozen=True, kw_only=True):
    """Substitute a whole Result. On entry nothing inside runs; None there means the onEntry product, as a success."""

    result: dict[str, Any] | None = None


class Again(MiddlewareDirective, frozen=True, kw_only=True):
    """Run the inner scope once more, after `delay`; `restore` puts the variables back as they were at entry."""

    delay: Instant = 0
    restore: bool = False


class SetBound(MiddlewareDirective, frozen=True, kw_only=True):
    """Interrupt the inner scope at `deadline`, explained by `failure`, unless a Result has arrived by then."""

    deadline: Instant
    failure: Envelope


class Cleanup(MiddlewareDirective, frozen=True, kw_only=True):
    """Dispatch the call that the document writes in this phase's `with.call`."""


class Middleware:
    """A middleware without any action; derive from it and override the phases that act."""

    uri: ClassVar[str]
    attachment: ClassVar[frozenset[str]] = frozenset({"step", "flow"})
    parameters: ClassVar[Mapping[str, Parameters]] = {}  # by phase; a phase that is not listed takes no arguments
    metadata: ClassVar[Mapping[str, Any]] = {}  # contributed members, as they are before the first run
    reruns: ClassVar[bool] = False
    restores: ClassVar[bool] = False
    dispatches: ClassVar[bool] = False  # `onAlways.with` holds a structural `call` and `middleware`
    required: ClassVar[tuple[tuple[str, str], ...]] = ()  # (phase, key) that an entry must have
    renews: ClassVar[bool] = False  # a redrive runs `on_entry` again: its bound or its memory begins anew

    @property
    def is_ours(self) -> bool:
        return self.uri.startswith("mwl:provider.middleware/mwl/")

    @property
    def prefix(self) -> str:
        """The segment of its failure codes: `rate-limit` becomes `RateLimit`."""
        return "".join(word.capitalize() for word in re.split(r"[^0-9A-Za-z]+", self.uri.split("/")[2]))

    def parameters_of(self, phase: str) -> Parameters:
        return self.parameters.get(phase, NO_PARAMETERS)

    def on_entry(self, context: PhaseContext) -> MiddlewareDirective:
        return Pass()

    def on_success(self, context: PhaseContext) -> MiddlewareDirective:
        return Pass()

    def on_failure(self, context: PhaseContext) -> MiddlewareDirective:
        return Pass()

    def on_always(self, context: PhaseContext) -> MiddlewareDirective:
        return Pass()

    def build_net(
        self, net: "FlowNet", entry: "MiddlewareEntry", at: int, part: int, inside: "Callable[[int], Ends]"
    ) -> "Ends":
        """What may happen from `at` on, around what is `inside`; of one that is not ours, anything."""
        ends = net.wrapped(entry, at, part, inside)
        if not self.is_ours:
            net.waits += 1
            net.go(part, "ends", at, ends.ok, is_start=False)
            net.go(part, "fails", at, net.failed(ends, net.unknown), is_start=False)
            for place in list(ends.failures.values()):
                net.go(part, "ends", place, ends.ok, is_start=False)
            for place in (ends.ok, *ends.failures.values()) if self.reruns else ():
                net.go(part, "runs again", place, at, waits=True, is_start=False)
        return ends
