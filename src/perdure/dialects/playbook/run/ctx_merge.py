"""Merges the `ctx` patches of parallel iterations: in index order, independent of timing (PBK-112, 113)."""

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.dialects.playbook.plan.program import Loop
from perdure.dialects.playbook.run.ctx_patches import BadPatch, check_values, measure
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.loop_state import LoopState
from perdure.dialects.playbook.state.task_errors import Error, error
from perdure.dialects.playbook.state.values import Patch
from perdure.kernel.json_values import jsontext

REDUCERS = ("sum", "min", "max", "append", "merge", "last")


def merge(body: b.Body, loop: Loop, state: LoopState) -> tuple[Patch, int]:
    """The assignments a completed loop makes, and the size of `ctx` after them; raises `BadPatch` on a conflict."""
    merged: dict[str, bytes] = {}
    folded: dict[str, Any] = {}
    writers: dict[str, int] = {}  # key → the iteration that wrote it
    around: dict[str, int] = {}  # every path around a written key → an iteration that wrote inside it
    for index in sorted(state.patches):
        for key, text in _last_of_each(state.patches[index], loop.reduce):
            if key in loop.reduce:
                current = folded[key] if key in folded else body.ctx.data.get(key)
                folded[key] = fold(loop.reduce[key], current, jsontext.decode(text))
                continue
            other = _clash(key, text, merged, writers, around)
            if other is not None:
                raise BadPatch(_conflict(key, other, index))
            merged[key] = text
            writers[key] = index
            path = key.split(".")
            for depth in range(1, len(path)):
                around[".".join(path[:depth])] = index
    patch = (*merged.items(), *((key, jsontext.encode(value)) for key, value in folded.items()))
    check_values(patch, "ctx")
    return patch, measure(body, patch) if patch else body.ctx_size


def _last_of_each(patch: list[tuple[str, bytes]], reducers: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """The last value that one iteration set for each key; for a reducer, every value."""
    last = {key: place for place, (key, _) in enumerate(patch)}
    return (item for place, item in enumerate(patch) if item[0] in reducers or last[item[0]] == place)


def _clash(
    key: str, text: bytes, merged: Mapping[str, bytes], writers: Mapping[str, int], around: Mapping[str, int]
) -> int | None:
    """The iteration whose assignment conflicts with this one."""
    if key in merged:
        return None if _same(merged[key], text) else writers[key]
    if key in around:
        return around[key]
    path = key.split(".")
    return next((writers[outer] for depth in range(1, len(path)) if (outer := ".".join(path[:depth])) in writers), None)


def _same(left: bytes, right: bytes) -> bool:
    return left == right or jsontext.canonical(jsontext.decode(left)) == jsontext.canonical(jsontext.decode(right))


def _conflict(key: str, first: int, second: int) -> Error:
    message = f"iterations {first} and {second} set ctx.{key} to different values"
    return error("ctx_conflict", message, "CTX_CONFLICT", details={"key": key, "indexes": [first, second]})


def fold(reducer: str, current: Any, value: Any) -> Any:
    """One step of a reducer, from the current value (None: the identity)."""
    try:
        match reducer:
            case "sum":
                return value if current is None else current + value
            case "min":
                return value if current is None else min(current, value)
            case "max":
                return value if current is None else max(current, value)
            case "append":
                return _GrowingList([value]) if current is None else _grown(current, value)
            case "merge":
                return {**({} if current is None else current), **value}
            case _:
                return value
    except TypeError as problem:
        raise BadPatch(error("ctx_conflict", f"cannot {reducer} {value!r} into {current!r}: {problem}")) from None


class _GrowingList(list[Any]):
    """A list made here, which may grow in place; a list of `ctx` may not."""


def _grown(current: Any, value: Any) -> "_GrowingList":
    if not isinstance(current, list):
        raise TypeError("the current value is not a list")
    grown = current if isinstance(current, _GrowingList) else _GrowingList(current)
    grown.append(value)
    return grown
