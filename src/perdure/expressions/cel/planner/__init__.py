"""From a syntax tree to closures: names, functions and constants are resolved once, evaluation only calls.

`planner` walks the tree; the other modules create the closures of one kind of node each. The tree comes from `parser`.
"""
