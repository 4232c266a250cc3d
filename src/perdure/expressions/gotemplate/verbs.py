"""One formatting verb applied to one value, with flags, width and precision."""

import msgspec
from msgspec.structs import replace

from perdure.expressions.gotemplate.budget import Budget
from perdure.expressions.gotemplate.escapes import quote_go
from perdure.expressions.gotemplate.floats import format_float
from perdure.expressions.gotemplate.formatting import TextBuilder, format_scalar
from perdure.expressions.gotemplate.values import Value, require_present, type_name

_RADIX = {"b": "b", "o": "o", "O": "o", "x": "x", "X": "X", "d": "d", "v": "d"}
_PREFIX = {"b": "0b", "x": "0x", "X": "0X"}
_UNQUOTABLE = {"`", "\x7f", "\ufeff"}  # by backquotes


class Directive(msgspec.Struct, frozen=True):
    """`%` and what follows it, read."""

    verb: str
    width: int | None = None
    precision: int | None = None
    plus: bool = False
    minus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    as_source: bool = False  # `%#v`: as it would be written in Go


def format_verb(directive: Directive, value: Value, budget: Budget) -> str:
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
    return _format_text(directive, format_scalar(value), budget)  # a time or a version shows itself


def _misfit(directive: Directive, value: Value, budget: Budget) -> str:
    shown = format_verb(replace(directive, verb="v"), value, budget)
    return f"%!{directive.verb}({type_name(value)}={shown})"


def _format_container(directive: Directive, value: Value, budget: Budget) -> str:
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
        for at, key in enumerate(sorted(value)):
            if at:
                text.add(", " if as_source else " ")
            text.add(format_verb(directive, key, budget) + ":")
            text.add(_format_inside(directive, value[key], budget))
    text.add("}" if as_source else "]")
    return text.build()


def _format_inside(directive: Directive, value: Value, budget: Budget) -> str:
    if value is None:
        return "interface {}(nil)" if directive.as_source else "<nil>"
    return format_verb(directive, value, budget)


def _format_text(directive: Directive, value: str, budget: Budget) -> str:
    shown = value[: directive.precision]
    match directive.verb:
        case "v" if directive.as_source:
            return _pad(directive, quote_go(shown))
        case "v" | "s":
            return _pad(directive, shown)
        case "q":
            if directive.sharp and all(c >= " " or c == "\t" for c in shown) and not _UNQUOTABLE & {*shown}:
                return _pad(directive, f"`{shown}`")
            return _pad(directive, quote_go(shown, ascii_only=directive.plus))
        case "x" | "X":
            data = value.encode("utf-8", "replace")[: directive.precision]
            budget.charge_text(5 * len(data))
            prefix = f"0{directive.verb}" if directive.sharp and data else ""
            joint = f" {prefix}" if directive.space else ""
            return _pad(directive, prefix + joint.join(f"{byte:02{directive.verb}}" for byte in data))
    return _misfit(directive, value, budget)


def _format_integer(directive: Directive, value: int, budget: Budget) -> str:
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


def _format_character(directive: Directive, value: int) -> str:
    exists = 0 <= value <= 0x10FFFF and not 0xD800 <= value < 0xE000
    char = chr(value) if exists else "\N{REPLACEMENT CHARACTER}"
    if directive.verb == "c":
        return char
    if directive.verb == "q":
        return quote_go(char, "'", directive.plus)
    shown = f" '{char}'" if directive.sharp and exists and char.isprintable() else ""
    return f"U+{value & 0xFFFFFFFFFFFFFFFF:04X}{shown}"


def _format_float(directive: Directive, value: float, budget: Budget) -> str:
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


def _sign(directive: Directive, negative: bool) -> str:
    return "-" if negative else "+" if directive.plus else " " if directive.space else ""


def _pad_number(directive: Directive, sign: str, digits: str, zeros: bool, prefix: str = "") -> str:
    if not zeros:
        directive = replace(directive, zero=False)
    elif directive.zero and directive.width is not None:
        digits = digits.rjust(directive.width - len(sign), "0")
    return _pad(directive, sign + prefix + digits)


def _pad(directive: Directive, text: str) -> str:
    if directive.width is None or len(text) >= directive.width:
        return text
    if directive.minus:
        return text.ljust(directive.width)
    return text.rjust(directive.width, "0" if directive.zero else " ")
