"""A position in a run's history as people name it: the number of an event, its id, or a time."""

from perdure.engine.client import Client
from perdure.kernel.errors import Conflict
from perdure.kernel.values import Instant, RunId
from perdure.views.errors import BadRequest
from perdure.views.times import iso, read_instant

HELP = "an event of its history: its number, its id, or a time (the last one until then)"


async def event_at(client: Client, run: RunId, moment: str) -> int:
    """The number of the event after which the run is meant."""
    owner, _, number = moment.rpartition("/")
    if number.isdecimal() and owner in ("", run):
        return int(number)
    if owner:
        raise BadRequest(f"{moment!r} is not an event of run {run}")
    try:
        until = read_instant(moment, client.clock.wall())
    except ValueError as problem:
        raise BadRequest(str(problem)) from None
    times: dict[int, Instant] = {
        event["seq"]: read_instant(event["timestamp"], 0) if "timestamp" in event else event["at"]
        for event in await client.history(run)
    }
    earlier = [seq for seq, at in times.items() if at <= until]
    if not earlier:
        raise Conflict(f"run {run} had not started at {iso(until)}")
    return earlier[-1]
