"""`printf`: Go's formatting verbs.

Like Go it never fails: what does not fit is shown in the text, as `%!d(string=hi)`.
Unlike Go it takes numbers as they come (STY-206): `%.2f` of an integer and `%d` of 3.0 are what their author meant.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.expressions.gotemplate.budget import Budget
from perdure.expressions.gotemplate.formatting import TextBuilder, format_scalar, format_value
from perdure.expressions.gotemplate.values import Value, type_name
from perdure.expressions.gotemplate.verbs import Directive, format_verb
from perdure.kernel.lazy_regex import lazy_regex

_DIRECTIVE = lazy_regex(
    r"%([-+# 0]*)(\[[^\]]{0,20}\])?(\*|[0-9]*)(?:(\.)(\[[^\]]{0,20}\])?(\*|[0-9]*))?(\[[^\]]{0,20}\])?([\s\S]?)"
)
_PRICE = 3  # steps for a verb
_WIDEST = 1_000_000


def format_with_verbs(template: str, arguments: Sequence[Value], budget: Budget) -> str:
    text = TextBuilder(budget)
    operands = _Operands(arguments)
    at = 0
    for match in _DIRECTIVE.finditer(template):
        text.add(template[at : match.start()])
        budget.charge(_PRICE)
        text.add(_format(match, operands, budget))
        at = match.end()
    text.add(template[at:])
    if not operands.was_indexed and operands.next < len(arguments):
        extra = (_show_typed(value, budget) for value in arguments[operands.next :])
        text.add(f"%!(EXTRA {', '.join(extra)})")
    return text.build()


@dataclass(slots=True)
class _Operands:
    """The arguments and which comes next; `[n]` moves there."""

    values: Sequence[Value]
    next: int = 0
    was_indexed: bool = False

    def jump(self, index: str | None) -> bool:
        """Follow `[n]` if there is one; false when it leads nowhere."""
        if index is None:
            return True
        self.was_indexed = True
        number = index[1:-1]
        if number.isascii() and number.isdigit() and 1 <= int(number[:9]) <= len(self.values):
            self.next = int(number) - 1
            return True
        return False

    def take_integer(self) -> int | None:
        if self.next >= len(self.values):
            return None
        value = self.values[self.next]
        self.next += 1
        return value if type(value) is int and abs(value) <= _WIDEST else None


def _format(match: "re.Match[str]", operands: _Operands, budget: Budget) -> str:
    flags, width_index, width, point, precision_index, precision, verb_index, verb = match.groups()
    if verb == "":
        operands.was_indexed = operands.was_indexed or bool(width_index or precision_index or verb_index)
        return "%!(NOVERB)"
    if verb == "%":
        return "%"
    complaint = ""
    minus, zero = "-" in flags, "0" in flags
    good_index = operands.jump(width_index)
    columns = _number(width)
    if width == "*":
        columns = operands.take_integer()
        if columns is None:
            complaint += "%!(BADWIDTH)"
        elif columns < 0:
            columns, minus, zero = -columns, True, False
    good_index = operands.jump(precision_index) and good_index
    places = _number(precision) if precision else (0 if point else None)
    if precision == "*":
        places = operands.take_integer()
        if places is None or places < 0:
            places = None
            complaint += "%!(BADPREC)"
    good_index = operands.jump(verb_index) and good_index
    if not good_index:
        return f"{complaint}%!{verb}(BADINDEX)"
    if operands.next >= len(operands.values):
        return f"{complaint}%!{verb}(MISSING)"
    value = operands.values[operands.next]
    operands.next += 1
    budget.charge_text((columns or 0) + (places or 0))
    for_v = verb == "v"  # there `+` and `#` ask for another form, not for signs and prefixes
    plus, sharp = "+" in flags and not for_v, "#" in flags and not for_v
    zeros = zero and not minus
    directive = Directive(verb, columns, places, plus, minus, sharp, " " in flags, zeros, for_v and "#" in flags)
    return complaint + format_verb(directive, value, budget)


def _number(digits: str | None) -> int | None:
    """A width or precision; one beyond reason is as good as none."""
    return int(digits) if digits and digits != "*" and len(digits) < 8 and int(digits) <= _WIDEST else None


def _show_typed(value: Value, budget: Budget) -> str:
    if value is None:
        return "<nil>"
    shown = format_value(value, budget) if type(value) in (list, dict) else format_scalar(value)
    return f"{type_name(value)}={shown}"
