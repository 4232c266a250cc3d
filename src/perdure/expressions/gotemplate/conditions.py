"""When a rendered `if` or `until` holds (STY-061)."""

from typing import Any

from perdure.expressions.gotemplate.errors import EvaluationFault

_TRUE = frozenset({"true", "1", "yes", "y"})
_FALSE = frozenset({"false", "0", "no", "n", ""})


def is_condition(text: str) -> bool:
    """Whether a text without braces is one of the words that a condition may be."""
    return text.strip().lower() in _TRUE | _FALSE


def holds(result: Any) -> bool:
    """A bool as it is, a few words in any case; anything else is an error."""
    if isinstance(result, bool):
        return result
    word = result.strip().lower() if isinstance(result, str) else None
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    shown = "" if word is None else f": {result[:60]!r}"
    raise EvaluationFault(f"condition did not resolve to boolean{shown}")
