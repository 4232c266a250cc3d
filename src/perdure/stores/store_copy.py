"""From one store into another, whatever they are: all of it, proven to be the same, or nothing."""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from perdure.stores.admin import StoreAdmin
from perdure.stores.errors import CopyDiffers
from perdure.stores.records import Record, RunRecord, Tally


class Copied(msgspec.Struct, frozen=True):
    tally: Tally
    open_runs: int


def copy(
    source: StoreAdmin, target: StoreAdmin, heard: Callable[[str, Tally], None] = lambda stage, so_far: None
) -> Copied:
    """Copy everything but caches, and compare what has arrived before anybody can see it."""
    given, found = Tally(), Tally()
    open_runs = 0
    with source.exclusive() as reading, target.filling() as filling:
        for batch in _counted(map(filling.kept, reading.dump()), given):
            filling.pour(batch)
            open_runs += sum(isinstance(record, RunRecord) and record.ended_at is None for record in batch)
            heard("copied", given)
        for _ in _counted(filling.dump(), found):
            heard("compared", found)
        differences = given.differences(found)
        if differences:
            told = ", ".join(f"{name} ({found.counts[name]} of {given.counts[name]})" for name in differences)
            raise CopyDiffers(f"what arrived in {target.address} is not what {source.address} holds: {told}")
    return Copied(given, open_runs)


def _counted(batches: Iterator[Sequence[Record]], tally: Tally) -> Iterator[Sequence[Record]]:
    for batch in batches:
        tally.add(batch)
        yield batch
