"""Formats and parses instants by Go's layouts, which show how the reference time `Mon Jan 2 15:04:05 2006` looks."""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from perdure.expressions.gotemplate.instants import BadInstant, GoTime, zone_abbreviation
from perdure.kernel.lazy_regex import lazy_regex

DEFAULT_LAYOUT = "2006-01-02 15:04:05.999999999 -0700 MST"

_MONTHS = [
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]

# Go finds elements by their first match; anything else is literal text.
_ELEMENT = lazy_regex(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|002|0[1-6]|__2|_2(?!006)|2006|2|15|1|3|4|5|PM|pm"
    r"|[-Z]07:00:00|[-Z]070000|[-Z]07:00|[-Z]0700|[-Z]07|[.,](?:0+|9+)(?![0-9])"
)


def format_moment(moment: GoTime, layout: str) -> str:
    civil = moment.civil()
    return _ELEMENT.sub(lambda match: _write(match.group(), civil, moment.fraction), layout)


def _write(element: str, civil: datetime, fraction: int) -> str:
    match element:
        case "2006":
            return f"{civil.year:04}"
        case "06":
            return f"{civil.year % 100:02}"
        case "January" | "Jan":
            return _MONTHS[civil.month - 1][: None if element == "January" else 3]
        case "01" | "1":
            return f"{civil.month:0{len(element)}}"
        case "Monday" | "Mon":
            return _DAYS[civil.weekday()][: None if element == "Monday" else 3]
        case "02" | "2":
            return f"{civil.day:0{len(element)}}"
        case "_2":
            return f"{civil.day:2}"
        case "002" | "__2":
            day = civil.timetuple().tm_yday
            return f"{day:03}" if element == "002" else f"{day:3}"
        case "15":
            return f"{civil.hour:02}"
        case "03" | "3":
            return f"{civil.hour % 12 or 12:0{len(element)}}"
        case "04" | "4":
            return f"{civil.minute:0{len(element)}}"
        case "05" | "5":
            return f"{civil.second:0{len(element)}}"
        case "PM":
            return "PM" if civil.hour >= 12 else "AM"
        case "pm":
            return "pm" if civil.hour >= 12 else "am"
        case "MST":
            return zone_abbreviation(civil)
    if element[0] in ".,":
        return _write_fraction(element, fraction)
    return _write_offset(element, civil)


def _write_fraction(element: str, fraction: int) -> str:
    digits = f"{fraction:09}".ljust(len(element) - 1, "0")[: len(element) - 1]
    if element[1] == "9":
        digits = digits.rstrip("0")
    return element[0] + digits if digits else ""


