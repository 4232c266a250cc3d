"""The sets extension: lists treated as sets, by CEL equality."""

from perdure.expressions.cel.comparison import contains
from perdure.expressions.cel.frame import Frame, elements
from perdure.expressions.cel.functions.library import LIST, Function, Library
from perdure.expressions.cel.values import Value


def _contains(frame: Frame, container: Value, part: Value) -> bool:
    return all(contains(frame, item, container) for item in elements(frame, part))


def _equivalent(frame: Frame, left: Value, right: Value) -> bool:
    return _contains(frame, left, right) and _contains(frame, right, left)


def _intersects(frame: Frame, left: Value, right: Value) -> bool:
    return any(contains(frame, item, right) for item in elements(frame, left))


LIBRARY = Library(
    functions={
        "sets.contains": Function(((LIST, LIST), _contains)),
        "sets.equivalent": Function(((LIST, LIST), _equivalent)),
        "sets.intersects": Function(((LIST, LIST), _intersects)),
    }
)
