"""For your own tests: a clock you move by hand, and a world that crashes and boots on demand."""

from perdure.testing.clock import FakeClock
from perdure.testing.crashing import CrashingStore
from perdure.testing.hands import ScriptedHands
from perdure.testing.world import RunInWorld, World

__all__ = ["CrashingStore", "FakeClock", "RunInWorld", "ScriptedHands", "World"]
