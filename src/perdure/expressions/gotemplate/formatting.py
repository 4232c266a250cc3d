"""Values as text, the way Go's `%v` shows them: `[1 2]`, `map[a:1 b:2]`, `<nil>`.

Every piece is paid for when it is created, so that a value shared a thousand times cannot be printed for free.
"""

from perdure.expressions.gotemplate.budget import Budget
from perdure.expressions.gotemplate.floats import format_float
from perdure.expressions.gotemplate.instants import GoTime
from perdure.expressions.gotemplate.layouts import DEFAULT_LAYOUT, format_moment
from perdure.expressions.gotemplate.values import Value, require_present, sorted_keys

NO_VALUE = "<no value>"


class TextBuilder:
    """Pieces of one text, and what they cost."""

    __slots__ = ("_budget", "_length", "_pieces")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._pieces: list[str] = []
        self._length = 0

    def add(self, piece: str) -> None:
        self._budget.charge_text(len(piece), self._length)
        self._length += len(piece)
        self._pieces.append(piece)

    def build(self) -> str:
        return "".join(self._pieces)


def format_value(value: Value, budget: Budget) -> str:
    """Like `%v`."""
    if type(value) is str:
        return value
    if type(value) not in (list, dict):
        return format_scalar(value)
    text = TextBuilder(budget)
    _add(value, text)
    return text.build()


def format_scalar(value: Value) -> str:
    if value is None:
        return "<nil>"
    if value is True or value is False:
        return "true" if value else "false"
    if type(value) is float:
        return format_float(value)
    if isinstance(value, GoTime):
        return format_moment(value, DEFAULT_LAYOUT)
    return str(value)


def _add(value: Value, text: TextBuilder) -> None:
    if type(value) is list:
        text.add("[")
        for at, element in enumerate(value):
            if at:
                text.add(" ")
            _add(element, text)
        text.add("]")
    elif type(value) is dict:
        require_present(value)
        text.add("map[")
        for at, key in enumerate(sorted_keys(value)):
            text.add(f" {key}:" if at else f"{key}:")
            _add(value[key], text)
        text.add("]")
    else:
        text.add(value if type(value) is str else format_scalar(value))


def join_operands(operands: list[Value], budget: Budget) -> str:
    """Like `print`: a space between two operands unless one of them is a string."""
    text = TextBuilder(budget)
    for at, operand in enumerate(operands):
        if at and type(operand) is not str and type(operands[at - 1]) is not str:
            text.add(" ")
        text.add(format_value(operand, budget))
    return text.build()


def write_output(value: Value, budget: Budget) -> str:
    """As an action prints its result."""
    return NO_VALUE if value is None else format_value(value, budget)
