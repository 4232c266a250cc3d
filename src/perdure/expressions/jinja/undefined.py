"""The two kinds of undefined (PBK-147): harmless in guards, an error in values as soon as it is needed.

Both may be tested, compared for equality and given a default, and both allow further access, so that the first missing
name is the one that is reported. Ordering and arithmetic fail for both.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

from jinja2 import Undefined
from jinja2.utils import missing

from perdure.expressions.jinja.errors import MissingValue
from perdure.kernel.documents.problems import guess


class LenientUndefined(Undefined):
    """Undefined in a guard: false, empty, no text."""

    __slots__ = ()

    def __init__(
        self,
        hint: str | None = None,
        obj: Any = missing,
        name: str | None = None,
        exc: Any = None,
    ) -> None:
        super().__init__(hint, obj, name, lambda _: _refusal(hint, obj, name))  # type: ignore[arg-type]

    __eq__ = Undefined.__eq__
    __hash__ = Undefined.__hash__


class StrictUndefined(LenientUndefined):
    """Undefined in a value: printing, iterating or measuring it is an error."""

    __slots__ = ()

    def _refuse(self) -> NoReturn:
        raise self._undefined_exception("")

    def __str__(self) -> str:
        self._refuse()

    def __iter__(self) -> Iterator[Any]:
        self._refuse()

    def __len__(self) -> int:
        self._refuse()

    def __contains__(self, _: object) -> bool:
        return False

    __eq__ = Undefined.__eq__
    __hash__ = Undefined.__hash__


def fail(value: Undefined) -> NoReturn:
    """A defined value was needed."""
    raise value._undefined_exception("")


_MOST_NAMES = 200  # candidates for a suggestion
_LONGEST_NAME = 200  # a longer text is not a name that somebody wrote
_REFERENCES = ("result_ref", "manifest")  # kinds of maps that stand for a large value kept elsewhere


def _refusal(hint: str | None, obj: Any, name: Any) -> MissingValue:
    if isinstance(name, str):
        name = name if len(name) <= _LONGEST_NAME else f"{name[:60]}…"
    elif not isinstance(name, int) or name.bit_length() > _LONGEST_NAME:
        name = f"a key of type {type(name).__name__}"  # data that were used as a key, as large as they may be
    if hint is not None:
        return MissingValue(hint[0].lower() + hint[1:].rstrip("."))
    if obj is missing:
        return MissingValue(f"`{name}` is not defined here", name)
    if isinstance(obj, dict) and obj.get("kind") in _REFERENCES:
        remedy = "name what is read of it in `spec.result.select`"
        return MissingValue(f"`{name}` is missing: this value is large and kept by reference; {remedy}", str(name))
    if isinstance(obj, dict) and isinstance(name, str) and len(obj) <= _MOST_NAMES:
        near = guess(name, [key for key in obj if isinstance(key, str)])
        return MissingValue(f"`{name}` is missing{near}", name)
    if obj is None:
        return MissingValue(f"`{name}` is missing: its parent is null", str(name))
    return MissingValue(f"`{name}` is missing", str(name))
