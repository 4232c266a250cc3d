"""Maps. Keys are in order, so that every process gives the same result."""

from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.formatting import format_value
from perdure.expressions.gotemplate.frame import Frame
from perdure.expressions.gotemplate.functions.library import ANY, MAP, TEXT, takes, takes_frame
from perdure.expressions.gotemplate.values import Value, describe, require_present, sorted_keys


def make_map(frame: Frame, *pairs: Value) -> dict[str, Value]:
    """From alternating keys and values; a last key without a value gets an empty text."""
    keys = (format_value(key, frame.budget) for key in pairs[::2])
    values = [*pairs[1::2], ""]
    return dict(zip(keys, values, strict=False))


def get(frame: Frame, source: dict[str, Value], key: str) -> Value:
    if key in source:
        return source[key]
    frame.absent = frame.absent or key
    return ""


def pick(source: dict[str, Value], *keys: str) -> dict[str, Value]:
    return {key: source[key] for key in keys if key in source}


def omit(source: dict[str, Value], *keys: str) -> dict[str, Value]:
    left_out = frozenset(keys)
    return {key: value for key, value in source.items() if key not in left_out}


def dig(first: Value, *others: Value) -> Value:
    """Keys, a default and a map: the value under the keys, or the default where a key is missing."""
    if len(others) < 2:
        raise EvaluationFault("it takes one or more keys, a default and a map")
    *keys, default, value = (first, *others)
    for key in keys:
        if value is None:
            return default
        if type(key) is not str or type(value) is not dict:
            what = repr(key[:60]) if type(key) is str else f"that is {describe(key)}"
            raise EvaluationFault(f"{describe(value)} has no key {what}")
        if key not in require_present(value):
            return default
        value = value[key]
    return value


FUNCTIONS = {
    "dict": takes_frame(make_map, rest=ANY),
    "dig": takes(dig, ANY, rest=ANY),
    "get": takes_frame(get, MAP, TEXT),
    "hasKey": takes(lambda source, key: key in source, MAP, TEXT),
    "keys": takes(lambda *sources: [key for source in sources for key in sorted_keys(source)], rest=MAP),
    "omit": takes(omit, MAP, rest=TEXT),
    "pick": takes(pick, MAP, rest=TEXT),
    "pluck": takes(lambda key, *sources: [source[key] for source in sources if key in source], TEXT, rest=MAP),
    "values": takes(lambda source: [source[key] for key in sorted_keys(source)], MAP),
}
