"""A moment of a run's past as people name it: the number of an event, its id, or a time."""

from perdure.cli.arguments import instant
from perdure.cli.errors import BadUsage
from perdure.cli.times import iso, read_instant
from perdure.engine.client import Client
from perdure.kernel.errors import Conflict
from perdure.kernel.values import Instant, RunId

HELP = "an event of its history: its number, its id, or a time (the last one until then)"


async def event_at(client: Client, run: RunId, moment: str) -> int:
    """The number of the event after which the run is meant."""
    owner, _, number = moment.rpartition("/")
    if number.isdecimal() and owner in ("", run):
        return int(number)
    if owner:
        raise BadUsage(f"{moment!r} is no event of run {run}")
    try:
        until = instant(moment)
    except Exception as problem:
        raise BadUsage(str(problem)) from None
    times: dict[int, Instant] = {
        event["seq"]: read_instant(event["timestamp"], 0) if "timestamp" in event else event["at"]
        for event in await client.history(run)
    }
    before = [seq for seq, at in times.items() if at <= until]
    if not before:
        raise Conflict(f"run {run} had not begun at {iso(until)}")
    return before[-1]
