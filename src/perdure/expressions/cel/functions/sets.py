"""The sets extension: lists treated as sets, by CEL equality."""

from perdure.expressions.cel.comparison import contains
from perdure.expressions.cel.frame import Frame, charge, each
from perdure.expressions.cel.functions.library import LIST, Function, Library
from perdure.expressions.cel.values import Value

_WORK_OF_A_LOOK = 10


def _contains(frame: Frame, container: Value, part: Value) -> bool:
    return all(_has(frame, container, item) for item in each(frame, part))


def _has(frame: Frame, container: Value, item: Value) -> bool:
    charge(frame, _WORK_OF_A_LOOK)  # an empty list, too, is looked at
    return contains(frame, item, container)


def _equivalent(frame: Frame, left: Value, right: Value) -> bool:
    return _contains(frame, left, right) and _contains(frame, right, left)


def _intersects(frame: Frame, left: Value, right: Value) -> bool:
    return any(_has(frame, right, item) for item in each(frame, left))


LIBRARY = Library(
    functions={
        "sets.contains": Function(((LIST, LIST), _contains)),
        "sets.equivalent": Function(((LIST, LIST), _equivalent)),
        "sets.intersects": Function(((LIST, LIST), _intersects)),
    }
)
