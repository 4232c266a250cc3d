"""How a function is declared: a table from the exact types of its arguments to a Python function.

An implementation takes the frame and the arguments. It never sees a type that it did not declare.
"""

from collections.abc import Callable, Iterable
from itertools import product

import msgspec

from perdure.expressions.cel.instants import Duration, Timestamp
from perdure.expressions.cel.values import CelList, CelMap, Optional, TypeValue, Uint, Value, type_name
from perdure.expressions.errors import EvaluationFault

Implementation = Callable[..., Value]
Parameter = type | tuple[type, ...]

LIST = (list, CelList)
MAP = (dict, CelMap)
NUMBER = (int, Uint, float)
ANY = (type(None), bool, str, bytes, *NUMBER, *LIST, *MAP, Timestamp, Duration, Optional, TypeValue)


class Function:
    """Overloads under one name. `variadic`, if set, handles every call that no overload does."""

    __slots__ = ("arities", "overloads", "variadic")

    def __init__(
        self, *overloads: tuple[tuple[Parameter, ...], Implementation], variadic: Implementation | None = None
    ) -> None:
        self.overloads: dict[tuple[type, ...], Implementation] = {}
        self.variadic = variadic
        for signature, implementation in overloads:
            choices = [parameter if isinstance(parameter, tuple) else (parameter,) for parameter in signature]
            for types in product(*choices):
                self.overloads[types] = implementation
        self.arities = sorted({len(types) for types in self.overloads})

    def accepts(self, count: int) -> bool:
        return count in self.arities or self.variadic is not None

    def extended(self, other: "Function") -> "Function":
        """Both functions' overloads; those of the other win."""
        function = Function(variadic=other.variadic or self.variadic)
        function.overloads = {**self.overloads, **other.overloads}
        function.arities = sorted({*self.arities, *other.arities})
        return function


class Library(msgspec.Struct, frozen=True):
    """Functions called as `f(x)` (names may be qualified, `math.abs`) and methods called as `x.f()`."""

    functions: dict[str, Function] = msgspec.field(default_factory=dict)
    methods: dict[str, Function] = msgspec.field(default_factory=dict)


def merge(libraries: Iterable[Library]) -> Library:
    """One library of all; overloads under the same name are combined, later ones win."""
    merged = Library()
    for library in libraries:
        for ours, theirs in ((merged.functions, library.functions), (merged.methods, library.methods)):
            for name, function in theirs.items():
                ours[name] = ours[name].extended(function) if name in ours else function
    return merged


def no_overload(name: str, args: tuple[Value, ...], *, is_method: bool) -> EvaluationFault:
    types = [type_name(argument) for argument in args]
    signature = f"{types[0]}.{name}({', '.join(types[1:])})" if is_method else f"{name}({', '.join(types)})"
    return EvaluationFault(f"no such overload: {signature}")
