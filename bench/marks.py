"""W5: what really ran, across a `kill -9`. Standard library only.

Every step appends one line to a file, unsynced: the page cache outlives the process. A step whose successor began
before the kill was finished for certain; running it again, or another answer in the end, is a fault of durability.
A step without a successor was in flight, and may run once more.
"""

import os
from pathlib import Path
from typing import Any


class Marks:
    def __init__(self, path: Path, life: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._life = life

    def leave(self, workflow: str, step: int) -> str:
        """One line for one run of a step; the answer is different each time."""
        mark = os.urandom(4).hex()
        os.write(self._file, f"{self._life} {workflow} {step} {mark}\n".encode())
        return mark


def count(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def judge(path: Path, ended: dict[str, list[str]], workflows: int, steps: int) -> dict[str, Any]:
    """`ended`: by workflow, the mark that each of its steps has in the end."""
    first: dict[tuple[str, int], list[str]] = {}
    second: dict[tuple[str, int], list[str]] = {}
    for line in path.read_text().splitlines():
        life, workflow, step, mark = line.split()
        (first if life == "1" else second).setdefault((workflow, int(step)), []).append(mark)
    finished = {(workflow, step) for workflow, step in first if (workflow, step + 1) in first}
    complete = {workflow: marks for workflow, marks in ended.items() if len(marks) == steps}
    wrong = sum(
        mark != first[(workflow, step)][-1]
        if (workflow, step) in finished
        else mark not in first.get((workflow, step), []) + second.get((workflow, step), [])
        for workflow, marks in complete.items()
        for step, mark in enumerate(marks)
    )
    return {
        "left": workflows * steps - len(first),
        "lost": workflows - len(complete),
        "again": sum(key in second for key in finished),
        "in_flight_again": sum(key in second for key in first if key not in finished),
        "wrong": wrong,
    }
