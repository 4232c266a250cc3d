"""What the parts of the store build on; `PostgresStore` implements it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perdure.kernel.json_values.values import Instant
from perdure.stores.commit_types import DeliveredMessage
from perdure.stores.postgres.session import Session
from perdure.stores.postgres.wire import Statement

T = TypeVar("T")


class StorePart(ABC):
    _now: Callable[[], Instant]

    @abstractmethod
    async def _read(self, statement: Statement, *values: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    async def _query(self, statement: Statement, *values: Any) -> list[tuple[Any, ...]]:
        """As `_read`, for a question whose answer is short."""

    @abstractmethod
    async def _write(self, work: Callable[[Session, bool], T]) -> T: ...

    @abstractmethod
    async def _write_aside(self, work: Callable[[Session, bool], T]) -> T:
        """As `_write`, beside the connection of commits: they do not wait for it."""

    @abstractmethod
    async def _tell(self, delivered: Sequence[DeliveredMessage]) -> None:
        """Hint to the owners that messages have come."""
