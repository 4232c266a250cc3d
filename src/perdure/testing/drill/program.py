"""A drill document, read and checked: a list of steps in blocks.

    {"drill": 1, "name": "order", "steps": [{"call": "echo", "input": "$input", "save": "answer"}], "cleanup": []}

A string `"$name"` is the variable of that name; `$input`, `$item` and `$index` are always there.
"""

import re
from typing import Any

import msgspec

from perdure.kernel.documents.problems import Problem, guess
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.json_positions import place_of, repeated_member
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.kernel.lazy_regex import lazy_regex

KINDS: dict[str, tuple[str, ...]] = {
    "call": ("with", "input", "save", "retry", "timeout", "pool", "deliveries", "hold_effects", "catch", "grace"),
    "sleep": (),
    "signal": ("save", "timeout"),
    "all": (),
    "each": ("do", "limit", "save"),
    "repeat": ("do",),
    "child": ("input", "save", "wait"),
    "permit": ("do", "limit", "priority"),
    "resource": ("save",),
    "recall": ("save",),
    "remember": ("value", "ttl"),
    "set": (),
    "draw": (),
    "spin": (),
    "trip": (),
    "fail": ("message",),
    "return": (),
}
"""Every kind of step, with what may stand beside it."""

_NAMING = frozenset(("call", "signal", "fail", "permit", "draw", "trip", "resource", "recall", "remember"))
_DURATION = lazy_regex(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d)")
_UNITS = {"us": 1, "ms": 1_000, "s": SECOND, "m": 60 * SECOND, "h": 3_600 * SECOND, "d": 86_400 * SECOND}


class Step(msgspec.Struct, frozen=True):
    kind: str
    about: Any  # the value of the member that names the kind
    fields: dict[str, Any]
    block: str  # where the step's own blocks hang


class Program(msgspec.Struct, frozen=True):
    name: str
    blocks: dict[str, tuple[Step, ...]]
    has_cleanup: bool


def duration(text: str) -> Instant:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 250ms, 5s or 1h")
    return int(float(match[1]) * _UNITS[match[2]])


def read(text: bytes) -> tuple[Program | None, list[Problem]]:
    try:
        document = jsontext.read_strict(text)
    except jsontext.NotJson as error:
        return None, [_syntax(text, error)]
    checker = _Checker(text.decode())
    program = checker.document(document)
    return (None if checker.problems else program), checker.problems


def load(text: bytes) -> Program:
    return _Checker(text.decode()).document(jsontext.decode(text))


def _syntax(text: bytes, error: jsontext.NotJson) -> Problem:
    place = re.match(r"line (\d+), column (\d+): (.*)", str(error))
    if place:
        return Problem("DOC-SYNTAX", place[3], line=int(place[1]), column=int(place[2]))
    twice = repeated_member(text.decode("utf-8", "replace"))
    if twice is not None and "repeated" in str(error):
        name, line, column = twice
        return Problem("DOC-SYNTAX", f"member {name!r} is repeated in one object", line=line, column=column)
    return Problem("DOC-SYNTAX", str(error), line=1, column=1)


class _Checker:
    def __init__(self, text: str) -> None:
        self._text = text
        self.problems: list[Problem] = []
        self._blocks: dict[str, tuple[Step, ...]] = {}

    def _problem(self, path: tuple[str | int, ...], message: str, hint: str = "") -> None:
        line, column = place_of(self._text, path) or (1, 1)
        self.problems.append(Problem("DRILL-DOCUMENT", message, _pretty(path), line, column, hint))

    def document(self, document: Any) -> Program:
        if not isinstance(document, dict):
            self._problem((), "a drill is an object")
            return Program("", {}, False)
        known = ("drill", "name", "steps", "cleanup")
        for member in document:
            if member not in known:
                self._problem((member,), f"unknown member {member!r}{guess(member, known)}")
        if document.get("drill") != 1:
            self._problem(("drill",) if "drill" in document else (), "the version must be 1", 'Write "drill": 1.')
        self._block("", document.get("steps"), ("steps",))
        if "cleanup" in document:
            self._block("cleanup", document["cleanup"], ("cleanup",))
        name = document.get("name", "drill")
        if not isinstance(name, str):
            self._problem(("name",), "the name must be a string")
        return Program(str(name), self._blocks, bool(document.get("cleanup")))

    def _block(self, block: str, steps: Any, path: tuple[str | int, ...]) -> None:
        if not isinstance(steps, list):
            self._problem(path if steps is not None else path[:-1], f"{path[-1]!r} must be a list of steps")
            return
        self._blocks[block] = tuple(
            self._step(f"{block}/{index}", step, (*path, index)) for index, step in enumerate(steps)
        )

    def _step(self, block: str, step: Any, path: tuple[str | int, ...]) -> Step:
        nothing = Step("set", {}, {}, block)
        if not isinstance(step, dict):
            self._problem(path, "a step is an object")
            return nothing
        kinds = [member for member in step if member in KINDS]
        if len(kinds) != 1:
            near = next((guess(member, list(KINDS)) for member in step if guess(member, list(KINDS))), "")
            self._problem(path, f"a step has exactly one of {', '.join(KINDS)}{near}")
            return nothing
        kind = kinds[0]
        for member in step:
            if member != kind and member not in KINDS[kind]:
                self._problem((*path, member), f"{kind!r} knows no {member!r}{guess(member, KINDS[kind])}")
        self._check_fields(kind, step, path)
        self._nested(kind, step, block, path)
        return Step(kind, step[kind], {name: value for name, value in step.items() if name != kind}, block)

    def _check_fields(self, kind: str, step: dict[str, Any], path: tuple[str | int, ...]) -> None:
        for member in ("timeout", "grace", "ttl", *(("sleep",) if kind == "sleep" else ())):
            if member in step:
                try:
                    duration(step[member])
                except (ValueError, TypeError) as error:
                    self._problem((*path, member), str(error))
        for member in ("spin", "repeat"):
            if member == kind and not isinstance(step[kind], int):
                self._problem((*path, kind), f"{kind!r} takes a whole number")
        if kind in _NAMING and not isinstance(step[kind], str):
            self._problem((*path, kind), f"{kind!r} takes a string")
        elif kind == "resource" and step[kind].count("/") < 2:
            self._problem((*path, kind), "a resource is named KIND/NAMESPACE/NAME; the namespace may be empty")

    def _nested(self, kind: str, step: dict[str, Any], block: str, path: tuple[str | int, ...]) -> None:
        if kind == "all":
            if not isinstance(step["all"], list):
                self._problem((*path, "all"), "'all' takes a list of lists of steps")
                return
            for index, branch in enumerate(step["all"]):
                self._block(f"{block}/{index}", branch, (*path, "all", index))
        elif kind in ("each", "repeat", "permit"):
            self._block(f"{block}/do", step.get("do"), (*path, "do"))
        elif "catch" in step:
            self._block(f"{block}/catch", step["catch"], (*path, "catch"))


def _pretty(path: tuple[str | int, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
