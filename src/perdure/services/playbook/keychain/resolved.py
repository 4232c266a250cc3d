"""A secret as it was made, and which texts in it must be hidden."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perdure.kernel.credentials import PUBLIC, secret_texts


@dataclass(frozen=True, slots=True)
class Resolved:
    """`lifetime` in seconds, where its source says; `all_secret`: hides also what credentials usually show."""

    value: Any
    lifetime: float | None = None
    all_secret: bool = False
    kind: str | None = None  # when it is of another kind than its entry: what a reference leads to

    def secrets(self) -> Iterator[str]:
        return secret_texts(self.value, frozenset() if self.all_secret else PUBLIC)
