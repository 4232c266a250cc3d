"""Drill: a small workflow language that drives every verb of the kernel, so that the kernel has the shape of none.

It is for tests, examples and measurements; it makes no promise to stay as it is.
"""

from perdure.testing.drill.language import Drill

__all__ = ["Drill"]
