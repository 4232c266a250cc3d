"""Decisions of a running Flow: they read the state and emit events. How events change the state is in `state`."""
