"""Finally: dispatches a cleanup call on every exit (MWL-440 to MWL-443)."""

from perdure.dialects.flow.middleware.protocol import Cleanup, Directive, Middleware, Moment, Pass


class Finally(Middleware):
    uri = "mwl:provider.middleware/mwl/finally/v1"
    dispatches = True

    def on_always(self, moment: Moment) -> Directive:
        return Pass() if moment.arguments is None else Cleanup()
