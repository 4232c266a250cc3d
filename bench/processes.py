"""Facts about processes and files. Standard library and Linux only."""

import os
from pathlib import Path


def resident_mb(pid: int | str = "self") -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def descendants(pid: int) -> list[int]:
    pids = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            pids += [int(child), *descendants(int(child))]
    return pids


def family_mb(pid: int) -> float:
    """Memory of a process and all it has started, with what they share counted once."""
    return sum(_proportional_mb(member) for member in (pid, *descendants(pid)))


def _proportional_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def note_server(folder: Path, pid: int) -> None:
    """A server that leaves its starter's session: the harness ends whatever is noted here."""
    with (folder / "servers").open("a") as file:
        file.write(f"{pid}\n")
