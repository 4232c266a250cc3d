"""HoldEffects: effects in doubt of the calls inside wait for an operator instead of being performed again."""

from perdure.dialects.flow.middleware.protocol import Middleware


class HoldEffects(Middleware):
    """It has no action: what it says is read when the Flow is compiled, and goes with every task of its calls."""

    uri = "mwl:provider.middleware/perdure/hold-effects/v1"
