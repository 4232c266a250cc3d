"""What the parts of the store build on; `SqliteStore` implements it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from perdure.kernel.json_values.values import Instant

if TYPE_CHECKING:
    from perdure.stores.sqlite.batch_writer import BatchWriter

T = TypeVar("T")


class StorePart(ABC):
    path: Path
    _now: Callable[[], Instant]

    @property
    @abstractmethod
    def _connection(self) -> apsw.Connection:
        """For writing, in a transaction."""

    @property
    @abstractmethod
    def _writer(self) -> "BatchWriter": ...

    @abstractmethod
    def _read(self, query: str, bindings: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    async def _explained_transaction(self, work: Callable[[], T], **how: bool) -> T: ...
