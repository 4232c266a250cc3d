"""What every store offers to remove runs that have ended."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import msgspec

from perdure.kernel.json_values.values import Instant, RunId


class LastView(msgspec.Struct, gc=False, frozen=True):
    """What a run showed last, for the change feed."""

    events: int  # that it had then
    body: bytes


NO_VIEWS: Mapping[RunId, LastView] = MappingProxyType({})


class RunRemovalStore(Protocol):
    async def prune(self, ended_before: Instant, limit: int) -> list[RunId]:
        """Remove up to `limit` runs whose tree ended before then, leaves first; none with undecided control messages.

        A call that finds none, the last one of a series, clears what no run names any more.
        """

    async def prunable(self, ended_before: Instant, limit: int) -> list[RunId]:
        """Those that `prune` would remove now."""

    async def remove(
        self,
        runs: Sequence[RunId],
        views: Mapping[RunId, LastView] = NO_VIEWS,
        ended_before: Instant | None = None,
    ) -> list[RunId]:
        """Remove these runs in this order, none that is open or has children or undecided control messages; which.

        Of `views` the change feed keeps what a run showed last: one that has more events by now is not removed. With
        `ended_before` none that ended later is.
        """
