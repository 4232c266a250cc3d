"""Which variable a dotted name means: scope, container, and the longest name that is declared."""

from itertools import accumulate

import msgspec

from perdure.expressions.cel import syntax
from perdure.expressions.cel.syntax import Node


class Scope(msgspec.Struct, frozen=True):
    """The variables an expression may read. `names` is None when they are not known beforehand."""

    names: frozenset[str] | None = None
    container: str = ""

    def find(self, path: tuple[str, ...], *, absolute: bool) -> tuple[str, int] | None:
        """The variable that a path begins with and how many parts of the path name it.

        `a.b.c` in container `x.y` is, in this order: x.y.a.b.c, x.a.b.c, a.b.c, x.y.a.b, …, a.
        """
        if self.names is None:
            return path[0], 1
        containers = [""] if absolute else _containers(self.container)
        for length in range(len(path), 0, -1):
            dotted = ".".join(path[:length])
            for prefix in containers:
                if prefix + dotted in self.names:
                    return prefix + dotted, length
        return None


def _containers(container: str) -> list[str]:
    """`x.y` has the prefixes `x.y.`, `x.` and the empty one."""
    parts = container.split(".") if container else []
    return [f"{prefix}." for prefix in reversed(list(accumulate(parts, "{}.{}".format)))] + [""]


def dotted_path(node: Node) -> tuple[tuple[str, ...], bool] | None:
    """The parts of `a.b.c` and whether it was written `.a.b.c`; None for anything else."""
    parts: list[str] = []
    while isinstance(node, syntax.Select) and not node.optional:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, syntax.Name):
        return None
    return (node.name, *reversed(parts)), node.absolute


def qualified_function(call: syntax.CallExpression) -> str | None:
    """`math.abs` for the call `math.abs(x)`; None when the target is not a plain name."""
    if call.target is None:
        return None
    path = dotted_path(call.target)
    return None if path is None else ".".join((*path[0], call.function))
