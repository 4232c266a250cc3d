"""Schedules of simulated runs: how long each task takes, and what goes wrong, all drawn from a seed.

What is drawn for a task or a commit depends on the seed and on its place alone, never on what was drawn before. So a
fault can be left out of a schedule and the others stay: a failing schedule is shrunk by leaving out what is not needed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import msgspec

from perdure.analysis.mocks import Dice
from perdure.kernel.json_values.values import SECOND, Instant

FAULTS = ("crash", "late", "slow", "fail", "duplicate")
"""What may go wrong; `delay`, how long a task usually takes, is always drawn."""

HIDDEN = frozenset({"crash", "late", "duplicate"})
"""Faults that no document sees: a run ends as it would without them."""

FORMAT = "perdure-schedule-1"
CHANCE = 0.06  # of each kind of fault, for a task; of a crash, for a commit
MOST_CRASHES = 6  # in one run
_DELAY = 2.0  # seconds, at most
_SLOW = (60.0, 86_400.0)


class SimulatedFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that is drawn: for a task, named by run, path and count, or for a commit."""

    kind: str
    task: str = ""
    commit: int = 0
    after: bool = False  # a crash: after the commit, otherwise before
    seconds: float = 0.0

    @property
    def place(self) -> tuple[str, str, int]:
        return ("crash" if self.kind == "crash" else self.kind, self.task, self.commit)

    def describe(self) -> str:
        match self.kind:
            case "crash":
                return f"a crash {'after' if self.after else 'before'} commit {self.commit}"
            case "delay" | "slow":
                return f"task {self.task} takes {self.seconds:g} s"
            case "late":
                return f"the worker of task {self.task} is lost, and its result comes after that of the next one"
            case "fail":
                return f"task {self.task} fails"
            case _:
                return f"the result of task {self.task} arrives twice"


class FaultSchedule:
    """Draws faults from a seed, or (`fixed`) has only those that it was given. `used` are those that were met."""

    def __init__(
        self, seed: int, faults: Iterable[str] = FAULTS, fixed: Sequence[SimulatedFault] | None = None
    ) -> None:
        self.seed = seed
        self._kinds = tuple(kind for kind in FAULTS if kind in set(faults))
        self._fixed = None if fixed is None else {fault.place: fault for fault in fixed}
        self._crashes = 0
        self.used: list[SimulatedFault] = []

    def of_task(self, task: str) -> dict[str, SimulatedFault]:
        """By kind. Asked once for each task."""
        if self._fixed is not None:
            kinds = ("delay", *FAULTS[1:])
            met = [fault for kind in kinds if (fault := self._fixed.get((kind, task, 0))) is not None]
        else:
            met = self._drawn(task)
        self.used += met
        return {fault.kind: fault for fault in met}

    def _drawn(self, task: str) -> list[SimulatedFault]:
        dice = Dice(self.seed, f"task {task}")
        drawn = [SimulatedFault("delay", task, seconds=round(dice.fraction() * _DELAY, 6))]
        for kind in self._kinds:
            chance, size = dice.fraction(), dice.fraction()
            if kind != "crash" and chance < CHANCE:
                least, most = _SLOW
                seconds = round(least * (most / least) ** size, 3) if kind == "slow" else 0.0
                drawn.append(SimulatedFault(kind, task, seconds=seconds))
        return drawn

    def at_commit(self, commit: int) -> SimulatedFault | None:
        if self._fixed is not None:
            fault = self._fixed.get(("crash", "", commit))
        else:
            dice = Dice(self.seed, f"commit {commit}")
            has_crash = "crash" in self._kinds and self._crashes < MOST_CRASHES and dice.fraction() < CHANCE
            fault = SimulatedFault("crash", commit=commit, after=dice.fraction() < 0.5) if has_crash else None
        if fault is not None:
            self._crashes += 1
            self.used.append(fault)
        return fault

    def fixed(self, faults: Sequence[SimulatedFault]) -> Self:
        """The same seed, with these faults alone."""
        return type(self)(self.seed, (), faults)


def shrink(
    faults: Sequence[SimulatedFault], fails: Callable[[Sequence[SimulatedFault]], bool], most: int = 2_000
) -> list[SimulatedFault]:
    """The shortest list that still fails: no fault of it can be left out (delta debugging). `most`: trials."""
    kept, parts, trials = list(faults), 2, 0
    if fails([]):
        return []
    while len(kept) > 1 and trials < most:
        size = -(-len(kept) // parts)
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            trials += 1
            if rest and fails(rest):
                kept, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(kept))
    return kept


class ScheduleFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A failing schedule, as a file that can be replayed anywhere."""

    format: str = FORMAT
    document: str = ""  # its file, as it was named
    digest: str = ""  # of the pinned document
    scenario: str = ""
    input: Any = None
    seed: int = 0
    invariant: str = ""
    message: str = ""
    faults: list[SimulatedFault] = msgspec.field(default_factory=list)
    trace: list[Mapping[str, str]] = msgspec.field(default_factory=list)  # of a finding of `check`: steps and choices

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def read_schedule(text: bytes) -> ScheduleFile:
    """A schedule, a finding of `check --json` with its `trace`, the trace alone, or that whole answer: its first one.

    Raises `ValueError`, which says what is wrong.
    """
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if isinstance(data, dict) and isinstance(data.get("findings"), list):  # all that `check --json` has answered
        examples = [item for item in data["findings"] if isinstance(item, dict) and item.get("trace")]
        if not examples:
            raise ValueError("none of its findings has a trace")
        data = examples[0]
    if isinstance(data, list) and data:
        data = {"trace": data}
    if isinstance(data, dict) and isinstance(data.get("trace"), list) and data.get("format") != FORMAT:
        if not data["trace"]:
            raise ValueError("the finding has no trace: it is about what happens in no run")
        data = {"trace": data["trace"], "message": str(data.get("message", ""))}
    elif not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(
            f"it is not a schedule (expected a JSON object with format {FORMAT!r}, or a finding with a trace)"
        )
    try:
        file = msgspec.convert(data, ScheduleFile)
    except msgspec.ValidationError as error:
        raise ValueError(f"it is not a schedule: {error}") from None
    if unknown := {fault.kind for fault in file.faults} - {"delay", *FAULTS}:
        raise ValueError(f"it has an unknown fault: {', '.join(sorted(unknown))}")
    return file


def length_of(faults: Mapping[str, SimulatedFault], answer: Instant) -> Instant:
    """How long a task takes, given what was drawn for it and what its mock says."""
    drawn = faults.get("slow") or faults.get("delay")
    return answer + int((0.0 if drawn is None else drawn.seconds) * SECOND)
