"""Everything an expression can call, one module per library."""

from perdure.expressions.cel.functions import (
    conversions,
    encoders,
    formatting,
    lists,
    mathematics,
    optionals,
    sets,
    standard,
    strings,
)
from perdure.expressions.cel.functions.library import Function, Library, merge

STANDARD = merge(
    module.LIBRARY
    for module in (standard, conversions, strings, formatting, mathematics, lists, sets, encoders, optionals)
)

__all__ = ["STANDARD", "Function", "Library", "merge"]
