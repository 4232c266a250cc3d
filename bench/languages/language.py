"""What a language has to write down to be measured."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Document = bytes


@dataclass(frozen=True)
class Language:
    """`provider` names what a step calls; every document returns something `value_of` can read."""

    title: str
    sequence: Callable[[int, str], Document]
    """So many steps, written one after the other; each gets what the one before returned, the first the run's input."""
    rounds: Callable[[int, str], Document]
    """One step, gone through so many times, one after the other, as the language loops."""
    fan: Callable[[int, str], Document]
    """So many steps side by side, gathered."""
    wait: Callable[[int], Document]
    """Nothing but a durable wait of so many seconds."""
    given: Callable[[Any], Any] = lambda value: value
    """How the run's input carries a value."""
    value_of: Callable[[Any], Any] = lambda result: result
    """What the last step returned, out of the run's result."""
    loops: bool = True
    """Whether `rounds` is one run; a language without loops writes it as several."""
    widest: int = 1_000_000
    """Up to this width `fan` is one run."""
