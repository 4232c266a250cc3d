"""A document as a net: what may happen in a run of it, whatever its data are. Independent of the language.

    places hold tokens ──▶ a transition takes some and puts others ──▶ …

A net allows at least what a run may do: where the data decide, every way is open. So what happens in no path of the
net happens in no run, and what happens on every path happens in every run.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from perdure.kernel.graphs.step_overview import DocumentPath
from perdure.kernel.turn_budget import pay


class Certainty(StrEnum):
    WILL = "will"
    MAY = "may"


class DefectKind(StrEnum):
    """What can be wrong with a document that is valid."""

    DEAD_STEP = "dead-step"
    DEADLOCK = "deadlock"
    STRANDED = "stranded"
    JOIN_NEVER = "join-never"
    ADMISSION_NEVER = "admission-never"
    ENDLESS_LOOP = "endless-loop"
    UNBOUNDED_TOKENS = "unbounded-tokens"
    NO_SENDER = "no-sender"
    UNBOUNDED_WAIT = "unbounded-wait"
    UNBOUNDED_RETRY = "unbounded-retry"
    TIMEOUT_INVERTED = "timeout-inverted"
    HANDLER_UNREACHABLE = "handler-unreachable"
    EFFECT_UNKEYED = "effect-unkeyed"
    FINAL_NEVER = "final-never"
    NO_MATCH = "no-match"
    RECURSION = "recursion"
    UNDECIDED = "undecided"


class NetPart(msgspec.Struct, frozen=True):
    """A step, or something in it that can be used or never used: a gate, a join, a handler.

    `never` is what is wrong if none of its transitions can fire; None: nothing is.
    """

    step: str | None
    place: DocumentPath = ()
    never: DefectKind | None = None
    message: str = ""
    hint: str = ""


class NetTransition(msgspec.Struct, frozen=True, gc=False):
    """What may happen: `takes` tokens, `puts` tokens, if all of `reads` hold one and none of `unless` does."""

    part: int
    choice: str
    takes: tuple[int, ...]
    puts: tuple[int, ...]
    reads: tuple[int, ...] = ()
    unless: tuple[int, ...] = ()
    waits: bool = False  # time passes, or somebody outside decides
    is_failure: bool = False  # it is taken because something failed
    is_bounded: bool = False  # something ends its repetition: a number of attempts, a list
    is_start: bool = True  # its part is used if it fires
    is_last: bool = False  # only when nothing else can happen
    is_limit: bool = False  # only a limit of the engine makes it happen: it ends no loop, and shows what can be used
    ends_run: bool = False  # the run may end at once, whatever else goes on in it
    is_limited: bool = False  # it is inside a time limit: what repeats only such transitions does not go on for ever

    @property
    def is_followed(self) -> bool:
        """Whether runs do it. A limit of the engine ends no loop (ANA-009), unless that one is inside a time limit:
        then it is no defect, and the engine may well be the first to end it."""
        return self.is_limited or not self.is_limit


class Remark(msgspec.Struct, frozen=True):
    """What is wrong with a run that ends, or stands still, with a token in a certain place."""

    kind: DefectKind
    part: int
    message: str
    hint: str = ""
    is_person: bool = False  # somebody outside may help: it is never certain


class Defect(msgspec.Struct, frozen=True):
    """Something wrong with a document that is valid; `trace` is a run that shows it, as steps and choices."""

    kind: DefectKind
    certainty: Certainty
    step: str | None
    place: DocumentPath
    message: str
    hint: str = ""
    trace: tuple[tuple[str, str], ...] = ()


_PRICE = 20  # of one arc, or one operand of a formula
NOBODY = -1
START = 0


class Net(msgspec.Struct):
    """Places are numbers; at first only `START` holds a token. A run ends, or stands still, when nothing can happen."""

    parts: list[NetPart] = msgspec.field(default_factory=list)
    transitions: list[NetTransition] = msgspec.field(default_factory=list)
    remarks: dict[int, Remark] = msgspec.field(default_factory=dict)
    findings: list[Defect] = msgspec.field(default_factory=list)  # what can be seen without the net
    known: set[Defect] = msgspec.field(default_factory=set)  # the same
    owners: list[int] = msgspec.field(default_factory=lambda: [NOBODY])  # by place: the part that alone can fill it
    void: set[int] = msgspec.field(default_factory=set)  # a token that cannot leave contradicts what was assumed
    open_question: str = ""  # what the net does not contain, because the document is too large

    def place(self, owner: int = NOBODY) -> int:
        self.owners.append(owner)
        return len(self.owners) - 1

    def part(
        self,
        step: str | None,
        place: DocumentPath = (),
        never: DefectKind | None = None,
        message: str = "",
        hint: str = "",
    ) -> int:
        self.parts.append(NetPart(step, place, never, message, hint))
        return len(self.parts) - 1

    def add(
        self,
        part: int,
        choice: str,
        takes: Iterable[int] = (),
        puts: Iterable[int] = (),
        *,
        reads: Iterable[int] = (),
        unless: Iterable[int] = (),
        waits: bool = False,
        is_failure: bool = False,
        is_bounded: bool = False,
        is_start: bool = True,
        is_last: bool = False,
        is_limit: bool = False,
        ends_run: bool = False,
    ) -> None:
        arcs = tuple(takes), tuple(puts), tuple(reads), tuple(unless)
        pay(_PRICE * (1 + sum(map(len, arcs))))
        self.transitions.append(
            NetTransition(part, choice, *arcs, waits, is_failure, is_bounded, is_start, is_last, is_limit, ends_run)
        )

    def limit_from(self, first: int) -> None:
        """All transitions from this one on are inside a time limit."""
        pay(_PRICE * (len(self.transitions) - first))
        for index in range(first, len(self.transitions)):
            self.transitions[index] = msgspec.structs.replace(self.transitions[index], is_limited=True)

    def reach(self) -> tuple[set[int], set[int]]:
        """The places that can hold a token and the transitions that can fire, if tokens were never used up."""
        places, fired = {START}, set[int]()
        users: dict[int, set[int]] = {}
        for index, transition in enumerate(self.transitions):
            for place in (*transition.takes, *transition.reads):
                users.setdefault(place, set()).add(index)
        missing = [len({*transition.takes, *transition.reads}) for transition in self.transitions]
        pending = [START]
        while pending:
            for index in users.get(pending.pop(), ()):
                missing[index] -= 1
                if missing[index] == 0:
                    fired.add(index)
                    new = set(self.transitions[index].puts) - places
                    places |= new
                    pending += new
        return places, fired

    def find(self, kind: DefectKind, part: int, message: str, hint: str = "", *, is_certain: bool = False) -> None:
        """Report something that the document shows without a net."""
        certainty = Certainty.WILL if is_certain else Certainty.MAY
        known = self.parts[part]
        finding = Defect(kind, certainty, known.step, known.place, message, hint)
        if finding not in self.known:
            self.known.add(finding)
            self.findings.append(finding)


# Conditions: what is known of them without data.

Formula = bool | str | tuple[str, tuple["Formula", ...]]
"""True or false, an unknown by its text, or `("not" | "and" | "or", operands)`."""

MOST_UNKNOWNS = 8


def negation(formula: Formula) -> Formula:
    return not formula if isinstance(formula, bool) else ("not", (formula,))


def value_of(formula: Formula, known: dict[str, bool]) -> bool | None:
    """Its truth, as far as it follows from what is known."""
    if isinstance(formula, bool):
        return formula
    if isinstance(formula, str):
        return known.get(formula)
    operator, operands = formula
    pay(_PRICE * len(operands))
    values = [value_of(operand, known) for operand in operands]
    if operator == "not":
        return None if values[0] is None else not values[0]
    decisive = operator == "or"
    if decisive in values:
        return decisive
    return None if None in values else not decisive


def unknowns_of(formula: Formula) -> set[str]:
    if isinstance(formula, bool):
        return set()
    return {formula} if isinstance(formula, str) else set().union(*map(unknowns_of, formula[1]))


def answers(formulas: Sequence[Formula]) -> list[tuple[bool, ...]]:
    """The answers that conditions may have together: a condition and its negation never have the same one."""
    unknowns = sorted(set().union(*map(unknowns_of, formulas))) if formulas else []
    if len(unknowns) > MOST_UNKNOWNS:  # each on its own; constants stay decided
        unknowns = []
        formulas = [formula if isinstance(formula, bool) else f"#{index}" for index, formula in enumerate(formulas)]
        free = [formula for formula in formulas if isinstance(formula, str)]
        if len(free) > MOST_UNKNOWNS:
            return _first_true(formulas)
        unknowns = free
    results: dict[tuple[bool, ...], None] = {}
    for bits in range(1 << len(unknowns)):
        known = {name: bool(bits >> at & 1) for at, name in enumerate(unknowns)}
        results[tuple(bool(value_of(formula, known)) for formula in formulas)] = None
    return list(results)


def _first_true(formulas: Sequence[Formula]) -> list[tuple[bool, ...]]:
    """Of very many: none, each alone, all; for a choice of the first one that is as good as everything."""
    constant = [formula is True for formula in formulas]
    ways = [tuple(constant), tuple(formula is not False for formula in formulas)]
    for index, formula in enumerate(formulas):
        if isinstance(formula, str):
            ways.append(tuple(value or at == index for at, value in enumerate(constant)))
    return list(dict.fromkeys(ways))
