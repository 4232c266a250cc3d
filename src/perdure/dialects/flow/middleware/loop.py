"""Loop: re-runs its inner scope while its continuation holds (MWL-430 to MWL-434)."""

from typing import ClassVar

from perdure.dialects.flow.middleware.protocol import Again, Emit, Middleware, MiddlewareDirective, Pass, PhaseContext


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
