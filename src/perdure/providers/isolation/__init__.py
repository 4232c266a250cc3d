"""Warm subprocesses for functions that must be stoppable, or must not crash the engine."""
