"""Finally: dispatches a cleanup call on every exit (MWL-440 to MWL-443)."""

from perdure.dialects.flow.middleware.protocol import Cleanup, Middleware, MiddlewareDirective, Pass, PhaseContext


class Finally(Middleware):
    uri = "mwl:provider.middleware/mwl/finally/v1"
    dispatches = True

    def on_always(self, context: PhaseContext) -> MiddlewareDirective:
        return Pass() if context.arguments is None else Cleanup()