def _write_offset(element: str, civil: datetime) -> str:
    seconds = int((civil.utcoffset() or timedelta()).total_seconds())
    if element[0] == "Z" and seconds == 0:
        return "Z"
    sign, seconds = ("-", -seconds) if seconds < 0 else ("+", seconds)
    parts = (f"{seconds // 3600:02}", f"{seconds // 60 % 60:02}", f"{seconds % 60:02}")
    digits = parts[: (len(element.replace(":", "")) - 1) // 2]
    return sign + (":" if ":" in element else "").join(digits)


def _words(names: list[str], length: int | None) -> "re.Pattern[str]":
    return lazy_regex("|".join(name[:length] for name in names), re.IGNORECASE)


_READERS: dict[str, "re.Pattern[str]"] = {
    "2006": lazy_regex(r"[0-9]{4}"),
    "January": _words(_MONTHS, None),
    "Jan": _words(_MONTHS, 3),
    "Monday": _words(_DAYS, None),
    "Mon": _words(_DAYS, 3),
    "_2": lazy_regex(r" ?[0-9]{1,2}"),
    "002": lazy_regex(r"[0-9]{3}"),
    "__2": lazy_regex(r" {0,2}[0-9]{1,3}"),
    "PM": lazy_regex(r"AM|PM"),
    "pm": lazy_regex(r"am|pm"),
    "MST": lazy_regex(r"[A-Z]{3,5}|[+-][0-9]{2}"),
    **dict.fromkeys(("06", "01", "02", "15", "03", "04", "05"), lazy_regex(r"[0-9]{2}")),
    **dict.fromkeys(("1", "2", "3", "4", "5"), lazy_regex(r"[0-9]{1,2}")),
}
_FRACTION = lazy_regex(r"[.,][0-9]+")
_OFFSET = lazy_regex(r"([+-])([0-9]{2})(?::?([0-9]{2}))?(?::?([0-9]{2}))?")


def parse_moment(text: str, layout: str, zone: tzinfo = UTC) -> GoTime:
    """The instant in a text. Parts that the layout lacks have their lowest value; its zone is `zone`."""
    values: dict[str, str] = {}
    at = last = 0
    for element in _ELEMENT.finditer(layout):
        at = _skip_literal(text, at, layout[last : element.start()])
        at = _read(element.group(), text, at, values, layout[element.end() : element.end() + 1] in (".", ","))
        last = element.end()
    if _skip_literal(text, at, layout[last:]) != len(text):
        raise BadInstant(f"{text[:60]!r} does not look like {layout[:60]!r}")
    return _assemble(values, zone)


def _skip_literal(text: str, at: int, literal: str) -> int:
    if not text.startswith(literal, at):
        raise BadInstant(f"{text[:60]!r} lacks {literal[:60]!r}")
    at += len(literal)
    while literal.endswith(" ") and text.startswith(" ", at):
        at += 1
    return at


def _read(element: str, text: str, at: int, values: dict[str, str], fraction_follows: bool) -> int:
    if element[0] in ".,":
        pattern = _FRACTION
    elif "07" in element:
        if element[0] == "Z" and text.startswith("Z", at):
            values["offset"] = "+00"
            return at + 1
        pattern = _OFFSET
    else:
        pattern = _READERS[element]
    match = pattern.match(text, at)
    if match is None:
        if pattern is _FRACTION and element[1] == "9":
            return at
        raise BadInstant(f"{text[at : at + 60]!r} does not look like {element!r}")
    values[_PARTS.get(element, "offset" if "07" in element else "fraction")] = match.group()
    if element in ("05", "5") and not fraction_follows and (extra := _FRACTION.match(text, match.end())):
        values["fraction"] = extra.group()  # a value may be more precise than its layout
        return extra.end()
    return match.end()


_PARTS = {
    "2006": "year",
    "06": "short year",
    "January": "month name",
    "Jan": "month name",
    "01": "month",
    "1": "month",
    "Monday": "weekday",
    "Mon": "weekday",
    "02": "day",
    "2": "day",
    "_2": "day",
    "002": "day of year",
    "__2": "day of year",
    "15": "hour",
    "03": "half hour",
    "3": "half hour",
    "04": "minute",
    "4": "minute",
    "05": "second",
    "5": "second",
    "PM": "half",
    "pm": "half",
    "MST": "zone",
}


def _assemble(values: dict[str, str], zone: tzinfo) -> GoTime:
    year = int(values.get("year", 0) or 0)
    if "short year" in values:
        year = int(values["short year"])
        year += 1900 if year >= 69 else 2000
    month = int(values.get("month", 1))
    if "month name" in values:
        month = [name[:3].lower() for name in _MONTHS].index(values["month name"][:3].lower()) + 1
    hour = int(values.get("hour", values.get("half hour", 0)))
    if "half" in values:
        hour = hour % 12 + (12 if values["half"].lower() == "pm" else 0)
    if "offset" in values:
        zone = _read_zone(values["offset"])
    elif values.get("zone", "UTC")[0] in "+-":
        zone = _read_zone(values["zone"])
    elif values.get("zone", "UTC") != "UTC":
        zone = timezone(timedelta(), values["zone"])  # as in Go: a zone name alone does not determine the offset
    try:
        civil = datetime(
            max(year, 1), month, int(values.get("day", 1)), hour, int(values.get("minute", 0)), tzinfo=zone
        )
        civil = civil.replace(second=int(values.get("second", 0)))
        if "day of year" in values:
            civil = civil.replace(month=1, day=1) + timedelta(days=int(values["day of year"]) - 1)
    except (ValueError, OverflowError) as why:
        raise BadInstant(f"this is not a date: {why}") from None
    return GoTime.of(civil).plus(int(values.get("fraction", ".0")[1:10].ljust(9, "0")))


def _read_zone(offset: str) -> tzinfo:
    match = _OFFSET.fullmatch(offset)
    assert match is not None
    seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60 + int(match[4] or 0)
    if seconds >= 86400:
        raise BadInstant(f"{offset!r} is not an offset from UTC")
    if seconds == 0:
        return UTC
    return timezone(timedelta(seconds=-seconds if match[1] == "-" else seconds))
