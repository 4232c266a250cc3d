"""A timestamp as civil time in a zone: `Europe/Oslo`, `UTC`, `+02:00`, `-03:30`, `02:00`.

The zone database is the host's (`zoneinfo`): the one table that an expression reads besides its data.
"""

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache

from perdure.expressions.cel.errors import EvaluationFault
from perdure.expressions.cel.instants import Timestamp
from perdure.kernel.lazy_regex import lazy_regex

_OFFSET = lazy_regex(r"([+-]?)([0-9]{1,2}):([0-9]{2})")
_NAME = lazy_regex(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")


def civil_time(instant: Timestamp, zone: str) -> datetime:
    try:
        return instant.to_datetime().astimezone(_find_zone(zone))
    except OverflowError:
        raise EvaluationFault(f"in {zone!r} this instant is not between the years 1 and 9999") from None


@lru_cache(maxsize=256)
def _find_zone(zone: str) -> tzinfo:
    if zone in ("UTC", "Z", ""):
        return UTC
    if offset := _OFFSET.fullmatch(zone):
        minutes = int(offset[2]) * 60 + int(offset[3])
        if int(offset[2]) < 24 and int(offset[3]) < 60:
            return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    elif len(zone) < 100 and _NAME.fullmatch(zone):
        try:
            from zoneinfo import ZoneInfo

            return ZoneInfo(zone)
        except (OSError, ValueError):  # unknown name; a folder of the database; a file that is no zone
            pass
        except KeyError:  # ZoneInfoNotFoundError
            pass
    raise EvaluationFault(f"{zone[:60]!r} is no time zone")
