"""Functions on optional values. `optMap` and `optFlatMap` are macros; `.?` and `[?]` are syntax."""

from perdure.expressions.cel.frame import Frame, allow_elements
from perdure.expressions.cel.functions.library import ANY, LIST, Function, Library
from perdure.expressions.cel.instants import Duration
from perdure.expressions.cel.values import NONE, CelList, Optional, Value


def _is_zero(value: Value) -> bool:
    """null, false, 0, and everything empty. A timestamp is never zero."""
    if value is None or value is False:
        return True
    if isinstance(value, (str, bytes, list, dict)):
        return not value
    if isinstance(value, Duration):
        return value.nanos == 0
    return isinstance(value, (int, float)) and value == 0


def _of_non_zero(_: Frame, value: Value) -> Optional:
    return NONE if _is_zero(value) else Optional(value)


def _unwrap(frame: Frame, items: Value) -> CelList:
    allow_elements(frame, len(items))
    return CelList(item.value for item in items if type(item) is Optional and item.has_value)


_UNWRAP = Function(((LIST,), _unwrap))

LIBRARY = Library(
    functions={
        "optional.of": Function(((ANY,), lambda _, value: Optional(value))),
        "optional.ofNonZeroValue": Function(((ANY,), _of_non_zero)),
        "optional.none": Function(((), lambda _: NONE)),
        "optional.unwrap": _UNWRAP,
    },
    methods={
        "hasValue": Function(((Optional,), lambda _, it: it.has_value)),
        "value": Function(((Optional,), lambda _, it: it.value)),
        "or": Function(((Optional, Optional), lambda _, it, other: it if it.has_value else other)),
        "orValue": Function(((Optional, ANY), lambda _, it, other: it.value if it.has_value else other)),
        "unwrapOpt": _UNWRAP,
    },
)
