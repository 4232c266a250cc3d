"""What is wrong with a document that is valid: judged on all states of its net."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from perdure.analysis.state_space import MOST_SECONDS, MOST_STATES, StateSpace
from perdure.kernel.graphs.net import NOBODY, Certainty, Defect, DefectKind, Net
from perdure.kernel.turn_budget import pay

LONGEST_TRACE = 200
_PRICE = 20  # of one look at a state, a token or a part

Edges = Sequence[Sequence[tuple[int, int]]]
"""By state: transitions, and the states that they lead to."""

NEVER = frozenset(
    {
        DefectKind.DEAD_STEP,
        DefectKind.JOIN_NEVER,
        DefectKind.ADMISSION_NEVER,
        DefectKind.HANDLER_UNREACHABLE,
        DefectKind.FINAL_NEVER,
    }
)


def find_defects(
    net: Net,
    clock: Callable[[], float] = lambda: 0.0,
    *,
    most_states: int = MOST_STATES,
    most_seconds: float = MOST_SECONDS,
) -> list[Defect]:
    """Every finding, each defect once, in the order of the document."""
    limits = {"most_states": most_states, "most_seconds": most_seconds}
    space = StateSpace(net, clock, **limits)  # type: ignore[arg-type]
    judgement = _Judgement(net, space)
    if space.is_complete and not space.growing and judgement.repeats and judgement.is_open:
        # What is left out because of the order of independent transitions may matter where runs do not end.
        whole = StateSpace(net, clock, reduces=False, **limits)  # type: ignore[arg-type]
        if whole.is_complete and not whole.growing:
            judgement = _Judgement(net, whole)
        else:
            judgement.is_exact = False
    order = {part: index for index, part in enumerate(net.parts)}
    results = judgement.findings()
    places = {(part.step, part.place): order[part] for part in reversed(net.parts)}
    return sorted(results, key=lambda finding: places.get((finding.step, finding.place), len(order)))


class _Judgement:
    def __init__(self, net: Net, space: StateSpace) -> None:
        self.net = net
        self.space = space
        self.is_exact = space.is_complete and not space.growing
        self.edges = [
            [(index, target) for index, target in following if not net.transitions[index].is_bounded]
            for following in space.edges
        ]
        self.cycles = list(self._endless(self.edges))
        # Also inside a time limit: which one of them ends it, and after what, is open.
        self.repeats = any(cycles([[target for _, target in following] for following in self.edges]))
        enders = [item for following in space.edges for item in following if net.transitions[item[0]].ends_run]
        self.enders = {net.transitions[index].part for index, _ in enders}
        self.ends = sorted({*space.last, *(target for _, target in enders)})  # states in which a run may end
        used = {net.transitions[index].part for index in space.fired if net.transitions[index].is_start}
        self.unfired = {index for index, part in enumerate(net.parts) if part.never is not None and index not in used}

    @property
    def is_open(self) -> bool:
        """Whether something was not met that may matter: the use of a part, or an end of the run."""
        unmet = (t for index, t in enumerate(self.net.transitions) if t.ends_run and index not in self.space.fired)
        return bool(self.unfired) or any(unmet)

    def _endless(self, edges: Edges) -> Iterator[list[int]]:
        """The states between which a run can go on for ever: not those that it leaves when a time limit is over."""
        for cycle in cycles([[target for _, target in following] for following in edges]):
            states = set(cycle)
            if any(self._goes_on(index, target, states) for state in cycle for index, target in edges[state]):
                yield cycle

    def _goes_on(self, index: int, target: int, states: set[int]) -> bool:
        return target in states and not self.net.transitions[index].is_limited

    def findings(self) -> list[Defect]:
        results = [*self.net.findings, *self._remarks(), *self._loops(), *self._growth()]
        certain = {finding.step for finding in results if finding.certainty is Certainty.WILL}
        results += self._never(certain)
        if not self.space.is_complete or self.net.open_question:
            results.append(self._undecided())
        return results

    def _undecided(self) -> Defect:
        limit = self.net.open_question or f"its states were explored up to {self.space.limit}"
        message = f"not everything could be decided: {limit}"
        hint = "Findings above are right; whether there are more deadlocks, endless loops or stranded tokens is open."
        return Defect(DefectKind.UNDECIDED, Certainty.MAY, None, (), message, hint)

    # States in which nothing can happen.

    def _remarks(self) -> Iterator[Defect]:
        first: dict[tuple[DefectKind, int], tuple[int, int]] = {}  # by what is remarked: the place, and the first state
        counts: Counter[tuple[DefectKind, int]] = Counter()  # of states
        for state in self.ends:
            marking = set(self.space.markings[state])
            pay(_PRICE * len(marking))
            noted = {}
            for place in marking:
                if (remark := self.net.remarks.get(place)) is not None:
                    noted[remark.kind, remark.part] = place
            for same, place in noted.items():
                first.setdefault(same, (place, state))
            counts.update(noted.keys())
        for same, (place, state) in first.items():
            remark = self.net.remarks[place]
            if remark.part in self.unfired:
                continue
            everywhere = counts[same] == len(self.ends)
            others = self.repeats or self.enders - {remark.part}
            is_certain = everywhere and not remark.is_person and self.is_exact and not others
            yield self._finding(
                remark.kind, is_certain, remark.part, remark.message, remark.hint, self.space.way_to(state)
            )

    # Endless runs.

    def _loops(self) -> Iterator[Defect]:
        reported: set[str | None] = set()
        transitions = self.net.transitions
        plain = [
            [
                (index, target)
                for index, target in following
                if not (transitions[index].waits or transitions[index].is_failure)
            ]
            for following in self.edges
        ]
        in_plain: set[int] = set()
        for kind, edges in ((DefectKind.ENDLESS_LOOP, plain), (DefectKind.UNBOUNDED_RETRY, self.edges)):
            groups: dict[str | None, list[set[int]]] = {}
            for cycle in self._endless(edges):
                states = set(cycle)
                if kind is DefectKind.ENDLESS_LOOP:
                    in_plain |= states
                    groups.setdefault(self._step_of_loop(states, edges), []).append(states)
                    continue
                failing = self._failing_step(states, edges)
                if failing is not None and not states & in_plain:
                    groups.setdefault(failing, []).append(states)
            for step, members in groups.items():
                if step not in reported:
                    reported.add(step)
                    yield self._loop(kind, step, members, edges)

    def _step_of_loop(self, states: set[int], edges: Edges) -> str | None:
        for state in sorted(states):
            for index, target in edges[state]:
                step = self._step(index)
                if self._goes_on(index, target, states) and step is not None:
                    return step
        return None

    def _failing_step(self, states: set[int], edges: Edges) -> str | None:
        for state in sorted(states):
            for index, target in edges[state]:
                if target in states and self.net.transitions[index].is_failure:
                    return self._step(index)
        return None

    def _step(self, transition: int) -> str | None:
        return self.net.parts[self.net.transitions[transition].part].step

    def _loop(self, kind: DefectKind, step: str | None, members: list[set[int]], edges: Edges) -> Defect:
        states = set().union(*members)
        pay(_PRICE * len(states))
        entry, around = self._round(members[0], edges)
        part = next(index for index, part in enumerate(self.net.parts) if part.step == step)
        trace = [*self.space.way_to(entry), *around]
        names = list(dict.fromkeys(name for index in around if (name := self._step(index)) is not None))
        way = " → ".join([*names, names[0]]) if names else ""
        is_certain = self.is_exact and not (self.space.last or self.enders) and self._must_enter(states)
        if kind is DefectKind.ENDLESS_LOOP:
            message = f"this can go on for ever without waiting: {way}"
            hint = "Add an exit that does not depend on data alone, a wait, or a time limit around it."
        else:
            message = f"a failure leads back here, as often as it happens: {way}"
            hint = "Limit the attempts: use a retry with a number of attempts, or a time limit around it."
        return self._finding(kind, is_certain, part, message, hint, trace)

    def _round(self, states: set[int], edges: Edges) -> tuple[int, list[int]]:
        """A state of a loop, and a way from it back to it that no time limit ends."""
        for state in sorted(states):
            for index, target in edges[state]:
                if self._goes_on(index, target, states):
                    return state, [index, *_way(target, state, states, edges)]
        raise AssertionError("something in a loop goes on")

    def _must_enter(self, states: set[int]) -> bool:
        """Whether every endless run reaches these states."""
        if 0 in states:
            return True
        pay(_PRICE * len(self.edges))
        rest = [
            [] if state in states else [(index, target) for index, target in following if target not in states]
            for state, following in enumerate(self.edges)
        ]
        return next(self._endless(rest), None) is None

    def _growth(self) -> Iterator[Defect]:
        reported: set[str | None] = set()
        for state in self.space.growing:
            way = self.space.way_to(state)
            pay(_PRICE * len(way))
            index = next((item for item in reversed(way) if len(self.net.transitions[item].puts) > 1), way[-1])
            part = self.net.transitions[index].part
            step = self.net.parts[part].step
            if step in reported:
                continue
            reported.add(step)
            is_limited = any(self.net.transitions[item].is_limited for item in way)  # a time limit ends it
            others = self.space.last or self.cycles or self.enders or is_limited
            is_certain = self.space.is_complete and not others
            message = "each round makes more tokens than it takes: their number has no bound"
            hint = "Let one way of this step lead back, or join the tokens before the next round."
            yield self._finding(DefectKind.UNBOUNDED_TOKENS, is_certain, part, message, hint, way)

    # What never happens.

    def _never(self, certain: set[str | None]) -> Iterator[Defect]:
        places, fired = (self.space.marked, self.space.fired) if self.is_exact else self.net.reach()
        used = {self.net.transitions[index].part for index in fired if self.net.transitions[index].is_start}
        if self.space.growing or any(cycles([[target for _, target in following] for following in self.space.edges])):
            used |= self._used_at_the_end(places)
        never = [index for index, part in enumerate(self.net.parts) if part.never is not None and index not in used]
        explained = {
            index for index, part in enumerate(self.net.parts) if part.step in certain and part.step is not None
        }
        reasons = explained | set(never)
        blamed = {index: makers & reasons for index, makers in self._blamed(never, places).items()}
        followers: dict[int, list[int]] = {}
        for index, makers in blamed.items():
            for maker in makers:
                followers.setdefault(maker, []).append(index)
        roots = [index for index in never if not blamed[index]]
        followed: set[int] = set()
        _follow({*roots, *explained}, followers, followed)
        by_kind = sorted(never, key=lambda index: self.net.parts[index].never is DefectKind.DEAD_STEP)
        for index in by_kind:  # parts that only lead to each other
            if index not in followed:
                roots.append(index)
                _follow({index}, followers, followed)
        for index in sorted(roots):
            part = self.net.parts[index]
            assert part.never is not None
            yield Defect(part.never, Certainty.WILL, part.step, part.place, part.message, part.hint)

    def _used_at_the_end(self, places: set[int]) -> set[int]:
        """Parts that are used when something ends a run that repeats itself: a time limit, or a limit of the engine."""
        transitions = self.net.transitions
        held = set(places)
        used: set[int] = set()
        is_new = True
        while is_new:
            is_new = False
            for transition in transitions:
                if held.issuperset((*transition.takes, *transition.reads)) and (
                    transition.is_last or transition.is_limit or not places.issuperset(transition.takes)
                ):
                    is_new = is_new or not held.issuperset(transition.puts)
                    held.update(transition.puts)
                    if transition.is_start:
                        used.add(transition.part)
        return used

    def _blamed(self, never: Sequence[int], places: set[int]) -> dict[int, set[int]]:
        """By part: those without which it would be possible; empty if the reason is here."""
        makers: dict[int, set[int]] = {}
        for transition in self.net.transitions:
            for place in transition.puts:
                makers.setdefault(place, set()).add(transition.part)
        blamed: dict[int, set[int]] = {index: set() for index in never}
        for transition in self.net.transitions:
            if transition.part not in blamed or not transition.is_start:
                continue
            for place in (*transition.takes, *transition.reads):
                if place not in places:
                    pay(_PRICE * len(makers.get(place, ())))
                    blamed[transition.part] |= {*makers.get(place, ()), self.net.owners[place]}
        return {index: parts - {index, NOBODY} for index, parts in blamed.items()}

    def _finding(
        self, kind: DefectKind, is_certain: bool, part: int, message: str, hint: str, way: Sequence[int]
    ) -> Defect:
        known = self.net.parts[part]
        trace = tuple(
            (step, self.net.transitions[index].choice)
            for index in way
            if (step := self._step(index)) is not None and self.net.transitions[index].choice
        )
        certainty = Certainty.WILL if is_certain else Certainty.MAY
        return Defect(kind, certainty, known.step, known.place, message, hint, trace[:LONGEST_TRACE])


def _follow(causes: set[int], followers: Mapping[int, Sequence[int]], followed: set[int]) -> None:
    """Add to `followed` the causes, and everything that follows from them."""
    pending = [index for index in causes if index not in followed]
    followed.update(pending)
    while pending:
        more = {index for index in followers.get(pending.pop(), ()) if index not in followed}
        followed |= more
        pending += more


def _way(begin: int, end: int, states: set[int], edges: Edges) -> list[int]:
    """The transitions of a shortest way between two states of a cycle."""
    came: dict[int, tuple[int, int]] = {}
    pending = [begin]
    for state in pending:
        if state == end:
            break
        for index, target in edges[state]:
            if target in states and target not in came and target != begin:
                came[target] = (state, index)
                pending.append(target)
    way = []
    while end != begin:
        end, index = came[end]
        way.append(index)
    return way[::-1]


def cycles(edges: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """The strongly connected components that contain a cycle (Tarjan's algorithm, without recursion)."""
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    for root in range(len(edges)):
        pay(_PRICE)
        if root in number:
            continue
        number[root] = lowest[root] = len(number)
        path.append(root)
        on_path.add(root)
        visits = [(root, iter(edges[root]))]
        while visits:
            state, following = visits[-1]
            for target in following:
                if target not in number:
                    number[target] = lowest[target] = len(number)
                    path.append(target)
                    on_path.add(target)
                    visits.append((target, iter(edges[target])))
                    break
                if target in on_path:
                    lowest[state] = min(lowest[state], number[target])
            else:
                visits.pop()
                if visits:
                    above = visits[-1][0]
                    lowest[above] = min(lowest[above], lowest[state])
                if lowest[state] == number[state]:
                    component: list[int] = []
                    while True:
                        member = path.pop()
                        on_path.discard(member)
                        component.append(member)
                        if member == state:
                            break
                    if len(component) > 1 or state in edges[state]:
                        yield component
