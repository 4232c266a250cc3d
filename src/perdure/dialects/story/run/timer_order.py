"""How timers of one instant are ordered."""

BOUND_RANK = 1
"""A deadline comes after everything else that happens at its instant: who is in time is in time."""
