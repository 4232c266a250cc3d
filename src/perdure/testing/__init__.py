"""For your own tests: a clock you move by hand, and a world that crashes and boots on demand."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.testing.clock import FakeClock
    from perdure.testing.crashing import CrashingStore
    from perdure.testing.hands import ScriptedHands, WorldHands
    from perdure.testing.inspection import IdleExecutor, decode_log, load_source
    from perdure.testing.simulated_runs import SimulationFailed, simulate
    from perdure.testing.streamed import stream
    from perdure.testing.world import RunInWorld, World

__all__ = [
    "CrashingStore",
    "FakeClock",
    "IdleExecutor",
    "RunInWorld",
    "ScriptedHands",
    "SimulationFailed",
    "World",
    "WorldHands",
    "decode_log",
    "load_source",
    "simulate",
    "stream",
]

_HOMES = {
    "CrashingStore": "crashing",
    "FakeClock": "clock",
    "IdleExecutor": "inspection",
    "RunInWorld": "world",
    "ScriptedHands": "hands",
    "SimulationFailed": "simulated_runs",
    "World": "world",
    "WorldHands": "hands",
    "decode_log": "inspection",
    "load_source": "inspection",
    "simulate": "simulated_runs",
    "stream": "streamed",
}


def __getattr__(name: str) -> Any:
    """Loaded when first asked for: a run of a drill needs the language, not the world."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
