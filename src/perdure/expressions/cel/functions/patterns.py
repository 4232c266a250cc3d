"""`matches`: calls the package `regex`, and charges for the search."""

from typing import TYPE_CHECKING

from perdure.expressions.cel.frame import Frame, charge, spend
from perdure.expressions.errors import EvaluationFault

if TYPE_CHECKING:
    from perdure.expressions.regex import Pattern


def search(frame: Frame, text: str, pattern: str) -> bool:
    return search_compiled(frame, text, compile_at_run_time(frame, pattern))


def search_compiled(frame: Frame, text: str, pattern: "Pattern") -> bool:
    return pattern.search(text, lambda steps: charge(frame, steps))


def compile_at_run_time(frame: Frame, pattern: str) -> "Pattern":
    """A pattern known only now is charged for even when it is cached, so that costs never vary."""
    from perdure.expressions.regex import price_of_compiling

    charge(frame, price_of_compiling(pattern))
    compiled = compile_checked(pattern)
    charge(frame, 40 * compiled.size)
    spend(frame, 1000 + 400 * compiled.size)
    return compiled


def compile_checked(pattern: str) -> "Pattern":
    from perdure.expressions.regex import BadPattern, compile_pattern  # few expressions have one

    try:
        return compile_pattern(pattern)
    except BadPattern as bad:
        raise EvaluationFault(f"invalid regular expression: {bad}") from None
