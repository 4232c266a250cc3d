"""Mocks: what answers for the tasks of a run that is tested or simulated.

A mock is one of these, or a list of them, whose last one answers all further attempts:

    {answer: {receipt: 7}, after: 5s}
    {failure: {code: Card.Declined, message: "…", retryable: true}}
    {schema: {type: object, properties: …}}       a value of this form, drawn from the seed

What a run recorded answers first, by the path of the task. An attempt that is delivered again gets the same answer, at
the same instant: a crash costs a delivery, and changes nothing else.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant
from perdure.kernel.outcomes import Failed, Outcome, Succeeded
from perdure.kernel.randomness import draw

NOT_MOCKED = "Scenario.NotMocked"
_NUMBERS = re.compile(r"^\d+:|[#\[].*$")
_DEEPEST = 12

Span = Callable[[Any], Instant | None]

_T = TypeVar("_T")


class Dice:
    """Numbers that follow from a seed and a place: the same ones every time."""

    def __init__(self, seed: int, place: str) -> None:
        self._seed = seed
        self._place = place
        self._count = 0

    def fraction(self) -> float:
        """From 0 up to, not including, 1."""
        self._count += 1
        return draw(self._seed, self._place, self._count)

    def integer(self, least: int, most: int) -> int:
        return least + int(self.fraction() * (most - least + 1))

    def choice(self, items: Sequence[_T]) -> _T:
        return items[self.integer(0, len(items) - 1)]


class MockAnswer(msgspec.Struct, frozen=True):
    """How one attempt of a task ends, and how long it takes."""

    outcome: Outcome
    after: Instant = 0
    schema: Any = None  # the value is drawn from it instead


class Mock(msgspec.Struct, frozen=True):
    answers: tuple[MockAnswer, ...] = ()

    def pick(self, number: int) -> MockAnswer:
        """For the attempt with this number, from 0."""
        return self.answers[min(number, len(self.answers) - 1)]


class MockedCall(msgspec.Struct, frozen=True):
    """One attempt of a task, as whoever answers it sees it."""

    run: str
    task: int  # its number within the run
    attempt: int
    provider: str
    path: str
    arguments: Any = None


def read_mock(value: Any, span: Span) -> tuple[Mock, list[tuple[tuple[str | int, ...], str]]]:
    """The mock, and what is wrong with it: where, and what."""
    problems: list[tuple[tuple[str | int, ...], str]] = []
    answers = value if isinstance(value, list) else [value]
    if not answers:
        return Mock(), [((), "it has no answers")]
    read = []
    for index, answer in enumerate(answers):
        at: tuple[str | int, ...] = (index,) if isinstance(value, list) else ()
        read.append(_read_answer(answer, span, lambda message, *path, at=at: problems.append(((*at, *path), message))))
    return Mock(tuple(read)), problems


def _read_answer(value: Any, span: Span, wrong: Callable[..., None]) -> MockAnswer:
    forms = ("answer", "failure", "schema")
    nothing = MockAnswer(Succeeded())
    if not isinstance(value, dict) or sum(form in value for form in forms) != 1:
        wrong("expected {answer: …}, {failure: {code: …}} or {schema: …}, or a list of these")
        return nothing
    after = 0
    for name in value:
        if name not in (*forms, "after"):
            wrong(f"{name!r} is not known here; expected one of: {', '.join(forms)}, after", name)
    if "after" in value:
        length = span(value["after"])
        if length is None:
            wrong(f"{value['after']!r} is not a duration (expected e.g. 90, 5m or 1h30m)", "after")
        after = length or 0
    if "answer" in value:
        return MockAnswer(Succeeded(jsontext.encode(value["answer"])), after)
    if "schema" in value:
        if not isinstance(value["schema"], dict):
            wrong("a schema is a map", "schema")
        return MockAnswer(Succeeded(), after, value["schema"])
    match value["failure"]:
        case str(code):
            return MockAnswer(Failed(code), after)
        case {"code": str(code), **rest}:
            details = rest.pop("details", None)
            message, retryable = rest.pop("message", ""), rest.pop("retryable", None)
            if not rest and isinstance(message, str) and (retryable is None or isinstance(retryable, bool)):
                encoded = None if details is None else jsontext.encode(details)
                return MockAnswer(Failed(code, message, retryable, encoded), after)
    wrong("a failure is {code: …, message: …, retryable: true, details: …}", "failure")
    return nothing


class Mocks:
    """Answers attempts; the same attempt always gets the same answer. Knows nothing of time and of runs.

    `schemas` gives what a provider is known to return. `recorded`: outcomes of a run by path, in order.
    """

    def __init__(
        self,
        by_name: Mapping[str, Mock],
        by_step: Mapping[str, Mock] | None = None,
        *,
        schemas: Callable[[str], Any] = lambda provider: None,
        recorded: Mapping[str, Sequence[Outcome]] | None = None,
        seed: int = 0,
        has_default: bool = False,
    ) -> None:
        """`has_default`: what nobody mocks is answered with a value drawn from its schema, or with `{}`."""
        self._by_name = by_name
        self._by_step = by_step or {}
        self._schemas = schemas
        self._recorded = recorded or {}
        self._seed = seed
        self._has_default = has_default
        self._counts: dict[str, int] = {}
        self._answers: dict[tuple[str, int, int], MockAnswer] = {}

    def knows(self, provider: str) -> bool:
        return self._has_default or bool(self._recorded) or self._find(provider, "") is not None

    def mocks(self, provider: str, path: str) -> bool:
        """Whether this call is answered here."""
        return self._has_default or self._find(provider, path) is not None or path in self._recorded

    def answer(self, call: MockedCall) -> MockAnswer:
        key = (call.run, call.task, call.attempt)
        known = self._answers.get(key)
        if known is None:
            known = self._answers[key] = self._new_answer(call)
        return known

    def _new_answer(self, call: MockedCall) -> MockAnswer:
        if call.path in self._recorded:
            outcomes = self._recorded[call.path]
            return MockAnswer(outcomes[min(self._count(f"path {call.path}"), len(outcomes) - 1)])
        match = self._find(call.provider, call.path)
        if match is None:
            if not self._has_default:
                return not_mocked(call.provider)
            schema = self._schemas(call.provider)
            return self._drawn(MockAnswer(Succeeded(b"{}"), 0, schema), call)
        name, mock = match
        return self._drawn(mock.pick(self._count(name)), call)

    def _count(self, name: str) -> int:
        """How often it was asked before."""
        number = self._counts.get(name, 0)
        self._counts[name] = number + 1
        return number

    def _drawn(self, answer: MockAnswer, call: MockedCall) -> MockAnswer:
        if answer.schema is None:
            return answer
        dice = Dice(self._seed, f"{call.run}\x1f{call.task}\x1f{call.attempt}")
        return MockAnswer(Succeeded(jsontext.encode(generate(answer.schema, dice))), answer.after)

    def _find(self, provider: str, path: str) -> tuple[str, Mock] | None:
        for step in reversed(steps_in(path)):
            if step in self._by_step:
                return f"step {step}", self._by_step[step]
        for name in names_of(provider):
            if name in self._by_name:
                return name, self._by_name[name]
        return None


def not_mocked(provider: str) -> MockAnswer:
    name = names_of(provider)[-1]
    return MockAnswer(Failed(NOT_MOCKED, f"nothing answers for {name!r}: give it a mock", False))


def names_of(provider: str) -> list[str]:
    """As a task has it, and as people call it: without what its language writes before it, and without a version."""
    plain = provider.partition(":")[2].partition("@")[0] if ":" in provider else provider.rpartition(".")[2]
    return [provider, plain]


def steps_in(path: str) -> list[str]:
    """The names of the steps in the path of a task, the outermost first: `/0:pay/1:charge`, `load#1[2]/fetch#1`."""
    return [name for part in path.split("/") if (name := _NUMBERS.sub("", part))]


def recorded_outcomes(events: Iterable[Any]) -> dict[str, list[Outcome]]:
    """By path, in order, from the events that `perdure history RUN --raw --json` prints. May raise `ValueError`."""
    paths: dict[Any, str] = {}
    outcomes: dict[str, list[Outcome]] = {}
    for event in events:
        if not isinstance(event, Mapping):
            raise ValueError("these are no events as `perdure history RUN --raw --json` prints them")
        match event.get("event"):
            case "TaskScheduled":
                paths[event.get("task")] = str(event.get("path", ""))
            case "TaskEnded" if event.get("task") in paths:
                outcome = _outcome(event.get("outcome"))
                if outcome is not None:
                    outcomes.setdefault(paths[event["task"]], []).append(outcome)
    return outcomes


def _outcome(value: Any) -> Outcome | None:
    match value:
        case {"type": "Succeeded", "value": {"$large": str()}}:
            raise ValueError("a task has returned a large value, which the history holds by reference: mock it")
        case {"type": "Succeeded", **rest}:
            return Succeeded(jsontext.encode(rest.get("value")))
        case {"type": "Failed", "code": str(code), **rest}:
            retryable = rest.get("retryable")
            is_said = isinstance(retryable, bool)
            return Failed(code, str(rest.get("message") or ""), bool(retryable) if is_said else None)
    return None


# Values of a form.


def generate(schema: Any, dice: Dice, depth: int = 0) -> Any:
    """A value that fits a JSON Schema, as far as its usual keywords go."""
    if schema is True or not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    if "const" in schema:
        return schema["const"]
    for choices in ("enum", "examples"):
        if isinstance(schema.get(choices), Sequence) and schema[choices]:
            return dice.choice(schema[choices])
    for several in ("oneOf", "anyOf"):
        if isinstance(schema.get(several), Sequence) and schema[several]:
            return generate(dice.choice(schema[several]), dice, depth + 1)
    if isinstance(schema.get("allOf"), Sequence):
        merged = {key: value for part in schema["allOf"] if isinstance(part, Mapping) for key, value in part.items()}
        return generate({**merged, **{key: schema[key] for key in schema if key != "allOf"}}, dice, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, Sequence) and not isinstance(kind, str):
        kind = dice.choice(kind) if kind else None
    if kind is None:
        kind = "object" if "properties" in schema else "array" if "items" in schema else "null"
    return _GENERATORS.get(str(kind), _null)(schema, dice, depth)


def _null(schema: Mapping[str, Any], dice: Dice, depth: int) -> Any:
    return None


def _object(schema: Mapping[str, Any], dice: Dice, depth: int) -> Any:
    properties = schema.get("properties") or {}
    required = set(schema.get("required") or ())
    return {
        name: generate(inner, dice, depth + 1)
        for name, inner in properties.items()
        if name in required or (depth < _DEEPEST // 2 and dice.fraction() < 0.8)
    }


def _array(schema: Mapping[str, Any], dice: Dice, depth: int) -> Any:
    least = int(schema.get("minItems", 0))
    most = int(schema.get("maxItems", least + 3))
    return [generate(schema.get("items", True), dice, depth + 1) for _ in range(dice.integer(least, max(least, most)))]


def _string(schema: Mapping[str, Any], dice: Dice, depth: int) -> Any:
    shapes = {"date-time": "2026-01-02T03:04:05Z", "date": "2026-01-02", "uri": "https://example.org/a"}
    shapes |= {"email": "a@example.org", "uuid": "6f2b1c9a-0d3e-4f5a-8b7c-9d0e1f2a3b4c"}
    if schema.get("format") in shapes:
        return shapes[schema["format"]]
    least = int(schema.get("minLength", 1))
    most = int(schema.get("maxLength", max(least, 8)))
    letters = "abcdefghijklmnopqrstuvwxyz"
    return "".join(dice.choice(letters) for _ in range(dice.integer(least, max(least, most))))


def _number(schema: Mapping[str, Any], dice: Dice, depth: int) -> Any:
    least = schema.get("minimum", schema.get("exclusiveMinimum", -1 if "maximum" in schema else 0) + 1)
    most = schema.get("maximum", max(least, schema.get("exclusiveMaximum", least + 101) - 1))
    step = schema.get("multipleOf", 1)
    drawn = dice.integer(int(least), max(int(least), int(most)))
    return drawn // step * step if step and drawn // step * step >= least else drawn


_GENERATORS: dict[str, Callable[[Mapping[str, Any], Dice, int], Any]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "integer": _number,
    "number": _number,
    "boolean": lambda schema, dice, depth: dice.fraction() < 0.5,
    "null": _null,
}
