"""Decisions of a running Playbook: they read the state and emit events. How events change the state is in `state`."""
