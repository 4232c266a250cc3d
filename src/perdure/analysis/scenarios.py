"""Scenarios: what a test of a document does, and what it expects. Read from `*.test.yaml`, beside the document.

    document: order.json                # default: the document of the same name
    mocks: {charge: {answer: {receipt: 7}}}
    scenarios:
      - name: the order is charged
        input: {amount: 5}
        actions: [{advance: 1h}, {signal: {name: go}}]
        expect: {status: succeeded, result: {receipt: 7}}

A file with one scenario may leave out `scenarios`. Every mistake is reported, with its line and its path.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from perdure.analysis.expectations import EXPECTED, STATUSES, RunExpectation
from perdure.analysis.mocks import Mock, read_mock
from perdure.documents import UnreadableText, read_document
from perdure.documents.cursor import Cursor, Report
from perdure.kernel.documents.problems import Problem, guess
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values.values import SECOND, Instant

CODE = "SCENARIO"

_UNITS = {"ms": 1_000, "s": SECOND, "m": 60 * SECOND, "h": 3_600 * SECOND, "d": 86_400 * SECOND}
LONGEST_SPAN = 1e9 * SECOND
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")

_OF_FILE = ("document", "load", "apply", "scenarios")
_OF_BOTH = ("mocks", "step_mocks", "recorded", "use", "input", "options", "namespace")
_OF_SCENARIO = ("name", "actions", "expect", "to_end", "crash")


class ScenarioAction(msgspec.Struct, frozen=True):
    """One thing that somebody does to the run, or that time passes; `body` is as written, checked."""

    verb: str
    body: Any = None
    line: int = 0


class DocumentScenario(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a document with everything around it."""

    name: str
    input: Any = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    namespace: str = DEFAULT_NAMESPACE
    mocks: dict[str, Mock] = msgspec.field(default_factory=dict)
    step_mocks: dict[str, Mock] = msgspec.field(default_factory=dict)
    recorded: str | None = None  # a file with the history of a run, whose tasks answer
    use: frozenset[str] = frozenset()  # providers of Perdure's own that are really called
    actions: tuple[ScenarioAction, ...] = ()
    expect: RunExpectation = RunExpectation()
    to_end: bool = True  # after the actions, time passes until the run has ended
    crash: bool = True  # whether it is repeated with crashes
    line: int = 0


class ScenarioFile(msgspec.Struct, frozen=True, kw_only=True):
    document: str | None = None
    load: tuple[str, ...] = ()
    apply: tuple[str, ...] = ()
    scenarios: tuple[DocumentScenario, ...] = ()


class _Report(Report):
    pass


_Here = Cursor[_Report]


