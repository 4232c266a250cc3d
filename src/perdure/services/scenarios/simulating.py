"""A document made ready for simulation: validated, with the mocks, input and messages of a scenario beside it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from perdure.analysis.fault_schedules import FAULTS, ScheduleFile, read_schedule
from perdure.analysis.mocks import Mock, MockAnswer, Mocks, names_of, read_mock
from perdure.analysis.scenarios import DocumentScenario, ScenarioAction, read_span
from perdure.analysis.simulated_world import SIMULATED_FAILURE, Subject
from perdure.analysis.simulation import Simulated, SimulationReport, Simulator
from perdure.analysis.soundness import find_defects
from perdure.engine.resources.document_validation import DocumentValidator
from perdure.kernel import inputs as i
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import UnfitInput
from perdure.kernel.graphs.net import Defect
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, digest
from perdure.kernel.outcomes import Failed, Outcome
from perdure.kernel.pause import PAUSE, RESUME
from perdure.services.scenarios.mocked_tasks import provided_engram, scenario_languages
from perdure.services.scenarios.suite import (
    BadScenario,
    Bench,
    find_files,
    read_bounded,
    read_files,
    validate_document,
)

SLOW = 400 * 86_400 * 1_000_000  # longer than any time limit that a document should have


class BadScheduleFile(UnfitInput):
    """A file given with --trace is not a schedule, or not one of this document."""

    code = "BAD-SCHEDULE"
    hint = "Give the file that `perdure sim` has written for this document, or a finding of `perdure check --json`."


class Simulation:
    """Runs of one document: `run(seed)`, `replay(file)`, `report()`."""

    def __init__(
        self,
        document: str,
        simulator: Simulator,
        findings: Sequence[Defect],
        scenario: DocumentScenario,
        new_mocks: Callable[..., Mocks],
    ) -> None:
        self.document = document
        self.simulator = simulator
        self.findings = findings
        self.scenario = scenario
        self._new_mocks = new_mocks

    def report(self) -> SimulationReport:
        return SimulationReport(self.simulator.graph, self.findings)

    def to_file(self, simulated: Simulated) -> ScheduleFile:
        assert simulated.violation is not None
        return ScheduleFile(
            document=Path(self.document).name,
            digest=digest(self.simulator.subject.text).hex(),
            scenario=self.scenario.name,
            input=self.simulator.subject.input,
            seed=simulated.seed,
            invariant=simulated.violation.invariant,
            message=simulated.violation.message,
            faults=simulated.faults,
        )

    def replay(self, path: Path) -> Simulated:
        """The run of a schedule, or of the counter-example of a finding."""
        file = _schedule_of(path)
        if file.trace:
            return self._follow(file.trace)
        return self.simulator.run(file.seed, file.faults)

    def _follow(self, trace: Sequence[Any]) -> Simulated:
        """Steps that fail, or take too long, in the counter-example do so; nothing else goes wrong.

        What it waits for at its end never comes, whatever people do in the scenario.
        """
        forced: dict[str, Mock] = {}
        for entry in trace:
            step, choice = str(entry.get("step", "")).rpartition("/")[2], str(entry.get("choice", ""))
            if choice.startswith("fail"):
                forced[step] = Mock((MockAnswer(Failed(SIMULATED_FAILURE, "as in the counter-example")),))
            elif choice in ("takes too long", "is too late"):
                forced[step] = Mock((MockAnswer(Failed(SIMULATED_FAILURE), SLOW),))
        subject, dialects = self.simulator.subject, self.simulator.dialects
        last = trace[-1]
        if str(last.get("choice", "")).startswith("waits"):
            gate = str(last.get("step", "")).rpartition("/")[2]
            messages = [(at, message) for at, message in subject.messages if not _may_end_wait(message, gate)]
            subject = msgspec.structs.replace(subject, messages=tuple(messages))
        simulated = Simulator(subject, dialects, lambda seed: self._new_mocks(seed, forced), ()).run(0, [])
        steps = [str(entry.get("step", "")).rpartition("/")[2] for entry in trace]
        simulated.parted_at = self._parting(simulated, steps)
        return simulated

    def _parting(self, simulated: Simulated, steps: Sequence[str]) -> str | None:
        """The first step of the counter-example that the run did not reach: what leads there depends on data."""
        graph = self.simulator.graph
        if graph is None or simulated.trace is None:
            return None
        labels = {node.id: node.label for node in graph.nodes}
        reached = {labels.get(visit.node, visit.node) for visit in simulated.trace.visits}
        return next((step for step in steps if step not in reached), None)


async def prepare(
    document: str,
    *,
    input: Any = None,
    has_input: bool = False,
    faults: Sequence[str] = FAULTS,
    scenario: str = "",
    mocks: dict[str, Mock] | None = None,
    trace: Path | None = None,
    applied: Sequence[AppliedDocument] = (),
    is_confined: bool = False,
    namespace: str = DEFAULT_NAMESPACE,
) -> Simulation:
    """Read the document and, if there is one beside it, its file of scenarios: its first one, or the one named.

    `trace`: a file that is to be replayed, with the scenario and the input that it was written for, unless others are
    given. `applied`: what the document may refer to. `is_confined`: they are of somebody else (`read_files`).
    `namespace`: of the run, if the scenario names none.
    """
    if trace is not None and not (file := _schedule_of(trace)).trace:
        scenario = scenario or file.scenario
        input, has_input = (input if has_input else file.input), True
    bench, chosen = _scenario_of(document, scenario, is_confined=is_confined, namespace=namespace)
    if mocks:
        chosen = msgspec.structs.replace(chosen, mocks={**chosen.mocks, **mocks})
    if has_input:
        chosen = msgspec.structs.replace(chosen, input=input)
    return await _simulation_of(document, bench, chosen, faults, [*applied, *(bench.applied if bench else ())])


async def _simulation_of(
    document: str,
    bench: Bench | None,
    scenario: DocumentScenario,
    faults: Sequence[str],
    applied: Sequence[AppliedDocument],
) -> Simulation:
    text = read_bounded(Path(document)) if bench is None else bench.text
    recorded: dict[str, list[Outcome]] = {} if bench is None else bench.recorded(scenario)
    dialects = scenario_languages([*scenario.mocks], has_everything=True)
    validator = DocumentValidator(dialects)
    language, validated = await validate_document(validator, document, text, applied, scenario.namespace)
    if reason := language.why_unfit(validated.program, scenario.input):
        raise UnfitInput(f"{document}: {reason}")
    options = dict(scenario.options)
    if applied:
        options["applied"] = msgspec.to_builtins(await validator.recorded(applied, scenario.namespace))
    around = [*applied, AppliedDocument(document, text.decode())]
    declared = {
        resource.name: resource.body.get("spec", {}).get("outputSchema")
        for resource in validator.declared(around, scenario.namespace)
        if resource.kind == "EngramTemplate"
    }

    def schema_of(provider: str) -> Any:
        name = names_of(provider)[-1]
        template = provided_engram("EngramTemplate", "", name) if provider.startswith("engram:") else None
        return declared.get(name) or (template or {}).get("spec", {}).get("outputSchema")

    def new_mocks(seed: int, forced: dict[str, Mock] | None = None) -> Mocks:
        by_step = {**scenario.step_mocks, **(forced or {})}
        return Mocks(scenario.mocks, by_step, schemas=schema_of, recorded=recorded, seed=seed, has_default=True)

    subject = Subject(
        language.name,
        validated.pinned,
        scenario.input,
        options,
        language.title(validated.program) or Path(document).stem,
        scenario.namespace,
        tuple(_messages(scenario.actions)),
    )
    net = language.net(validated.program)
    findings = [] if net is None else find_defects(net, monotonic)
    return Simulation(document, Simulator(subject, dialects, new_mocks, faults), findings, scenario, new_mocks)


def _may_end_wait(message: "i.Input", gate: str) -> bool:
    """Whether it may be what a step waits for; a decision is for its own gate only."""
    if isinstance(message, i.Steer) and message.verb == "gate":
        return isinstance(message.body, bytes) and bool(jsontext.decode(message.body).get("step") == gate)
    return not (isinstance(message, i.Steer) and message.verb in (PAUSE, RESUME))


def _schedule_of(path: Path) -> ScheduleFile:
    try:
        return read_schedule(read_bounded(path))
    except ValueError as error:
        raise BadScheduleFile(f"{path}: {error}") from None


def files_of(document: str) -> list[Path]:
    """The document, and what is read of the file of scenarios beside it."""
    path = Path(document)
    files = read_files(_files_beside(document))[:1] if path.is_file() else []
    return [path, *(item for tested in files for item in (tested.path, *tested.beside()))]


def _scenario_of(
    document: str, name: str, *, is_confined: bool, namespace: str
) -> tuple[Bench | None, DocumentScenario]:
    path = Path(document)
    if not path.is_file():
        raise FileNotFoundError(None, "there is no such document", document)
    beside = [] if path.name.endswith(".test.yaml") else _files_beside(document)
    if not beside:
        if name:
            raise BadScenario(f"{document} has no scenarios, and so none called {name!r}")
        return None, DocumentScenario(name="", namespace=namespace)
    tested = read_files(beside, is_confined=is_confined, namespace=namespace)[0]
    scenarios = [chosen for chosen in tested.file.scenarios if not name or name in chosen.name]
    scenarios.sort(key=lambda chosen: chosen.name != name)  # one of exactly this name comes first
    if not scenarios:
        raise BadScenario(f"{tested.path}: no scenario has {name!r} in its name")
    return Bench(tested), scenarios[0]


def read_mocks(mocks: Mapping[str, Any]) -> dict[str, Mock]:
    """Mocks in the form of a file of scenarios. Raises `BadScenario`."""
    result: dict[str, Mock] = {}
    for name, value in mocks.items():
        result[name], problems = read_mock(value, read_span)
        for _, message in problems:
            raise BadScenario(f"the mock of {name!r}: {message}")
    return result


def _files_beside(document: str) -> list[Path]:
    try:
        return find_files(document)
    except UnfitInput:
        return []


def _messages(actions: Sequence[ScenarioAction]) -> "list[tuple[Instant, i.Input]]":
    """What people do, at its time after the start; what a scenario expects on the way is not looked at."""
    messages: list[tuple[Instant, i.Input]] = []
    at = 0
    for number, action in enumerate(actions):
        key, body = f"action-{number}", action.body
        match action.verb:
            case "advance":
                at += body
            case "signal":
                value = jsontext.encode(body.get("value"))
                messages.append((at, i.Signal(body["name"], value, key, body.get("by", ""))))
            case "approve" | "reject":
                state = "Approved" if action.verb == "approve" else "Rejected"
                decision = {
                    "step": body["step"],
                    "state": state,
                    "message": body.get("message", ""),
                    "by": body.get("by", ""),
                }
                messages.append((at, i.Steer("gate", jsontext.encode(decision), key, body.get("by", ""))))
            case "patch":
                messages.append((at, i.Steer("patch", jsontext.encode({"ctx": body, "reason": ""}), key)))
            case "cancel":
                messages.append((at, i.Cancel(body.get("reason", ""))))
            case "pause" | "unpause":
                verb = PAUSE if action.verb == "pause" else RESUME
                messages.append((at, i.Steer(verb, jsontext.encode({"reason": ""}), key)))
    return messages
