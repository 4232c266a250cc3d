"""What a topology tells its run, so that the history does not grow with the packets (STR-102, 135).

The first of a kind is told at once; the next ones are counted, and told at most once a minute. Of one kind a step tells
so many different ones, such as texts of errors that contain what was in the packet; all others are counted together.
"""

import msgspec

from perdure.streams.stream_graph import SECOND

EVERY = 60 * SECOND
MOST_SUBJECTS = 20
OTHERS = "\0"


class Notice(msgspec.Struct, frozen=True):
    step: str
    kind: str
    message: str
    count: int = 1


class _Tally:
    __slots__ = ("count", "message", "told_at")

    def __init__(self, told_at: int) -> None:
        self.told_at = told_at
        self.count = 0
        self.message = ""


class Notices:
    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str, str], _Tally] = {}
        self._subjects: dict[tuple[str, str], int] = {}
        self._new: list[Notice] = []

    def __bool__(self) -> bool:
        return bool(self._new)

    def add(self, step: str, kind: str, subject: str, message: str, now: int) -> None:
        """`subject` distinguishes notices of one kind: a reason, an upstream, the text of an error."""
        key = step, kind, subject
        tally = self._tallies.get(key)
        if tally is None and self._subjects.get((step, kind), 0) >= MOST_SUBJECTS:
            key = step, kind, OTHERS
            tally = self._tallies.get(key)
        if tally is None:
            self._subjects[step, kind] = self._subjects.get((step, kind), 0) + 1
            self._tallies[key] = _Tally(now)
            self._new.append(Notice(step, kind, message))
            return
        tally.count += 1
        tally.message = message

    def take(self, now: int, *, is_last: bool = False) -> list[Notice]:
        notices, self._new = self._new, []
        for (step, kind, _), tally in self._tallies.items():
            if tally.count and (is_last or now - tally.told_at >= EVERY):
                notices.append(Notice(step, kind, tally.message, tally.count))
                tally.told_at, tally.count = now, 0
        return notices
