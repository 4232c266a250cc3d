"""A syntax tree to closures: names, functions and constants are resolved once, evaluation only calls.

`planner` walks the tree; the other modules make the closures of one kind of node each.
"""

from perdure.expressions.cel.planner.planner import Plan, plan

__all__ = ["Plan", "plan"]
