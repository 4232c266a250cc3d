"""One problem at one place of a source text, with a picture that points at it."""

from typing import Protocol

import msgspec

from perdure.expressions.source import Position, Source


class Spanned(Protocol):
    """Anything that knows which part of the source it came from."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


class Finding(msgspec.Struct, frozen=True):
    """One problem at one place."""

    message: str
    position: Position
    picture: str

    @classmethod
    def at(cls, source: Source, offset: int, message: str) -> "Finding":
        return cls(message, source.position(offset), source.point_at(offset))

    def __str__(self) -> str:
        return f"{self.position}: {self.message}\n{self.picture}"
