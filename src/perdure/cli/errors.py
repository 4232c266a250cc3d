"""What can be wrong with a command itself, apart from what the engine has to say."""

from perdure.kernel.errors import PerdureError
from perdure.views.errors import BadRequest


class BadUsage(BadRequest):
    """The arguments of the command do not fit each other."""


class RunStuck(PerdureError):
    """A run cannot be decided: a fault in Perdure, in a language, or a missing value."""

    code = "RUN-STUCK"
    hint = "Its inputs are kept. After an upgrade or a repair try it again with `perdure resume RUN`."
