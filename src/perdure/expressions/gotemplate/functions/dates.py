"""Instants and durations, formatted and parsed. The current time is not known here."""

from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.durations import SECOND, format_duration, parse_duration, round_duration
from perdure.expressions.gotemplate.functions.library import ANY, MOMENT, SLOW, TEXT, takes
from perdure.expressions.gotemplate.instants import ZERO, BadInstant, GoTime, find_zone
from perdure.expressions.gotemplate.layouts import format_moment, parse_moment
from perdure.expressions.gotemplate.values import Value, describe, is_number, to_int64

_HTML = "2006-01-02"


def date(layout: str, when: Value, zone: str = "UTC") -> str:
    """`when` is a time or seconds since the epoch. Sprig treats anything else as now; here it is an error."""
    if is_number(when) and abs(when) < 10**12:
        when = GoTime(int(when) * SECOND)
    if not isinstance(when, GoTime):
        raise EvaluationFault(f"{describe(when)} is neither a time nor seconds since the epoch")
    return format_moment(when.in_zone(find_zone(zone)), layout)


def modify(span: str, when: GoTime) -> GoTime:
    return when.plus(parse_duration(span))


def modify_if_possible(span: str, when: GoTime) -> GoTime:
    try:
        return modify(span, when)
    except BadInstant:
        return when


def to_date(layout: str, text: str) -> GoTime:
    return parse_moment(text, layout)


def to_date_or_zero(layout: str, text: str) -> GoTime:
    try:
        return parse_moment(text, layout)
    except BadInstant:
        return ZERO


def rounded(span: Value) -> str:
    try:
        return round_duration(parse_duration(span) if type(span) is str else to_int64(span))
    except BadInstant:
        return "0s"


_IN_ZONE = takes(date, TEXT, ANY, TEXT, price=SLOW)
_MODIFY = takes(modify_if_possible, TEXT, MOMENT, price=SLOW)
_MUST_MODIFY = takes(modify, TEXT, MOMENT, price=SLOW)

FUNCTIONS = {
    "date": takes(lambda layout, when: date(layout, when), TEXT, ANY, price=SLOW),
    "dateInZone": _IN_ZONE,
    "dateModify": _MODIFY,
    "date_in_zone": _IN_ZONE,
    "date_modify": _MODIFY,
    "duration": takes(lambda seconds: format_duration(to_int64(seconds) * SECOND), ANY, price=SLOW),
    "durationRound": takes(rounded, ANY, price=SLOW),
    "htmlDate": takes(lambda when: date(_HTML, when), ANY, price=SLOW),
    "htmlDateInZone": takes(lambda when, zone: date(_HTML, when, zone), ANY, TEXT, price=SLOW),
    "mustDateModify": _MUST_MODIFY,
    "mustToDate": takes(to_date, TEXT, TEXT, price=SLOW),
    "must_date_modify": _MUST_MODIFY,
    "toDate": takes(to_date_or_zero, TEXT, TEXT, price=SLOW),
    "unixEpoch": takes(lambda when: str(when.seconds), MOMENT, price=SLOW),
}
