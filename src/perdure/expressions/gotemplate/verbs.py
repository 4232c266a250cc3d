"""`printf`: Go's formatting verbs, each applied to one value with flags, width and precision."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from perdure.expressions.gotemplate.budget import Budget
from perdure.expressions.gotemplate.escapes import quote_go
from perdure.expressions.gotemplate.floats import format_float
from perdure.expressions.gotemplate.formatting import TextBuilder, format_scalar, format_value
from perdure.expressions.gotemplate.values import Value, require_present, sorted_keys, type_name
from perdure.kernel.lazy_regex import lazy_regex

_RADIX = {"b": "b", "o": "o", "O": "o", "x": "x", "X": "X", "d": "d", "v": "d"}
_PREFIX = {"b": "0b", "x": "0x", "X": "0X"}
_UNQUOTABLE = {"`", "\x7f", "\ufeff"}  # by backquotes


class FormatDirective(msgspec.Struct, frozen=True):
    """A parsed `%` directive."""

    verb: str
    width: int | None = None
    precision: int | None = None
    plus: bool = False
    minus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    as_source: bool = False  # `%#v`: as it would be written in Go


def format_verb(directive: FormatDirective, value: Value, budget: Budget) -> str:
    verb = directive.verb
    if verb == "T":
        precision = None if value is None else directive.precision
        return _format_text(replace(directive, verb="s", precision=precision), type_name(value), budget)
    if value is None:
        return _pad(directive, "<nil>") if verb == "v" else f"%!{verb}(<nil>)"
    if type(value) in (list, dict):
        return _format_container(directive, value, budget)
    if value is True or value is False:
        return _pad(directive, format_scalar(value)) if verb in "vt" else _misfit(directive, value, budget)
    if type(value) is str:
        return _format_text(directive, value, budget)
    if type(value) is int:
        return _format_integer(directive, value, budget)
    if type(value) is float:
        return _format_float(directive, value, budget)
    return _format_text(directive, format_scalar(value), budget)  # a time or a version prints itself


def _misfit(directive: FormatDirective, value: Value, budget: Budget) -> str:
    text = format_verb(replace(directive, verb="v"), value, budget)
    return f"%!{directive.verb}({type_name(value)}={text})"


def _format_container(directive: FormatDirective, value: Value, budget: Budget) -> str:
    text = TextBuilder(budget)
    as_source = directive.as_source
    if type(value) is list:
        text.add("[]interface {}{" if as_source else "[")
        for at, element in enumerate(value):
            if at:
                text.add(", " if as_source else " ")
            text.add(_format_inside(directive, element, budget))
    else:
        require_present(value)
        text.add("map[string]interface {}{" if as_source else "map[")
        for at, key in enumerate(sorted_keys(value)):
            if at:
                text.add(", " if as_source else " ")
            text.add(format_verb(directive, key, budget) + ":")
            text.add(_format_inside(directive, value[key], budget))
    text.add("}" if as_source else "]")
    return text.build()


def _format_inside(directive: FormatDirective, value: Value, budget: Budget) -> str:
    if value is None:
        return "interface {}(nil)" if directive.as_source else "<nil>"
    return format_verb(directive, value, budget)


def _format_text(directive: FormatDirective, value: str, budget: Budget) -> str:
    text = value[: directive.precision]
    match directive.verb:
        case "v" if directive.as_source:
            return _pad(directive, quote_go(text))
        case "v" | "s":
            return _pad(directive, text)
        case "q":
            if directive.sharp and all(c >= " " or c == "\t" for c in text) and not _UNQUOTABLE & {*text}:
                return _pad(directive, f"`{text}`")
            return _pad(directive, quote_go(text, ascii_only=directive.plus))
        case "x" | "X":
            data = value.encode("utf-8", "replace")[: directive.precision]
            budget.charge_text(5 * len(data))
            prefix = f"0{directive.verb}" if directive.sharp and data else ""
            joint = f" {prefix}" if directive.space else ""
            return _pad(directive, prefix + joint.join(f"{byte:02{directive.verb}}" for byte in data))
    return _misfit(directive, value, budget)


def _format_integer(directive: FormatDirective, value: int, budget: Budget) -> str:
    verb = directive.verb
    if verb in _RADIX:
        digits = f"{abs(value):{_RADIX[verb]}}"
        if directive.precision == 0 and value == 0:
            return " " * (directive.width or 0)
        if directive.precision is not None:
            digits = digits.rjust(directive.precision, "0")
        if verb in "oO" and directive.sharp and digits[0] != "0":
            digits = "0" + digits
        prefix = "0o" if verb == "O" else _PREFIX.get(verb, "") if directive.sharp else ""
        return _pad_number(directive, _sign(directive, value < 0), digits, directive.precision is None, prefix)
    match verb:
        case "c" | "q" | "U":
            return _pad(replace(directive, zero=directive.zero and verb != "U"), _format_character(directive, value))
        case "e" | "E" | "f" | "F" | "g" | "G":
            return _format_float(directive, float(value), budget) if abs(value) < 2**1000 else str(value)
    return _misfit(directive, value, budget)


def _format_character(directive: FormatDirective, value: int) -> str:
    exists = 0 <= value <= 0x10FFFF and not 0xD800 <= value < 0xE000
    char = chr(value) if exists else "\N{REPLACEMENT CHARACTER}"
    if directive.verb == "c":
        return char
    if directive.verb == "q":
        return quote_go(char, "'", directive.plus)
    character = f" '{char}'" if directive.sharp and exists and char.isprintable() else ""
    return f"U+{value & 0xFFFFFFFFFFFFFFFF:04X}{character}"


def _format_float(directive: FormatDirective, value: float, budget: Budget) -> str:
    verb = directive.verb
    if verb == "d" and value.is_integer():
        return _format_integer(directive, int(value), budget)
    if verb not in "veEfFgG":
        return _misfit(directive, value, budget)
    style = {"v": "g", "F": "f", "E": "e", "G": "g"}.get(verb, verb)
    precision = directive.precision
    if precision is None:
        precision = 6 if style in "ef" or (directive.sharp and verb != "v") else -1
    text = format_float(value, style, precision, directive.sharp and verb != "v")
    if verb in "EG":
        text = text.replace("e", "E")
    digits = text.lstrip("+-")
    sign = _sign(directive, text[0] == "-") or ("+" if digits == "Inf" else "")
    return _pad_number(directive, sign, digits, digits[0].isdigit())


def _sign(directive: FormatDirective, negative: bool) -> str:
    return "-" if negative else "+" if directive.plus else " " if directive.space else ""


def _pad_number(directive: FormatDirective, sign: str, digits: str, zeros: bool, prefix: str = "") -> str:
    if not zeros:
        directive = replace(directive, zero=False)
    elif directive.zero and directive.width is not None:
        digits = digits.rjust(directive.width - len(sign), "0")
    return _pad(directive, sign + prefix + digits)


def _pad(directive: FormatDirective, text: str) -> str:
    if directive.width is None or len(text) >= directive.width:
        return text
    if directive.minus:
        return text.ljust(directive.width)
    return text.rjust(directive.width, "0" if directive.zero else " ")


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
    """The arguments and the next one; `[n]` moves there."""

    values: Sequence[Value]
    next: int = 0
    was_indexed: bool = False

    def jump(self, index: str | None) -> bool:
        """Follow `[n]` if there is one; false when there is no such argument."""
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
    for_v = verb == "v"  # here `+` and `#` select another form, not signs and prefixes
    plus, sharp = "+" in flags and not for_v, "#" in flags and not for_v
    zeros = zero and not minus
    directive = FormatDirective(verb, columns, places, plus, minus, sharp, " " in flags, zeros, for_v and "#" in flags)
    return complaint + format_verb(directive, value, budget)


def _number(digits: str | None) -> int | None:
    """A width or precision; an unreasonable one is ignored."""
    return int(digits) if digits and digits != "*" and len(digits) < 8 and int(digits) <= _WIDEST else None


def _show_typed(value: Value, budget: Budget) -> str:
    if value is None:
        return "<nil>"
    text = format_value(value, budget) if type(value) in (list, dict) else format_scalar(value)
    return f"{type_name(value)}={text}"
