"""Values inside a run: encoded once, decoded at most once per process, and never copied from step to step.

The result of a task stays where its event put it; the result of a loop is the list of its iterations' results,
assembled when it is read.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import NULL, Payload, Ref
from perdure.kernel.turn import MissingValues

Reader = Callable[[Payload], bytes]
"""Fetches the text of a value, or raises `MissingValues`."""

Patch = tuple[tuple[str, bytes], ...]
"""Assignments in order: a key, perhaps dotted, and the JSON text of its value."""

_UNREAD: Any = msgspec.UNSET


class Value:
    """One value of the state: a text, or the results of a loop's iterations in index order.

    A value with a `reference` is replaced by it: templates see that object, never the body (PBK-172), unless it
    `is_open`, which a task made it for the rest of its pipeline. For a loop the reference refers to the list of
    results.
    """

    __slots__ = ("_body", "_seen", "description", "failed", "is_open", "parts", "payload", "reference")

    def __init__(
        self,
        payload: Payload = NULL,
        parts: "list[Value | None] | None" = None,
        failed: int = 0,
        reference: bytes | None = None,
        is_open: bool = False,
    ) -> None:
        self.payload = payload
        self.parts = parts
        self.failed = failed
        self.reference = reference
        self.is_open = is_open
        self._body = _UNREAD
        self._seen = _UNREAD
        self.description: dict[str, Any] | None = None  # as a reference to the log; made on demand

    def read(self, text: Reader) -> Any:
        """What templates see."""
        if self.reference is None or self.is_open:
            return self.body(text)
        if self._seen is _UNREAD:
            reference = jsontext.decode(self.reference)
            self._seen = reference if self.parts is None else {"results": reference, "stats": self.stats}
        return self._seen

    def body(self, text: Reader) -> Any:
        """The value itself; for a loop, the list of results as templates see them."""
        if self._body is _UNREAD:
            self._body = self._gathered(text) if self.parts is not None else jsontext.decode(text(self.payload))
        return self._body

    def whole(self, text: Reader) -> Any:
        """The value itself, with all nested bodies."""
        if self.parts is None:
            return jsontext.decode(text(self.payload))
        return {"results": self._listed(lambda part: part.whole(text)), "stats": self.stats}

    def closed(self) -> "Value":
        """As it leaves its pipeline."""
        return Value(self.payload, self.parts, self.failed, self.reference) if self.is_open else self

    @property
    def stats(self) -> dict[str, int] | None:
        """Counts of a loop's iterations; None for any other value."""
        if self.parts is None:
            return None
        total = len(self.parts)
        return {"total": total, "success": total - self.failed, "failed": self.failed}

    @property
    def size(self) -> int:
        """Bytes of JSON that templates see; not for loops, which keep their own count."""
        if self.reference is not None:
            return len(self.reference)
        return self.payload.size if isinstance(self.payload, Ref) else len(self.payload)

    @property
    def weight(self) -> int:
        """Bytes of all bodies."""
        if self.parts is not None:
            return sum(part.weight for part in self.parts if part is not None)
        return self.payload.size if isinstance(self.payload, Ref) else len(self.payload)

    @property
    def is_null(self) -> bool:
        return self.parts is None and self.payload == NULL

    def _gathered(self, text: Reader) -> dict[str, Any]:
        return {"results": self._listed(lambda part: part.read(text)), "stats": self.stats}

    def _listed(self, read: "Callable[[Value], Any]") -> list[Any]:
        results: list[Any] = []
        missing: list[bytes] = []
        may_be_absent = True
        for part in self.parts or ():
            try:
                results.append(None if part is None else read(part))
            except MissingValues as needs:  # request all at once: each request repeats the move
                missing += needs.digests
                may_be_absent = may_be_absent and needs.may_be_absent
        if missing:
            raise MissingValues(tuple(missing), may_be_absent=may_be_absent)
        return results


NOTHING = Value()


class BadKey(ValueError):
    """A dotted key leads through something that is not a map."""


class Variables:
    """`ctx` or `iter`: a map that is changed by assignments only."""

    __slots__ = ("data",)

    def __init__(self, data: dict[str, Any] | None = None) -> None:
        self.data: dict[str, Any] = {} if data is None else data

    def assign_all(self, patch: Patch) -> "Variables":
        """The variables after the assignments: changed in place, unless they are the shared empty ones."""
        variables = Variables() if self is NO_VARIABLES else self
        variables.assign(patch)
        return variables

    def assign(self, patch: Patch, growing: tuple[str, ...] = ()) -> None:
        """`growing`: keys whose text in the patch is an addition at their end."""
        grown = frozenset(growing)
        for key, text in patch:
            if key in grown:
                self.data[key] = self.data[key] + jsontext.decode(text)
            else:
                _put(self.data, key.split("."), jsontext.decode(text))

    def whole(self, patch: Patch, growing: tuple[str, ...]) -> Patch:
        """The patch with whole values for the keys that grow."""
        if not growing:
            return patch
        grown = frozenset(growing)
        return tuple(
            (key, jsontext.encode(self.data[key] + jsontext.decode(text)) if key in grown else text)
            for key, text in patch
        )

    def overlaid(self, patch: Patch) -> dict[str, Any]:
        """The map as it would be after the assignments; this one is not changed."""
        data = dict(self.data)
        for key, text in patch:
            path = key.split(".")
            inner = data
            for name in path[:-1]:
                member = inner.get(name, {})
                if isinstance(member, dict):
                    member = dict(member)
                inner[name] = member
                if not isinstance(member, dict):
                    break
                inner = member
            _put(data, path, jsontext.decode(text))
        return data


NO_VARIABLES = Variables()
"""Shared by all without variables, and never changed."""


def _put(data: dict[str, Any], path: list[str], value: Any) -> None:
    for depth, name in enumerate(path[:-1]):
        data = data.setdefault(name, {})
        if not isinstance(data, dict):
            raise BadKey(f"{'.'.join(path)!r} cannot be set: {'.'.join(path[: depth + 1])!r} is not a map")
    data[path[-1]] = value


# Their form in a snapshot.


def encode_hook(value: Any) -> Any:
    match value:
        case Value():
            if value.parts is None and value.reference is None:
                return (value.payload,)
            return (value.payload, value.parts, value.failed, value.reference, value.is_open)
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
    parts = None if raw[1] is None else [None if part is None else _thawed(part) for part in raw[1]]
    return Value(payload, parts, *raw[2:])
