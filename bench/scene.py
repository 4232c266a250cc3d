"""What a measured process is given, and how it answers. Standard library only.

A process answers in lines of JSON on stdout. `told` gives the figures; `reached` marks a moment that the harness times
from outside, so that the start of the interpreter counts.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.sizes import Sizes


@dataclass(frozen=True)
class Scene:
    subject: str  # the language or the peer
    folder: Path  # fresh, on the disk that is measured
    sizes: Sizes
    variant: str = ""  # one of the settings that the subject offers for this workload
    life: int = 1  # W5: the second life is the one after the kill
    home: Path = Path()  # a peer's environment, where it keeps what it installed beside Python packages

    @property
    def marks(self) -> Path:
        """W5: every step that runs leaves a line here."""
        return self.folder / "marks"

    def all_submitted(self, names: Any = None) -> None:
        """W5: from here on all workflows are acknowledged, and the process may be killed."""
        written = self.folder / "submitted.new"
        written.write_text(json.dumps(names))
        written.rename(self.folder / "submitted")

    def submitted(self) -> Any:
        return json.loads((self.folder / "submitted").read_text())


def told(figures: dict[str, Any]) -> None:
    print(json.dumps(figures), flush=True)


def reached(moment: str) -> None:
    print(json.dumps({"reached": moment}), flush=True)


def per_second(count: int, began: float) -> dict[str, float]:
    return {"steps_per_s": count / (time.perf_counter() - began)}


def latencies(seconds: list[float]) -> dict[str, float]:
    """The first tenth only warms up."""
    counted = sorted(seconds[len(seconds) // 11 :])
    last = len(counted) - 1
    return {"p50_ms": counted[last // 2] * 1e3, "p99_ms": counted[round(last * 0.99)] * 1e3}


def evenness(stamps: list[float]) -> dict[str, float]:
    """Speed of a long run, and of its last tenth beside its first."""
    tenth = max(1, len(stamps) // 10)
    first, last = stamps[tenth] - stamps[0], stamps[-1] - stamps[-1 - tenth]
    return {"steps_per_s": (len(stamps) - 1) / (stamps[-1] - stamps[0]), "last_to_first": first / last}


def complain(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
