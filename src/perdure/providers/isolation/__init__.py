"""Warm subprocesses for functions that must be stoppable, or must not take the engine down with them."""
