"""A store that dies at a chosen commit, just before it is on disk or just after."""

from perdure.stores.crashing_store import CrashingStore as CrashingStore

__all__ = ["CrashingStore"]
