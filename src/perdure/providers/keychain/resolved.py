"""A secret as it was made, and which texts in it must be hidden."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.kernel.credentials import PUBLIC


@dataclass(frozen=True, slots=True)
class Resolved:
    """`lifetime` in seconds, where its source says; `all_secret`: hides also what credentials usually show."""

    value: Any
    lifetime: float | None = None
    all_secret: bool = False
    kind: str | None = None  # when it is of another kind than its entry: what a reference leads to

    def secrets(self) -> Iterator[str]:
        return _texts(self.value, frozenset() if self.all_secret else PUBLIC)


def _texts(value: Any, public: frozenset[str]) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if str(name).lower() not in public:
                yield from _texts(inner, public)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, public)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
