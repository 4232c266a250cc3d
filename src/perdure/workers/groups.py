"""How many tasks of one group a worker has in hand: databases bear only so many connections (PBK-197)."""

from collections import deque
from collections.abc import Mapping

from perdure.workers.errand import Errand


class Groups:
    """Places in groups. An errand without a limited group needs none; the others wait in order of arrival."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = limits
        self._placed: dict[str, set[int]] = {}
        self._waiting: dict[str, deque[Errand]] = {}

    def enter(self, errand: Errand) -> bool:
        """Whether it may begin now. If not, `leave` will answer with it when its turn has come."""
        group = errand.provider.group
        if group not in self._limits:
            return True
        placed = self._placed.setdefault(group, set())
        if len(placed) < self._limits[group]:
            placed.add(id(errand))
            return True
        self._waiting.setdefault(group, deque()).append(errand)
        return False

    def leave(self, errand: Errand) -> Errand | None:
        """It has ended, wherever it was; answers with the one that may begin in its place."""
        group = errand.provider.group
        placed = self._placed.get(group)
        if placed is None or id(errand) not in placed:
            return None
        placed.remove(id(errand))
        waiting = self._waiting.get(group, deque())
        while waiting:
            following = waiting.popleft()
            if not following.is_over:  # it may have been stopped while it waited
                placed.add(id(following))
                return following
        return None
