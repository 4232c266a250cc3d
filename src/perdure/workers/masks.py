"""Taking secrets out of everything that tasks say: results, failures, log lines, heartbeats, effects, signals.

One mask per family of runs: what one task has been given is hidden in the words of every other task of the family.
"""

from collections import OrderedDict

from perdure.kernel.ids import family_of
from perdure.kernel.secret_masking import Mask
from perdure.kernel.values import RunId


class Masks:
    """The masks of the families that this process works for; of those that hide something the last used are kept."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._masks: OrderedDict[str, Mask] = OrderedDict()

    def of(self, run: RunId) -> Mask:
        """For a task that begins; it says `leave` when it has ended."""
        family = family_of(run)
        mask = self._masks.get(family)
        if mask is None:
            mask = self._masks[family] = Mask()
            if len(self._masks) > self._most:
                self._masks.popitem(last=False)
        else:
            self._masks.move_to_end(family)
        mask.holders += 1
        return mask

    def leave(self, run: RunId, mask: Mask) -> None:
        """Most runs have no secret: nothing of them stays in memory."""
        mask.holders -= 1
        if not mask.holders and not mask.hides and self._masks.get(family := family_of(run)) is mask:
            del self._masks[family]
