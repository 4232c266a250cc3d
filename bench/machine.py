"""Where the figures come from: a machine without a name."""

import os
import platform
import re
import sysconfig
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
        "python_build": python_build(),
        "sqlite": apsw.sqlite_lib_version(),
        "perdure": version("perdure"),
    }


def python_build() -> str:
    """What the interpreter says of its build. Packages of systems may be optimised without saying so."""
    options = sysconfig.get_config_var("CONFIG_ARGS") or ""
    return f"configured {'with' if '--enable-optimizations' in options else 'without'} --enable-optimizations"


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
