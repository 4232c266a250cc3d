"""The strings extension. Positions count code points; `format` has its own module."""

from collections.abc import Callable

from perdure.expressions.cel.errors import EvaluationFault
from perdure.expressions.cel.frame import Frame, allow_elements, allow_size, charge, elements
from perdure.expressions.cel.functions.formatting import format_text
from perdure.expressions.cel.functions.library import LIST, Function, Library
from perdure.expressions.cel.values import CelList, Value, type_name

_BLANKS = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code + 32: code for code in range(ord("A"), ord("Z") + 1)}
_QUOTES = str.maketrans({
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"',
    **{chr(surrogate): "\ufffd" for surrogate in range(0xD800, 0xE000)},
})  # fmt: skip


def _within(text: str, position: int) -> None:
    if not 0 <= position <= len(text):
        raise EvaluationFault(f"position {position} is out of range: the string has {len(text)} code points")


def _char_at(_: Frame, text: str, position: int) -> str:
    _within(text, position)
    return text[position : position + 1]


def _index_of(frame: Frame, text: str, part: str, start: int = 0) -> int:
    _within(text, start)
    charge(frame, len(text) >> 4)
    return text.find(part, start)


def _last_index_of(frame: Frame, text: str, part: str, start: int | None = None) -> int:
    start = len(text) if start is None else start
    _within(text, start)
    charge(frame, len(text) >> 4)
    return text.rfind(part, 0, start + len(part))


def _substring(_: Frame, text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    _within(text, start)
    _within(text, end)
    if start > end:
        raise EvaluationFault(f"a substring cannot end at {end} before its start at {start}")
    return text[start:end]


def _replace(frame: Frame, text: str, old: str, new: str, limit: int = -1) -> str:
    charge(frame, len(text) >> 4)
    count = text.count(old)
    count = count if limit < 0 else min(count, limit)
    allow_size(frame, len(text) + count * (len(new) - len(old)))
    return text.replace(old, new, count)


def _split(frame: Frame, text: str, separator: str, limit: int = -1) -> CelList:
    if limit == 0:
        return CelList()
    charge(frame, len(text) >> 2)
    pieces = text.split(separator, limit - 1 if limit > 0 else -1) if separator else _characters(text, limit)
    allow_elements(frame, len(pieces))
    return CelList(pieces)


def _characters(text: str, limit: int) -> list[str]:
    if limit < 0 or limit >= len(text):
        return list(text)
    return [*text[: limit - 1], text[limit - 1 :]]


def _join(frame: Frame, parts: Value, separator: str = "") -> str:
    texts = elements(frame, parts)
    for part in texts:
        if type(part) is not str:
            raise EvaluationFault(f"join() needs a list of strings, this one holds {type_name(part)}")
    allow_size(frame, sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def _sized(transform: Callable[[str], str]) -> Callable[[Frame, str], str]:
    def apply(frame: Frame, text: str) -> str:
        allow_size(frame, len(text))
        return transform(text)

    return apply


def _quote(frame: Frame, text: str) -> str:
    allow_size(frame, 2 * len(text))
    return f'"{text.translate(_QUOTES)}"'


LIBRARY = Library(
    functions={"strings.quote": Function(((str,), _quote))},
    methods={
        "charAt": Function(((str, int), _char_at)),
        "indexOf": Function(((str, str), _index_of), ((str, str, int), _index_of)),
        "lastIndexOf": Function(((str, str), _last_index_of), ((str, str, int), _last_index_of)),
        "substring": Function(((str, int), _substring), ((str, int, int), _substring)),
        "replace": Function(((str, str, str), _replace), ((str, str, str, int), _replace)),
        "split": Function(((str, str), _split), ((str, str, int), _split)),
        "join": Function(((LIST,), _join), ((LIST, str), _join)),
        "trim": Function(((str,), _sized(lambda text: text.strip(_BLANKS)))),
        "lowerAscii": Function(((str,), _sized(lambda text: text.translate(_LOWER)))),
        "upperAscii": Function(((str,), _sized(lambda text: text.translate(_UPPER)))),
        "reverse": Function(((str,), _sized(lambda text: text[::-1]))),
        "format": Function(((str, LIST), format_text)),
    },
)
