"""What every template of one place in a Story shares: which roots it may read, its functions, its limits.

The places themselves (batch, streaming, trigger keys, …) are the dialect's to define.
"""

import msgspec
from msgspec.structs import replace

from perdure.expressions.gotemplate.budget import DEFAULT_LIMITS, Limits
from perdure.expressions.gotemplate.functions import DETERMINISTIC, Library

KNOWN_ROOTS = frozenset({"inputs", "steps", "packet", "step", "engram", "story", "impulse", "context"})


class Environment(msgspec.Struct, frozen=True):
    """`roots` of None allows any; `scope` names the kind of template in messages (STY-035)."""

    roots: frozenset[str] | None = None
    scope: str = "these"
    library: Library = DETERMINISTIC
    limits: Limits = DEFAULT_LIMITS
    typed_functions: bool = False  # STY-199: every single action keeps a type, not only Go's builtins
    refuses_absent: bool = False  # STY-280: who reads a missing key fails, where its result is an identity
    variables: frozenset[str] = frozenset()  # roots bound by the value around the template (STY-193)

    @property
    def bare_roots(self) -> frozenset[str]:
        """Names that may be written without a leading dot (STY-195). A function's name stays the function's."""
        names = self.variables | (self.roots or frozenset())
        return KNOWN_ROOTS | {root for root in names if root not in self.library.functions}

    def allows(self, root: str | int) -> bool:
        return self.roots is None or root in self.roots or root in self.variables

    def binding(self, variables: frozenset[str] | None) -> "Environment":
        """The same place with more roots; None when their names are not known before rendering."""
        if variables is None:
            return replace(self, roots=None)
        return replace(self, variables=self.variables | variables)


DEFAULT = Environment()
