"""The functions MWL adds to CEL, and the one it changes (MWL-128, MWL-131 to MWL-136)."""

from datetime import UTC, datetime, timedelta

import msgspec

from perdure.expressions import json_decoding
from perdure.expressions.cel.frame import CLOCK, PRICE_OF_TEXT, READ_LEAF, Frame, allow_size, charge
from perdure.expressions.cel.functions import STANDARD, Function, Library, merge
from perdure.expressions.cel.functions.library import ANY
from perdure.expressions.cel.instants import Duration, Timestamp
from perdure.expressions.cel.text_forms import format_double
from perdure.expressions.cel.values import Value
from perdure.expressions.errors import EvaluationFault
from perdure.expressions.mwl.canonical import canonical_json
from perdure.expressions.mwl.durations import format_iso_duration, parse_iso_duration
from perdure.expressions.mwl.results import LARGEST_EXACT

_BYTES_PER_CHARACTER = 28  # of JSON text, at most: an empty list or object and its place
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ClockPin(msgspec.Struct, frozen=True):
    """The two instants that an expression can read: when its construct was entered, and the decision's reading."""

    now: datetime
    wall_time: datetime


def _now(frame: Frame) -> Timestamp:
    return _timestamp(_pin(frame).now)


def _wall_time(frame: Frame) -> Timestamp:
    pin = _pin(frame)
    return _timestamp(max(pin.wall_time, pin.now))


def _pin(frame: Frame) -> ClockPin:
    pin = frame[CLOCK]
    if not isinstance(pin, ClockPin):
        raise EvaluationFault("the clock is not available here")
    return pin


def _timestamp(instant: datetime) -> Timestamp:
    return Timestamp((instant - _EPOCH) // timedelta(microseconds=1) * 1000)


def _from_json(frame: Frame, text: str) -> Value:
    """Like any other data: its numbers are read as doubles."""
    allow_size(frame, 4 * len(text), width=_BYTES_PER_CHARACTER // 4)
    charge(frame, PRICE_OF_TEXT + len(text) // 2)
    try:
        value = json_decoding.decode(text, msgspec.json.decode, lambda steps: charge(frame, steps))
    except (msgspec.DecodeError, UnicodeEncodeError, json_decoding.MalformedJson) as malformed:
        raise EvaluationFault(f"malformed JSON: {malformed}") from None
    return frame[READ_LEAF](value) if type(value) is int else value


def _duration_to_iso(frame: Frame, span: Duration) -> str:
    charge(frame, PRICE_OF_TEXT)
    return format_iso_duration(span)


def _duration_from_iso(frame: Frame, text: str) -> Duration:
    charge(frame, 2 * PRICE_OF_TEXT)
    try:
        return parse_iso_duration(text)
    except ValueError as malformed:
        raise EvaluationFault(str(malformed)) from None


def _string_from_double(frame: Frame, value: float) -> str:
    """Every number in data is a double, so 1234567 must not print as 1.234567e+06."""
    if value.is_integer() and abs(value) <= LARGEST_EXACT:
        return str(int(value))
    charge(frame, PRICE_OF_TEXT)
    return format_double(value)


def read_number(value: int) -> float:
    """MWL-121: every number in a binding is a double."""
    try:
        return float(value)
    except OverflowError:
        raise EvaluationFault("a number in the data is too large for a double") from None


LIBRARY = merge(
    (
        STANDARD,
        Library(
            functions={
                "now": Function(((), _now)),
                "wallTime": Function(((), _wall_time)),
                "toJson": Function(((ANY,), canonical_json)),
                "fromJson": Function(((str,), _from_json)),
                "durationToIso8601": Function(((Duration,), _duration_to_iso)),
                "durationFromIso8601": Function(((str,), _duration_from_iso)),
                "string": Function(((float,), _string_from_double)),
            }
        ),
    )
)
