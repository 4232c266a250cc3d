"""Where the time of a workload goes, by package: `python -m bench profile w1 [--language flow]`.

The event loop's thread is profiled. Built-in functions count for the package that calls them, except those of msgspec,
SQLite and the wait for events, which have rows of their own. A profile slows Python down more than C: read shares.
"""

import cProfile
import pstats
import re
from collections import defaultdict
from typing import Any

from bench import ours
from bench.scene import Scene
from bench.sizes import QUICK

Place = tuple[str, int, str]  # file, line, function: as pstats has it

OWN_ROWS = (("sqlite", "apsw"), ("msgspec", "msgspec"), ("waiting", "select.epoll"))


def profiled(scene: Scene) -> dict[str, Any]:
    """A measured process: the variant is the workload."""
    profiler = cProfile.Profile()
    workload = getattr(ours, scene.variant)
    for name in ("warm", "profiled"):  # imports and first uses are left out
        (scene.folder / name).mkdir()
    workload(Scene(scene.subject, scene.folder / "warm", QUICK))
    profiler.runcall(workload, Scene(scene.subject, scene.folder / "profiled", scene.sizes))
    return summary(pstats.Stats(profiler).stats)  # type: ignore[attr-defined]


def summary(stats: dict[Place, Any]) -> dict[str, Any]:
    """Seconds by package, and the most expensive functions with their share of the work (waiting left out)."""
    packages: dict[str, float] = defaultdict(float)
    functions: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for place, (_, calls, own, whole, callers) in stats.items():
        package = package_of(place)
        if package is None:  # an ordinary built-in: its time belongs to whoever calls it
            for caller, (_, _, in_caller, _) in callers.items():
                packages[package_of(caller) or "other"] += in_caller
        else:
            packages[package] += own
        entry = functions[describe(place)]
        entry[0] += calls
        entry[1] += own
        entry[2] += whole
    work = sum(seconds for package, seconds in packages.items() if package != "waiting")
    dearest = sorted(functions.items(), key=lambda item: -item[1][1])
    return {
        "rooms": {
            package: round(seconds, 4) for package, seconds in sorted(packages.items(), key=lambda item: -item[1])
        },
        "work_s": round(work, 3),
        "functions": [
            {"name": name, "calls": calls, "own": round(own / work, 4), "whole": round(whole / work, 4)}
            for name, (calls, own, whole) in dearest[:25]
            if "epoll" not in name
        ],
    }


def package_of(place: Place) -> str | None:
    file, _, function = place
    if file in ("~", "") or file.startswith("<"):
        return next((package for package, sign in OWN_ROWS if sign in function), None)
    if match := re.search(r"/perdure/(dialects/\w+|testing/drill|\w+)/", file):
        return "dialects/drill" if match[1] == "testing/drill" else match[1]
    if "/asyncio/" in file or file.endswith(("selectors.py", "threading.py", "queue.py")):
        return "asyncio"
    if "/bench/" in file:
        return "bench"
    return "other"


def describe(place: Place) -> str:
    file, line, function = place
    if file in ("~", ""):
        return function.strip("<>{}")
    short = file.rpartition("/perdure/")[2] if "/perdure/" in file else "/".join(file.split("/")[-2:])
    return f"{short}:{line} {function}"


def told(profile: dict[str, Any], title: str) -> str:
    """For people."""
    lines = [f"{title}: {profile['work_s']:.3f} s of work on the event loop", "", "by package"]
    for package, seconds in profile["rooms"].items():
        share = "" if package == "waiting" else f"{seconds / profile['work_s']:6.1%}"
        lines.append(f"  {package:24} {seconds:8.3f} s {share}")
    lines += ["", f"  {'own':>6} {'whole':>6} {'calls':>9}  function"]
    for function in profile["functions"]:
        lines.append(f"  {function['own']:6.1%} {function['whole']:6.1%} {function['calls']:9,}  {function['name']}")
    return "\n".join(lines)
