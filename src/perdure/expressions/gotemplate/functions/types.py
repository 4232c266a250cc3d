"""Tests of types, with Go's names for them, and structural equality."""

from perdure.expressions.gotemplate.comparison import are_deeply_equal
from perdure.expressions.gotemplate.functions.library import ANY, TEXT, takes, takes_frame
from perdure.expressions.gotemplate.values import Value, kind_name, type_name


def is_like(target: str, value: Value) -> bool:
    return type_name(value) in (target, f"*{target}")


FUNCTIONS = {
    "deepEqual": takes_frame(lambda frame, left, right: are_deeply_equal(left, right, frame.budget), ANY, ANY),
    "kindIs": takes(lambda target, value: kind_name(value) == target, TEXT, ANY),
    "kindOf": takes(kind_name, ANY),
    "typeIs": takes(lambda target, value: type_name(value) == target, TEXT, ANY),
    "typeIsLike": takes(is_like, TEXT, ANY),
    "typeOf": takes(type_name, ANY),
}
