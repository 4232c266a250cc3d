"""The loop of a step-run: its iterations, and the frames that a cursor has claimed. Changed by events only.

    list      total is known ─▶ iterations ─▶ results
    cursor    claim ─▶ frame ─▶ iterations ─▶ claim … until one returns no row

Counters replace scans: what a change costs does not depend on the length of the loop.
"""

import msgspec

from perdure.dialects.playbook.state.task_errors import Error
from perdure.dialects.playbook.state.values import Value
from perdure.kernel.json_values import jsontext


class CursorFrame(msgspec.Struct, gc=False, array_like=True):
    """What one claim of a cursor loop returned, as long as an iteration may need it."""

    rows: Value
    left: int  # iterations that have not succeeded


class LoopState(msgspec.Struct, gc=False, array_like=True):
    """The iterations of a looped step-run; counters replace scans."""

    items: Value
    total: int
    limit: int
    mode: str = "sequential"
    next: int = 0
    active: int = 0
    failed: int = 0
    stopped: bool = False
    lowest_failed: int = -1  # the lowest index that failed
    error: Error | None = None  # of that iteration
    label: str = ""  # of the task at which it failed
    repeats: list[int] = msgspec.field(default_factory=list)  # shards to run again
    retries: dict[int, int] = msgspec.field(default_factory=dict)
    results: dict[int, Value] = msgspec.field(default_factory=dict)
    size: int = 0  # of the results as templates see them
    patches: dict[int, list[tuple[str, bytes]]] = msgspec.field(default_factory=dict)

    # Of a cursor loop, whose total grows with every claim.
    claims: int = 0
    claiming: bool = False
    claimed: Value | None = None  # the answer to a claim, before its rows are counted
    drained: bool = False  # a claim has returned no row
    claim_error: Error | None = None
    done: int = 0  # iterations that succeeded; their results are not kept
    frames: dict[int, CursorFrame] = msgspec.field(default_factory=dict)  # by the index of the first iteration

    @property
    def is_cursor(self) -> bool:
        return self.mode == "cursor"

    @property
    def succeeded(self) -> int:
        return self.done if self.is_cursor else len(self.results)

    @property
    def result(self) -> Value:
        if self.is_cursor:
            stats = {"total": self.total, "success": self.done, "failed": self.failed}
            return Value(jsontext.encode({"results": None, "stats": stats}))
        return Value(parts=[self.results.get(index) for index in range(self.total)], failed=self.failed)

    @property
    def can_start(self) -> bool:
        if self.claimed is not None:
            return True
        if self.stopped or self.active >= self.limit:
            return False
        return self.next < self.total or bool(self.repeats) or (self.is_open and not self.claiming)

    @property
    def is_open(self) -> bool:
        """There may be more elements than those that are known."""
        return self.is_cursor and not self.drained

    @property
    def is_over(self) -> bool:
        if self.active or self.claiming or self.claimed is not None:
            return False
        return self.stopped or (self.next == self.total and not self.repeats and not self.is_open)

    def frame_of(self, index: int) -> tuple[int, CursorFrame]:
        """The frame of an iteration, and the index of its first one."""
        first = max(first for first in self.frames if first <= index)
        return first, self.frames[first]
