"""What decides. Pure: no clock, no randomness, no I/O; knows no language and no store."""
