"""HoldEffects: effects in doubt of the calls inside wait for an operator instead of being performed again."""

from perdure.dialects.flow.middleware.protocol import Middleware


class HoldEffects(Middleware):
    """It has no action: the compiler reads it, and marks every task of the calls inside."""

    uri = "mwl:provider.middleware/perdure/hold-effects/v1"
