"""Where one step of W4 spends its time, piece after piece: `python -m bench split [--language flow]`.

Nothing in W4 happens side by side, so the pieces add up to the step. Each is timed where it begins and ends; the timing
itself costs each about a microsecond.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any

from bench import ours
from bench.scene import Scene
from perdure.engine import transition_builder
from perdure.engine.scheduler import Scheduler
from perdure.stores.sqlite.store import SqliteStore
from perdure.workers.task_execution import TaskExecution
from perdure.workers.threads import Threads

PIECES = (
    ("decide", "decide what follows from the result"),
    ("encode", "encode the log row"),
    ("statements", "check the epoch, insert the row"),
    ("sync", "commit: the disk"),
    ("hand_out", "finish the turn, hand out the task"),
    ("hop_there", "until a thread has the task"),
    ("function", "the function, its arguments and result"),
    ("hop_back", "until the event loop has the result"),
)
OTHER = ("other", "the event loop and everything in between")


def split(scene: Scene) -> dict[str, Any]:
    """A measured process: microseconds of each piece of a step, the median of all, and of the whole step."""
    spent: dict[str, list[float]] = defaultdict(list)
    _time(Scheduler, "_decide", spent["decide"])
    _time(transition_builder, "encode_turns", spent["encode"])
    _time(SqliteStore, "_write", spent["statements"])
    _time(SqliteStore, "_commit", spent["sync"])
    _time(Scheduler, "committed", spent["hand_out"])
    _time(TaskExecution, "attempt", spent["function"])
    _time_hops(spent)
    figures = ours.w4(scene)
    durations = {name: median(times) * 1e6 for name, times in spent.items()}
    durations["decide"] -= durations["encode"]
    whole = 1e6 / figures["steps_per_s"]
    return {**durations, "whole": whole, "other": whole - sum(durations.values())}


def _time(owner: Any, name: str, times: list[float]) -> None:
    timed: Callable[..., Any] = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return timed(*arguments, **named)
        finally:
            times.append(time.perf_counter() - began)

    setattr(owner, name, call)


def _time_hops(spent: dict[str, list[float]]) -> None:
    """From the queue into a thread, and from there back to the loop."""
    began = [0.0, 0.0]
    submit, attempt, collect = Threads.submit, TaskExecution.attempt, Threads._collect

    def submitting(self: Any, job: Any) -> None:
        began[0] = time.perf_counter()
        submit(self, job)

    def attempting(self: Any, *arguments: Any) -> Any:
        spent["hop_there"].append(time.perf_counter() - began[0])
        try:
            return attempt(self, *arguments)
        finally:
            began[1] = time.perf_counter()

    def collecting(self: Any) -> None:
        spent["hop_back"].append(time.perf_counter() - began[1])
        collect(self)

    for owner, name, timed in ((Threads, "submit", submitting), (TaskExecution, "attempt", attempting)):
        setattr(owner, name, timed)
    setattr(Threads, "_collect", collecting)  # noqa: B010


def told(durations: dict[str, Any], title: str) -> str:
    """For people."""
    lines = [f"{title}: {durations['whole']:.0f} µs a step"]
    for name, words in (*PIECES, OTHER):
        lines.append(f"  {durations[name]:7.0f} µs {durations[name] / durations['whole']:6.1%}  {words}")
    return "\n".join(lines)
