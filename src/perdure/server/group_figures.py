"""Figures of several processes that are one server: each writes its own into memory that they share, and any of them
answers with the sum.

What a process had counted when it ended stays in its place, and the next one there goes on from it: no counter of the
sum goes back. Each place has two halves, of which one is valid: a process may be killed while it writes.
"""

import mmap
import struct
import zlib
from collections.abc import Iterable, Sequence

import msgspec

from perdure.views.administration.prometheus_text import Labels, Metric

HALF = 1 << 19  # bytes for the figures of one process, twice; memory that nobody writes to takes none
_HEAD = struct.Struct("=QII")  # the number of the writing, bytes, checksum
_OLDEST, _EARLIEST = ("_age_seconds", "_lag_seconds"), ("process_start_time_seconds",)

_Samples = list[tuple[str, Labels, int | float]]
_decoder = msgspec.json.Decoder(list[tuple[str, str, str, _Samples]])


class GroupFigures:
    def __init__(self, processes: int) -> None:
        self._memory = mmap.mmap(-1, processes * 2 * HALF)
        self._processes = processes
        self._place = 0
        self._written = 0
        self._before: list[Metric] = []  # what earlier processes of this place have counted

    def of(self, place: int) -> "GroupFigures":
        """For the process in this place."""
        self._place = place
        self._written, before = self._read(place)
        self._before = _counters(before)
        return self

    def write(self, own: Sequence[Metric]) -> None:
        text = msgspec.json.encode(add_metrics([own, self._before]))
        if len(text) > HALF - _HEAD.size:
            return
        self._written += 1
        begin = (2 * self._place + self._written % 2) * HALF
        self._memory[begin + _HEAD.size : begin + _HEAD.size + len(text)] = text
        _HEAD.pack_into(self._memory, begin, self._written, len(text), zlib.crc32(text))

    def sum(self, own: Sequence[Metric], present: Sequence[bool]) -> list[Metric]:
        """With those of the other processes; of one that is not there now only what it has counted."""
        parts = [own, self._before]
        for place in range(self._processes):
            if place != self._place:
                _, metrics = self._read(place)
                parts.append(metrics if present[place] else _counters(metrics))
        return add_metrics(parts)

    def _read(self, place: int) -> tuple[int, list[Metric]]:
        """The last writing that is whole, and its number."""
        halves: list[tuple[int, bytes]] = []
        for begin in (2 * place * HALF, (2 * place + 1) * HALF):
            number, size, checksum = _HEAD.unpack_from(self._memory, begin)
            text = self._memory[begin + _HEAD.size : begin + _HEAD.size + min(size, HALF - _HEAD.size)]
            if number and zlib.crc32(text) == checksum:
                halves.append((number, text))
        if not halves:
            return 0, []
        number, text = max(halves)
        return number, list(_decoder.decode(text))


def _counters(metrics: Iterable[Metric]) -> list[Metric]:
    return [metric for metric in metrics if metric[1] != "gauge"]


def add_metrics(parts: Iterable[Iterable[Metric]]) -> list[Metric]:
    """The same series of several are one: their sum, or the oldest age, or the earliest time."""
    known: dict[str, tuple[str, str, dict[tuple[str, Labels], float]]] = {}
    for part in parts:
        for name, kind, help_text, samples in part:
            values = known.setdefault(name, (kind, help_text, {}))[2]
            for suffix, labels, value in samples:
                before = values.get((suffix, labels))
                if before is None:
                    values[suffix, labels] = value
                elif name.endswith(_OLDEST):
                    values[suffix, labels] = max(before, value)
                elif name in _EARLIEST:
                    values[suffix, labels] = min(before, value)
                else:
                    values[suffix, labels] = round(before + value, 6)
    return [
        (name, kind, help_text, [(*series, value) for series, value in values.items()])
        for name, (kind, help_text, values) in known.items()
    ]
