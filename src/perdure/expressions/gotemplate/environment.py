"""What every template of one place in a Story shares: which roots it may read, its functions, its limits.

The places themselves (batch, streaming, trigger keys, …) are the dialect's to define.
"""

from dataclasses import dataclass, replace

from perdure.expressions.gotemplate.budget import DEFAULT_LIMITS, Limits
from perdure.expressions.gotemplate.functions import DETERMINISTIC, Library

KNOWN_ROOTS = frozenset({"inputs", "steps", "packet", "step", "engram", "story", "impulse", "context"})


@dataclass(frozen=True, slots=True)
class Environment:
    """`roots` of None allows any; `scope` names the kind of template in messages (STY-035)."""

    roots: frozenset[str] | None = None
    scope: str = "these"
    library: Library = DETERMINISTIC
    limits: Limits = DEFAULT_LIMITS
    typed_functions: bool = False  # STY-199: every single action keeps a type, not only Go's builtins

    @property
    def bare_roots(self) -> frozenset[str]:
        """Names that may be written without a leading dot (STY-195). A function's name stays the function's."""
        return KNOWN_ROOTS | {root for root in self.roots or () if root not in self.library.functions}

    def with_roots(self, names: frozenset[str] | None) -> "Environment":
        """The same place with more roots; None when they are not known before rendering."""
        return replace(self, roots=None if names is None or self.roots is None else self.roots | names)


DEFAULT = Environment()
