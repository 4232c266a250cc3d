"""The pure core of the engine: inputs, events, turns and the state of a run.

It has no clock, no randomness and no I/O, and knows no language, no store and no provider.
"""
