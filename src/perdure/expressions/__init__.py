"""Expression languages, one room each. Pure: no clock, no randomness, no I/O."""
