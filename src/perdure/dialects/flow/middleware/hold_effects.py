"""HoldEffects: effects in doubt of the calls inside wait for an operator instead of being performed again."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from perdure.dialects.flow.middleware.protocol import Middleware

if TYPE_CHECKING:
    from perdure.dialects.flow.plan.program import MiddlewareEntry
    from perdure.dialects.flow.views.net import Ends, FlowNet


class HoldEffects(Middleware):
    """It has no action: the compiler reads it, and marks every task of the calls inside."""

    uri = "mwl:provider.middleware/perdure/hold-effects/v1"

    def build_net(
        self, net: "FlowNet", entry: "MiddlewareEntry", at: int, part: int, inside: "Callable[[int], Ends]"
    ) -> "Ends":
        return net.wrapped(entry, at, part, inside)
