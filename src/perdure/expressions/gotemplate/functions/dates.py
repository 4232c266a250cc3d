"""Instants and durations, formatted and parsed. The current time is not known here."""

from collections.abc import Callable

from perdure.expressions.errors import EvaluationFault, LimitExceeded
from perdure.expressions.gotemplate.durations import SECOND, format_duration, parse_duration, round_duration
from perdure.expressions.gotemplate.functions.library import ANY, MOMENT, SLOW, TEXT, ArgumentKind, Function, takes
from perdure.expressions.gotemplate.instants import ZERO, BadInstant, GoTime, find_zone
from perdure.expressions.gotemplate.layouts import format_moment, parse_moment
from perdure.expressions.gotemplate.values import Value, describe, is_number, to_int64

_HTML = "2006-01-02"
_LONGEST_LAYOUT = 4_096  # characters: all of it is read by one call


def _layout(text: str) -> str:
    if len(text) > _LONGEST_LAYOUT:
        raise LimitExceeded(f"a layout has at most {_LONGEST_LAYOUT} characters, not {len(text)}")
    return text


def date(layout: str, when: Value, zone: str = "UTC") -> str:
    """`when` is a time or seconds since the epoch. Sprig treats anything else as now; here it is an error."""
    if is_number(when) and abs(when) < 10**12:
        when = GoTime(int(when) * SECOND)
    if not isinstance(when, GoTime):
        raise EvaluationFault(f"{describe(when)} is neither a time nor seconds since the epoch")
    return format_moment(when.in_zone(find_zone(zone)), _layout(layout))


def modify(span: str, when: GoTime) -> GoTime:
    return when.plus(parse_duration(span))


def modify_if_possible(span: str, when: GoTime) -> GoTime:
    try:
        return modify(span, when)
    except BadInstant:
        return when


def to_date(layout: str, text: str) -> GoTime:
    return parse_moment(text, _layout(layout))


def to_date_or_zero(layout: str, text: str) -> GoTime:
    try:
        return parse_moment(text, _layout(layout))
    except BadInstant:
        return ZERO


def rounded(span: Value) -> str:
    try:
        return round_duration(parse_duration(span) if type(span) is str else to_int64(span))
    except BadInstant:
        return "0s"


def _slow(run: Callable[..., Value], *kinds: ArgumentKind) -> Function:
    """Each character of a layout or duration may be a part that is handled separately."""
    return Function(run, kinds, price=SLOW, by_letter=True)


_IN_ZONE = _slow(date, TEXT, ANY, TEXT)
_MODIFY = _slow(modify_if_possible, TEXT, MOMENT)
_MUST_MODIFY = _slow(modify, TEXT, MOMENT)

FUNCTIONS = {
    "date": _slow(lambda layout, when: date(layout, when), TEXT, ANY),
    "dateInZone": _IN_ZONE,
    "dateModify": _MODIFY,
    "date_in_zone": _IN_ZONE,
    "date_modify": _MODIFY,
    "duration": takes(lambda seconds: format_duration(to_int64(seconds) * SECOND), ANY, price=SLOW),
    "durationRound": _slow(rounded, ANY),
    "htmlDate": takes(lambda when: date(_HTML, when), ANY, price=SLOW),
    "htmlDateInZone": takes(lambda when, zone: date(_HTML, when, zone), ANY, TEXT, price=SLOW),
    "mustDateModify": _MUST_MODIFY,
    "mustToDate": _slow(to_date, TEXT, TEXT),
    "must_date_modify": _MUST_MODIFY,
    "toDate": _slow(to_date_or_zero, TEXT, TEXT),
    "unixEpoch": takes(lambda when: str(when.seconds), MOMENT, price=SLOW),
}
