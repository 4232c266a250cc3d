"""Events of a run's history: their names, their JSON, and a position among them as people give it."""

from bisect import bisect_right
from typing import Any

from perdure.engine.client import Client
from perdure.engine.runs.run_index import read_index
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values.values import RunId
from perdure.views.errors import BadRequest
from perdure.views.times import iso, read_instant

HELP = "an event, given by its number, its id, or a time (the last event until then)"


def is_in_language_terms(event: dict[str, Any]) -> bool:
    """Whether the event is told as its language tells it; then it is JSON data already."""
    return "event_type" in event


def event_name(event: dict[str, Any]) -> str:
    return str(event["event_type"] if is_in_language_terms(event) else event["event"])


DIGITS = 18  # of the number of an event
NO_EVENT = 1 << 62  # a number that no run has


def event_json(event: dict[str, Any]) -> dict[str, Any]:
    """With the time as text, as a server sends it."""
    has_text = is_in_language_terms(event) or isinstance(event["at"], str)
    return event if has_text else {**event, "at": iso(event["at"])}


async def event_at(client: Client, run: RunId, moment: str) -> int:
    """The number of the event that people mean by its number, its id, or a time: the last one until then."""
    owner, _, number = moment.rpartition("/")
    if number.isascii() and number.isdecimal() and owner in ("", run):
        return int(number) if len(number) <= DIGITS else NO_EVENT
    if owner:
        raise BadRequest(f"{moment!r} is not an event of run {run}")
    try:
        until = read_instant(moment, client.clock.wall())
    except ValueError as problem:
        raise BadRequest(str(problem)) from None
    row = await client.find(run)
    earlier = await read_index(client.store, client.languages, row, lambda index: bisect_right(index.times, until))
    if not earlier:
        raise Conflict(f"run {run} had not started at {iso(until)}")
    return earlier
