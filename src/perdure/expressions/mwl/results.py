"""From CEL values to JSON values (MWL-107, MWL-130).

Data are passed on by reference: input data are JSON. Only values that an expression created are inspected.
"""

import math

from perdure.expressions.cel.frame import DEFAULT_LIMITS, Limits, SharedBudget
from perdure.expressions.cel.values import CelList, CelMap, Uint, Value, type_name
from perdure.expressions.errors import EvaluationFault, LimitExceeded
from perdure.kernel.turn_budget import pay

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

LARGEST_EXACT = 2**53
_WORK_OF_A_PART = 3  # of data that are measured
_HINTS = {"bytes": "base64.encode()", "timestamp": "string()", "duration": "durationToIso8601() or string()"}


class Unrepresentable(EvaluationFault):
    """A value without a form in JSON."""

    path = ""

    def within(self, step: str) -> None:
        """Called once per container on the way out, so that a path that is not needed costs nothing."""
        self.path = step + self.path

    def __str__(self) -> str:
        return f"at result{self.path}: {self.message}" if self.path else self.message


class ConstructBudget(SharedBudget):
    """What the expressions of one construct may use together; data that several of them return count again."""

    __slots__ = ("_met",)

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.steps, self.memory = limits.steps, limits.memory  # as above: most constructs are one expression
        self._met: dict[int, tuple[Value, int]] = {}  # held, so that no other object gets the same identity

    def count_data(self, data: Value) -> None:
        """Data are free the first time; returning the same data again costs their size."""
        key = id(data)
        if key not in self._met:
            self._met[key] = data, 0
            return
        size = self._met[key][1] or measure(data, max(self.memory, 0))
        self._met[key] = data, size
        self.memory -= size
        if self.memory < 0:
            raise LimitExceeded("the results together are larger than a single one may be")


class JsonResult:
    """Converts one result, refusing one that would expand to more than `limit` characters and elements."""

    def __init__(self, limit: int, budget: "ConstructBudget | None" = None) -> None:
        self._left = self._limit = limit
        self._sizes: dict[int, int] = {}
        self._budget = budget

    def convert(self, value: Value) -> Json:
        kind = type(value)
        if kind is str:
            self._spend(len(value))
            return value  # type: ignore[no-any-return]
        if kind is CelList:
            return self._convert_list(value)
        if kind is CelMap:
            return self._convert_map(value)
        if kind is dict or kind is list:
            self._spend_again(value)
            return value  # type: ignore[no-any-return]
        return scalar_to_json(value)

    def _convert_list(self, items: CelList) -> Json:
        self._spend(8 * len(items))
        converted: list[Json] = []
        try:
            for item in items:
                converted.append(self.convert(item))
        except Unrepresentable as refusal:
            refusal.within(f"[{len(converted)}]")
            raise
        return converted

    def _convert_map(self, entries: CelMap) -> Json:
        self._spend(8 * len(entries))
        members: dict[str, Json] = {}
        for key, item in entries.pairs():
            try:
                members[text_key(key)] = self.convert(item)
            except Unrepresentable as refusal:
                refusal.within(f".{key}")
                raise
        return members

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise LimitExceeded(f"the result is larger than {self._limit}")

    def _spend_again(self, data: Value) -> None:
        """Data are free the first time, because they already exist; more of the same could grow without bound."""
        key = id(data)
        if key not in self._sizes:
            self._sizes[key] = 0
            if self._budget is not None:
                self._budget.count_data(data)
            return
        if not self._sizes[key]:
            self._sizes[key] = measure(data, self._left)
        self._spend(self._sizes[key])


def measure(data: Value, limit: int) -> int:
    """The size of data, or that it exceeds the limit."""
    size = 0
    waiting = [data]
    while waiting and size <= limit:
        item = waiting.pop()
        size += 8
        if type(item) is str:
            size += len(item)
        elif type(item) is list:
            pay(_WORK_OF_A_PART * len(item))
            waiting += item
        elif type(item) is dict:
            pay(_WORK_OF_A_PART * len(item))
            waiting += item.values()
    return size


def scalar_to_json(value: Value) -> Json:
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value  # type: ignore[no-any-return]
    if kind is float:
        return _number(value)
    if kind is int or kind is Uint:
        if abs(value) > LARGEST_EXACT:
            raise Unrepresentable(f"{type_name(value)} beyond 2^53; use double() or string()")
        return int(value)
    hint = _HINTS.get(type_name(value))
    raise Unrepresentable(f"{type_name(value)} has no JSON form{f'; use {hint}' if hint else ''}")


def _number(value: float) -> int | float:
    """An integral double becomes an int: JSON has one kind of number, and 5.0 is written as 5 (MWL-083)."""
    if not math.isfinite(value):
        raise Unrepresentable(f"{value} is not a number in JSON")
    if value.is_integer() and abs(value) <= LARGEST_EXACT and (value or math.copysign(1, value) > 0):
        return int(value)
    return value


def text_key(key: Value) -> str:
    if type(key) is not str:
        raise Unrepresentable(f"a map key of type {type_name(key)} has no JSON form")
    return key
