"""Loop: re-runs its inner scope while its continuation holds (MWL-430 to MWL-434)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from perdure.dialects.flow.middleware.protocol import Again, Emit, Middleware, MiddlewareDirective, Pass, PhaseContext
from perdure.expressions.mwl.condition_analysis import rounds_of

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.program import MiddlewareEntry
    from perdure.dialects.flow.views.net import Ends, FlowNet

COUNTER = ("middleware", "metadata", "iteration")


class Loop(Middleware):
    uri = "mwl:provider.middleware/mwl/loop/v1"
    metadata: ClassVar = {"iteration": 0}
    reruns = True
    required = (("onSuccess", "when"),)

    def on_entry(self, context: PhaseContext) -> MiddlewareDirective:
        return Emit() if context.arguments is None else Pass(becomes={"iteration": 1})

    def on_success(self, context: PhaseContext) -> MiddlewareDirective:
        if context.arguments is None:
            return Pass()
        return Again(becomes={"iteration": context.metadata["iteration"] + 1})

    def build_net(
        self, net: "FlowNet", entry: "MiddlewareEntry", at: int, part: int, inside: "Callable[[int], Ends]"
    ) -> "Ends":
        """It runs again while its condition holds; its own counter may end it."""
        again = net.net.place()
        net.go(part, "", at, again, is_start=False)
        ends = net.wrapped(entry, again, part, inside)
        out = net.net.place()
        when = entry.phase("onSuccess").when
        holds = net.condition(when)
        body = "" if when is None or when.expression is None else when.expression.body
        rounds = rounds_of(body, frozenset({"middleware"}), COUNTER) if when is not None and body else None
        if holds is not False and rounds != 0:
            net.go(part, "runs again", ends.ok, again, is_bounded=rounds is not None, is_start=False)
        if (holds is not True or rounds is not None) and (rounds is not None or not net.always_holds(body)):
            net.go(part, "", ends.ok, out, is_start=False)
        first = net.condition(entry.phase("onEntry").when)
        if first is not True:
            net.go(part, "is passed over", at, out, is_start=False)
        left = net.moved(ends, out)
        for failure, place in ends.failures.items():
            net.go(part, "", place, left.failures[failure], is_start=False)
        return left
