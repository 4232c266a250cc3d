"""Many simulated runs of a document, each with faults of its own; after each, what must always hold is checked."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perdure.analysis.coverage import Coverage
from perdure.analysis.fault_schedules import FAULTS, HIDDEN, FaultSchedule, SimulatedFault, shrink
from perdure.analysis.mocks import Mocks
from perdure.analysis.simulated_world import ROOT, FoldDiffers, SimulatedWorld, Subject
from perdure.kernel import events as e
from perdure.kernel.codec import decode_turns
from perdure.kernel.dialect import Dialect
from perdure.kernel.graphs.graph import Graph
from perdure.kernel.graphs.net import Defect, DefectKind
from perdure.kernel.graphs.run_trace import Trace, trace_turns
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Failed, Status

INVARIANTS = {
    "ends": "every run ends",
    "same-result": "crashes, lost workers and repeated results change neither the result nor what is called",
    "effect-once": "an effect is completed at most once per key",
    "compensated": "after a failure every compensation has had its turn",
    "nothing-left": "an ended run holds no task, timer or permit",
    "decides": "no decision raises an error, and a run that is folded from its log is what it was",
}

FORESEEN = frozenset({DefectKind.DEADLOCK, DefectKind.NO_SENDER, DefectKind.UNBOUNDED_WAIT, DefectKind.UNDECIDED})
FORESEEN |= {DefectKind.ENDLESS_LOOP, DefectKind.UNBOUNDED_RETRY, DefectKind.UNBOUNDED_TOKENS, DefectKind.RECURSION}


class Violation(msgspec.Struct, frozen=True):
    invariant: str
    message: str


class Simulated(msgspec.Struct, kw_only=True):
    """One simulated run."""

    seed: int
    faults: list[SimulatedFault]
    status: str
    code: str
    outcome: bytes
    seconds: float  # of virtual time
    crashes: int
    commits: int
    violation: Violation | None
    keys: frozenset[str]
    trace: Trace | None = None
    parted_at: str | None = None  # of a counter-example: the first step that the run did not reach


class Simulator:
    """Runs one subject; `new_mocks` makes what answers its tasks, for a seed."""

    def __init__(
        self,
        subject: Subject,
        dialects: Mapping[str, Dialect],
        new_mocks: Callable[[int], Mocks],
        faults: Sequence[str] = FAULTS,
    ) -> None:
        self.subject = subject
        self.faults = tuple(faults)
        self.dialects = dialects
        self._new_mocks = new_mocks
        self._programs: dict[bytes, Any] = {}
        dialect = dialects[subject.language]
        self._dialect = dialect
        self.graph: Graph | None = (
            dialect.graph(self._load(subject.language, subject.text)) if dialect.draws_graphs else None
        )

    def _load(self, language: str, text: bytes) -> Any:
        program = self._programs.get(text)
        if program is None:
            program = self._programs[text] = self.dialects[language].load(text)
        return program

    def run(self, seed: int, fixed: Sequence[SimulatedFault] | None = None) -> Simulated:
        """With the faults of the seed, or with these alone."""
        schedule = FaultSchedule(seed, self.faults, fixed)
        simulated = self._play(schedule)
        hidden = [fault for fault in schedule.used if fault.kind in HIDDEN]
        if simulated.violation is None and hidden:
            seen = [fault for fault in schedule.used if fault.kind not in HIDDEN]
            plain = self._play(schedule.fixed(seen), is_traced=False)
            simulated.violation = _changed(plain, simulated)
        return simulated

    def _play(self, schedule: FaultSchedule, *, is_traced: bool = True) -> Simulated:
        world = SimulatedWorld(self.subject, self.dialects, self._new_mocks(schedule.seed), schedule, self._load)
        violation: Violation | None = None
        try:
            world.play()
        except FoldDiffers as error:
            violation = Violation("decides", str(error))
        except Exception as error:  # a decision must never raise, whatever happens
            violation = Violation("decides", f"a decision raised {type(error).__name__}: {error}")
        state = world.root.execution.state
        status, outcome = world.result()
        trace = None
        if self.graph is not None and violation is None and is_traced:
            turns = (turn for row in world.root.rows for turn in decode_turns(self._dialect, row))
            trace = trace_turns(self._dialect.tracer(world.root.program), turns)
        return Simulated(
            seed=schedule.seed,
            faults=list(schedule.used),
            status=status,
            code=state.outcome.code if isinstance(state.outcome, Failed) else "",
            outcome=outcome,
            seconds=((state.ended_at or world.now) - state.started_at) / SECOND if state.started_at else 0.0,
            crashes=world.crashes,
            commits=world.commits,
            violation=violation or next(self._violations(world, trace), None),
            keys=frozenset(world.keys),
            trace=trace,
        )

    def _violations(self, world: SimulatedWorld, trace: Trace | None) -> Iterator[Violation]:
        for life in world.runs.values():
            if not life.is_over:
                execution = life.execution
                awaited = life.dialect.awaits(execution) if execution.state.started_at else []
                awaited += [f"task {task.path}" for task in execution.state.tasks.values()]
                awaited += [f"a permit of {permit.scope}" for permit in execution.state.permits.values()]
                reason = f"it waits for {'; '.join(awaited)}" if awaited else f"{world.turns} turns were not enough"
                who = "the run" if life.id == ROOT else f"run {life.id}"
                yield Violation("ends", f"{who} does not end: {reason}")
        completed: Counter[tuple[str, int, str]] = Counter()
        for life in world.runs.values():
            incarnation = 1
            for event in life.events:
                if isinstance(event, e.RunReopened):
                    incarnation = event.incarnation
                elif isinstance(event, e.EffectCompleted):
                    completed[(life.id, incarnation, event.key)] += 1
        for (run, _, key), count in completed.items():
            if count > 1:
                yield Violation("effect-once", f"run {run} has completed the effect {key!r} {count} times")
        if world.root.execution.state.status is Status.FAILED and trace is not None and self.graph is not None:
            for step in uncompensated(self.graph, trace):
                yield Violation("compensated", f"the run has failed, and {step!r} has not had its turn")
        held = sorted({run for run, _ in world.permits})
        if held and all(life.is_over for life in world.runs.values()):
            yield Violation("nothing-left", f"all runs have ended, and run {held[0]} still holds a permit")

    def shrunk(self, simulated: Simulated) -> Simulated:
        """The same violation with as few faults as it needs."""
        violation = simulated.violation
        assert violation is not None

        def fails(faults: Sequence[SimulatedFault]) -> bool:
            other = self.run(simulated.seed, faults).violation
            return other is not None and other.invariant == violation.invariant

        return self.run(simulated.seed, shrink(simulated.faults, fails))


def _changed(plain: Simulated, simulated: Simulated) -> Violation | None:
    if plain.violation is not None:
        return None  # it is wrong without them, too
    before, now = (plain.status, plain.outcome), (simulated.status, simulated.outcome)
    if before != now:
        texts = [f"{status} {outcome.decode(errors='replace')[:200]}" for status, outcome in (now, before)]
        return Violation("same-result", f"it ends as {texts[0]}, without the faults as {texts[1]}")
    if more := sorted(simulated.keys - plain.keys):
        return Violation("same-result", f"something is called under the key {more[0]!r}, without the faults never")
    return None


def uncompensated(graph: Graph, trace: Trace) -> Iterator[str]:
    """Steps of a block for failures that a failed run has not reached: not even to skip them."""
    frames = {node.parent for node in graph.nodes if node.parent}
    cleanups = {edge.target for edge in graph.edges if edge.is_exceptional and edge.target in frames}
    kinds = {node.id: node.kind for node in graph.nodes}
    reached = {visit.node for visit in trace.visits}
    for node in graph.nodes:
        if node.parent in cleanups and not kinds[node.parent] and node.id not in reached:
            yield node.label


class SimulationReport:
    """What the runs of a simulation have shown together."""

    def __init__(self, graph: Graph | None, findings: Sequence[Defect] = ()) -> None:
        self.runs = 0
        self.crashes = 0
        self.ends: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.failing: list[Simulated] = []
        self.coverage = None if graph is None else Coverage(graph)
        self._findings = list(findings)

    def add(self, simulated: Simulated) -> None:
        self.runs += 1
        self.crashes += simulated.crashes
        self.ends[simulated.status + (f" ({simulated.code})" if simulated.code else "")] += 1
        self.seconds.append(simulated.seconds)
        if simulated.violation is not None:
            self.failing.append(simulated)
        if self.coverage is not None and simulated.trace is not None:
            self.coverage.add(simulated.trace)
        simulated.trace = None

    def quantiles(self) -> dict[str, float]:
        """Of virtual duration, in seconds."""
        ordered = sorted(self.seconds)
        if not ordered:
            return {}
        shares = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
        return {
            name: round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 3) for name, share in shares.items()
        }

    def unforeseen(self) -> list[str]:
        """Where the simulation and the findings of `check` do not agree: each is a phrase."""
        phrases = []
        kinds = {finding.kind for finding in self._findings}
        if any(run.violation and run.violation.invariant == "ends" for run in self.failing) and not kinds & FORESEEN:
            phrases.append("a run did not end, and `check` has not foreseen it")
        return phrases

    def facts(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "crashes": self.crashes,
            "failed": len(self.failing),
            "ends": dict(self.ends.most_common()),
            "seconds": self.quantiles(),
            "findings": [
                {"kind": finding.kind.value, "certainty": finding.certainty.value, "step": finding.step}
                for finding in self._findings
            ],
            "unforeseen": self.unforeseen(),
            "coverage": None if self.coverage is None else self.coverage.facts(),
            "failing": [
                {"seed": run.seed, **msgspec.to_builtins(run.violation), "faults": msgspec.to_builtins(run.faults)}
                for run in self.failing[:20]
            ],
        }
