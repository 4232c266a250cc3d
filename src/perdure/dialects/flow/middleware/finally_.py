"""Finally: dispatches a cleanup call on every exit (MWL-440 to MWL-443)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from perdure.dialects.flow.middleware.protocol import Cleanup, Middleware, MiddlewareDirective, Pass, PhaseContext

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.program import MiddlewareEntry
    from perdure.dialects.flow.views.net import Ends, FlowNet


class Finally(Middleware):
    uri = "mwl:provider.middleware/mwl/finally/v1"
    dispatches = True

    def on_always(self, context: PhaseContext) -> MiddlewareDirective:
        return Pass() if context.arguments is None else Cleanup()

    def build_net(
        self, net: "FlowNet", entry: "MiddlewareEntry", at: int, part: int, inside: "Callable[[int], Ends]"
    ) -> "Ends":
        """Whatever rises waits beside the cleanup; a failure of the cleanup takes its place."""
        ends = net.wrapped(entry, at, part, inside)
        cleanup = net.cleanup_part(entry, part)
        holds = net.condition(entry.phase("onAlways").when)
        begin, out = net.net.place(part), net.net.place()
        left = net.moved(ends, out)
        inner = net.cleanup(entry.cleanup, begin, cleanup)
        if holds is not False:  # whoever ends a run that would go on for ever lets it clean up
            net.net.add(cleanup, "cleans up", (at,), (begin,), is_limit=True)
        for rising, place in [(ends.ok, out), *((ends.failures[item], left.failures[item]) for item in ends.failures)]:
            if holds is not True:
                net.go(part, "", rising, place, is_start=False)
            if net.may_fail(entry, "onAlways"):
                net.go(part, "fails", rising, net.failed(left, net.unknown), is_failure=True, is_start=False)
            kept = net.net.place()
            if holds is not False:
                net.net.add(cleanup, "cleans up", (rising,), (begin, kept))
            net.net.add(cleanup, "", (inner.ok, kept), (place,))
            for failure, failed in inner.failures.items():
                net.net.add(cleanup, "", (failed, kept), (net.failed(left, failure),))
        return left
