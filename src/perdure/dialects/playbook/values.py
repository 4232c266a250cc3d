"""Values inside a run: encoded once, decoded at most once per process, and never copied from step to step.

A result that a task gave stays where its event put it; the result of a loop is the list of its iterations' results,
put together when somebody reads it.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.kernel import jsontext
from perdure.kernel.turn import Needs
from perdure.kernel.values import NULL, Payload, Ref

Reader = Callable[[Payload], bytes]
"""Fetches the text of a value, or raises `Needs`."""

Patch = tuple[tuple[str, bytes], ...]
"""Assignments in order: a key, perhaps dotted, and the JSON text of its value."""

_UNREAD: Any = msgspec.UNSET


class Value:
    """One value of the state: a text, or the results of a loop's iterations in index order."""

    __slots__ = ("_data", "failed", "parts", "payload")

    def __init__(self, payload: Payload = NULL, parts: "list[Value | None] | None" = None, failed: int = 0) -> None:
        self.payload = payload
        self.parts = parts
        self.failed = failed
        self._data = _UNREAD

    def read(self, text: Reader) -> Any:
        if self._data is _UNREAD:
            self._data = self._gathered(text) if self.parts is not None else jsontext.decode(text(self.payload))
        return self._data

    @property
    def stats(self) -> dict[str, int] | None:
        """How a loop went; None for any other value."""
        if self.parts is None:
            return None
        total = len(self.parts)
        return {"total": total, "success": total - self.failed, "failed": self.failed}

    @property
    def is_null(self) -> bool:
        return self.parts is None and self.payload == NULL

    def _gathered(self, text: Reader) -> dict[str, Any]:
        assert self.parts is not None
        results: list[Any] = []
        missing: list[bytes] = []
        for part in self.parts:
            try:
                results.append(None if part is None else part.read(text))
            except Needs as needs:  # ask for all at once: each asking makes the move again
                missing += needs.wanted
        if missing:
            raise Needs(tuple(missing))
        return {"results": results, "stats": self.stats}


NOTHING = Value()


class BadKey(ValueError):
    """A dotted key leads through something that is not a map."""


class Variables:
    """`ctx` or `iter`: a map that is changed by assignments only."""

    __slots__ = ("data",)

    def __init__(self, data: dict[str, Any] | None = None) -> None:
        self.data: dict[str, Any] = {} if data is None else data

    def assign(self, patch: Patch) -> None:
        for key, text in patch:
            _put(self.data, key.split("."), jsontext.decode(text))

    def overlaid(self, patch: Patch) -> dict[str, Any]:
        """The map as it would be after the assignments; this one stays as it is."""
        data = dict(self.data)
        for key, text in patch:
            path = key.split(".")
            inner = data
            for name in path[:-1]:
                found = inner.get(name, {})
                if isinstance(found, dict):
                    found = dict(found)
                inner[name] = found
                if not isinstance(found, dict):
                    break
                inner = found
            _put(data, path, jsontext.decode(text))
        return data


def _put(data: dict[str, Any], path: list[str], value: Any) -> None:
    for depth, name in enumerate(path[:-1]):
        data = data.setdefault(name, {})
        if not isinstance(data, dict):
            raise BadKey(f"{'.'.join(path)!r} cannot be set: {'.'.join(path[: depth + 1])!r} is not a map")
    data[path[-1]] = value


# How the two stand in a snapshot.


def encode_hook(value: Any) -> Any:
    match value:
        case Value():
            return (value.payload, value.parts, value.failed) if value.parts is not None else (value.payload,)
        case Variables():
            return jsontext.encode(value.data)
    raise NotImplementedError(type(value).__name__)


def decode_hook(kind: type, raw: Any) -> Any:
    if kind is Variables:
        return Variables(jsontext.decode(raw))
    return _thawed(raw)


def _thawed(raw: Any) -> Value:
    payload = raw[0] if isinstance(raw[0], bytes) else Ref(*raw[0])
    if len(raw) == 1:
        return Value(payload)
    return Value(payload, [None if part is None else _thawed(part) for part in raw[1]], raw[2])