def read_span(value: Any) -> Instant | None:
    """`90`, `1.5`, `5s`, `1h30m`, `2d` as microseconds; a number is in seconds. None: it is none of these."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value * SECOND) if 0 <= value <= 1e9 else None
    if not isinstance(value, str) or not value:
        return None
    parts = _SPAN.findall(value)
    if "".join(number + unit for number, unit in parts) != value:
        return None
    length = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return int(length) if length <= LONGEST_SPAN else None


def read_scenarios(text: bytes, namespace: str = DEFAULT_NAMESPACE) -> tuple[ScenarioFile | None, list[Problem]]:
    """The file, or everything that is wrong with it. `namespace`: of scenarios that name none."""
    try:
        document = read_document(text)
    except UnreadableText as unreadable:
        return None, list(unreadable.problems)
    report = _Report()
    here: _Here = Cursor(report, document.data)
    read = _read_file(here, lambda path: document.place_of(path)[0], namespace)
    return (None if report.has_errors else read), [finding.to_problem(document) for finding in report.findings]


def _read_file(here: _Here, line_of: Callable[[Any], int], namespace: str) -> ScenarioFile:
    if not here.has("an object", CODE, "A scenario file is a map with `scenarios`, or with one scenario."):
        return ScenarioFile()
    is_list = "scenarios" in here.value
    allowed = (*_OF_FILE, *_OF_BOTH) if is_list else (*_OF_FILE, *_OF_BOTH, *_OF_SCENARIO)
    _check_names(here, allowed)
    shared = {"namespace": namespace, **_shared(here)}
    scenarios: list[DocumentScenario] = []
    if not is_list:
        scenarios.append(_read_scenario(here, shared, line_of, "scenario"))
    elif here.at("scenarios").has("a list", CODE):
        for number, inner in enumerate(here.at("scenarios").items(), 1):
            if inner.has("an object", CODE):
                _check_names(inner, (*_OF_BOTH, *_OF_SCENARIO))
                scenarios.append(_read_scenario(inner, shared, line_of, f"scenario {number}"))
        if not here.value["scenarios"]:
            here.problem(CODE, "there is no scenario in it", "scenarios", hint="Add one: `- {input: …, expect: …}`.")
    names = [scenario.name for scenario in scenarios]
    for name in {name for name in names if names.count(name) > 1}:
        here.problem(CODE, f"two scenarios are called {name!r}", hint="Give each a name of its own.")
    return ScenarioFile(
        document=_text(here, "document"),
        load=tuple(_texts(here, "load")),
        apply=tuple(_texts(here, "apply")),
        scenarios=tuple(scenarios),
    )


def _shared(here: _Here) -> dict[str, Any]:
    """What holds for every scenario of the file that does not say otherwise."""
    shared: dict[str, Any] = {"mocks": _mocks(here, "mocks"), "step_mocks": _mocks(here, "step_mocks")}
    shared["use"] = frozenset(_texts(here, "use"))
    for name in ("input", "options"):
        if name in here.value:
            shared[name] = here.value[name]
    if not isinstance(shared.get("options", {}), dict):
        here.at("options").has("an object", CODE)
        del shared["options"]
    for name in ("namespace", "recorded"):
        if (text := _text(here, name)) is not None:
            shared[name] = text
    return shared


def _read_scenario(here: _Here, shared: dict[str, Any], line_of: Callable[[Any], int], name: str) -> DocumentScenario:
    own = _shared(here) if here.path else shared  # the only scenario of a file is the file
    fields: dict[str, Any] = {**shared, **own}
    for mocks in ("mocks", "step_mocks"):
        fields[mocks] = {**shared[mocks], **own[mocks]}
    fields["use"] = shared["use"] | own["use"]
    for flag in ("to_end", "crash"):
        if flag in here.value and here.at(flag).has("true or false", CODE):
            fields[flag] = here.value[flag]
    actions: list[ScenarioAction] = []
    if "actions" in here.value and here.at("actions").has("a list", CODE):
        actions = [_read_action(item, line_of(item.path)) for item in here.at("actions").items()]
    expect = _read_expectation(here.at("expect")) if "expect" in here.value else RunExpectation()
    title = _text(here, "name") or name
    return DocumentScenario(name=title, actions=tuple(actions), expect=expect, line=line_of(here.path), **fields)


# Actions.

_PLAIN = ("crash", "pause", "unpause", "cancel", "redrive")
_MEMBERS = {
    "signal": ("name", "value", "by"),
    "approve": ("step", "message", "by"),
    "reject": ("step", "message", "by"),
    "redrive": ("step", "by"),
}
VERBS = ("advance", "signal", "approve", "reject", "patch", "cancel", "pause", "unpause", "redrive", "crash", "expect")


def _read_action(here: _Here, line: int) -> ScenarioAction:
    if isinstance(here.value, str) and here.value in _PLAIN:
        return ScenarioAction(here.value, {}, line)
    if not isinstance(here.value, dict) or len(here.value) != 1:
        here.problem(CODE, "an action is one verb with what it needs, such as `advance: 1h`", hint=_all(VERBS))
        return ScenarioAction("crash")
    ((verb, body),) = here.value.items()
    if verb not in VERBS:
        here.problem_of_key(CODE, f"{verb!r} is not an action{guess(str(verb), VERBS)}", str(verb), hint=_all(VERBS))
        return ScenarioAction("crash")
    inner = here.at(verb)
    if verb == "advance":
        body = read_span(body)
        if body is None:
            inner.problem(CODE, f"{inner.value!r} is not a duration (expected e.g. 90, 5m or 1h30m)")
    elif verb == "expect":
        body = _read_expectation(inner)
    elif verb == "patch":
        inner.has("an object", CODE)
    elif verb in _MEMBERS:
        body = _members(inner, _MEMBERS[verb])
    elif body is not None and not isinstance(body, str):
        inner.problem(CODE, f"{verb!r} takes a reason as a text, or nothing")
    elif verb in ("cancel", "pause", "unpause"):
        body = {"reason": body or ""}
    return ScenarioAction(verb, body, line)


def _members(here: _Here, names: tuple[str, ...]) -> dict[str, Any]:
    """`signal: go` is short for `signal: {name: go}`."""
    if isinstance(here.value, str) or (here.value is None and names[0] == "step"):
        return {names[0]: here.value or ""}
    if not here.has("an object", CODE):
        return {}
    _check_names(here, names)
    if names[0] not in here.value:
        here.problem(CODE, f"{here.name} says no {names[0]!r}")
    for name, inner in here.members():
        if name != "value":
            inner.has("a text", CODE)
    return dict(here.value)


# Expectations.


def _read_expectation(here: _Here) -> RunExpectation:
    if not here.has("an object", CODE):
        return RunExpectation()
    _check_names(here, EXPECTED)
    value: dict[str, Any] = here.value
    fields: dict[str, Any] = {"line": 0}
    if "status" in value:
        status = here.at("status")
        if status.has("a text", CODE) and status.value not in STATUSES:
            problem = f"{status.value!r} is not a status{guess(status.value, STATUSES)}"
            status.problem(CODE, problem, hint=f"A run is {', '.join(STATUSES)}.")
        fields["status"] = value["status"]
    if "result" in value:
        fields["result"], fields["has_result"] = value["result"], True
    if "includes" in value:
        fields["includes"], fields["has_includes"] = value["includes"], True
    if "error" in value:
        error = here.at("error")
        if isinstance(error.value, str):
            fields["error"] = {"code": error.value}
        elif error.has("an object", CODE):
            _check_names(error, ("code", "message"))
            fields["error"] = {name: str(text) for name, text in error.value.items()}
    for name, kind in (("steps", "an object"), ("events", "a list"), ("calls", "an object"), ("waits_for", "a list")):
        if name in value and here.at(name).has(kind, CODE):
            fields[name] = value[name]
    for name, inner in here.at("steps").members() if "steps" in fields else ():
        _check_step(name, inner)
    for inner in here.at("events").items() if "events" in fields else ():
        if not isinstance(inner.value, str) and not (isinstance(inner.value, dict) and "event" in inner.value):
            inner.problem(CODE, "an expected event is its name, or a map with `event` and members that it has")
    for name, inner in here.at("calls").members() if "calls" in fields else ():
        if not isinstance(inner.value, int | list) or isinstance(inner.value, bool):
            inner.problem(CODE, f"the calls of {name!r} are a number, or a list of arguments")
    return RunExpectation(**fields)


STEP_STATUSES = ("done", "failed", "skipped", "cancelled", "running", "waiting", "never")


def _check_step(name: str, here: _Here) -> None:
    status = here.value
    if isinstance(here.value, dict):
        _check_names(here, ("status", "runs", "attempts"))
        status = here.value.get("status", "done")
        for number in ("runs", "attempts"):
            if number in here.value:
                here.at(number).has("a whole number", CODE)
    if status not in STEP_STATUSES:
        text = f"{status!r} is not a status of a step{guess(str(status), STEP_STATUSES)}"
        here.problem(CODE, text, hint=f"A step is {', '.join(STEP_STATUSES)}.")


# Parts.


def _mocks(here: _Here, name: str) -> dict[str, Mock]:
    mocks: dict[str, Mock] = {}
    if name not in here.value or not here.at(name).has("an object", CODE):
        return mocks
    for mocked, inner in here.at(name).members():
        mock, problems = read_mock(inner.value, read_span)
        for path, message in problems:
            inner.problem(CODE, f"the mock of {mocked!r}: {message}", *path)
        mocks[mocked] = mock
    return mocks


def _text(here: _Here, name: str) -> str | None:
    if name not in here.value or not here.at(name).has("a text", CODE):
        return None
    text: str = here.value[name]
    return text


def _texts(here: _Here, name: str) -> list[str]:
    if name not in here.value:
        return []
    if isinstance(here.value[name], str):
        return [here.value[name]]
    if not here.at(name).has("a list", CODE):
        return []
    return [item.value for item in here.at(name).items() if item.has("a text", CODE)]


def _check_names(here: _Here, allowed: Iterable[str]) -> None:
    known = sorted(allowed)
    for name, _ in here.members():
        if name not in known:
            problem = f"{name!r} is not known here{guess(name, known)}"
            here.problem_of_key(CODE, problem, name, hint=_all(known))


def _all(names: Iterable[str]) -> str:
    return f"Expected one of: {', '.join(names)}."
