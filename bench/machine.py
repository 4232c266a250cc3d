"""Where the figures come from: a machine without a name."""

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any


def facts(scratch: Path) -> dict[str, Any]:
    import apsw

    return {
        "cores": os.cpu_count(),
        "cpu": _first(r"model name\s*:\s*(.+)", "/proc/cpuinfo") or platform.machine(),
        "memory_gib": round(int(_first(r"MemTotal:\s*(\d+)", "/proc/meminfo") or 0) / 2**20),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "file_system": _file_system(scratch.resolve()),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "perdure": version("perdure"),
    }


def load() -> float:
    return round(os.getloadavg()[0], 2)


def _first(pattern: str, path: str) -> str | None:
    try:
        match = re.search(pattern, Path(path).read_text())
    except OSError:
        return None
    return match[1].strip() if match else None


def _file_system(path: Path) -> str:
    """The kind of the mount that holds the path."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    held = [(len(point), kind) for point, kind in mounts if path.is_relative_to(point)]
    return max(held)[1] if held else "unknown"
