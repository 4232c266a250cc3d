"""The states that a net can reach, each once, with a shortest way to it.

Where transitions do not concern each other, their order does not matter and only one order is explored (stubborn
sets): every state in which nothing can happen is still found, and so is every endless run.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from perdure.kernel.graphs.net import START, Net, NetTransition
from perdure.kernel.turn_budget import pay

MOST_STATES = 200_000
MOST_TOKENS = 4_000_000  # in all of them together
MOST_SECONDS = 2.0
_SEEDS = 6  # of stubborn sets that are compared
_PRICE = 20  # of one look at a token

Marking = tuple[int, ...]
"""The places that hold a token, in order; a place with two tokens occurs twice."""


class StateSpace:
    def __init__(
        self,
        net: Net,
        clock: Callable[[], float] = lambda: 0.0,
        *,
        most_states: int = MOST_STATES,
        most_seconds: float = MOST_SECONDS,
        reduces: bool = True,
    ) -> None:
        self.net = net
        self.markings: list[Marking] = [(START,)]
        self.edges: list[list[tuple[int, int]]] = []  # by state: transition and next state
        self.before: list[tuple[int, int]] = [(-1, -1)]  # by state: the state and transition that led to it first
        self.fired: set[int] = set()
        self.marked: set[int] = {START}
        self.last: list[int] = []  # states in which nothing can happen
        self.growing: list[int] = []  # states with more tokens than one before them, and otherwise the same
        self.limit = ""  # why exploration stopped
        self._reduces = reduces
        self._relations = _Relations(net)
        self._explore(clock, most_states, most_seconds)
        self.edges += [[] for _ in range(len(self.markings) - len(self.edges))]

    @property
    def is_complete(self) -> bool:
        return not self.limit

    def way_to(self, state: int) -> list[int]:
        """The transitions that lead to a state."""
        way: list[int] = []
        while state > 0:
            state, transition = self.before[state]
            way.append(transition)
        return way[::-1]

    def _explore(self, clock: Callable[[], float], most_states: int, most_seconds: float) -> None:
        known: dict[Marking, int] = {self.markings[0]: 0}
        stop = clock() + most_seconds
        state = tokens = 0
        while state < len(self.markings):
            if clock() > stop:
                self.limit = f"{most_seconds:g} seconds"
                return
            marking = self.markings[state]
            pay(_PRICE * (1 + len(marking)))
            following: list[tuple[int, int]] = []
            self.edges.append(following)
            if self._grows(state, marking):
                self.growing.append(state)
                state += 1
                continue
            chosen = self._relations.chosen(marking, reduces=self._reduces)
            if self._relations.is_void(marking):
                chosen = []
            elif not chosen:
                self.last.append(state)
            for index in chosen:
                after = _fire(self.net.transitions[index], marking)
                target = known.get(after)
                if target is None:
                    tokens += len(after)
                    if len(self.markings) >= most_states or tokens > MOST_TOKENS:
                        is_wide = len(self.markings) < most_states
                        self.limit = f"{MOST_TOKENS:,} tokens" if is_wide else f"{most_states:,} states"
                        return
                    target = known[after] = len(self.markings)
                    self.markings.append(after)
                    self.before.append((state, index))
                    self.marked.update(after)
                self.fired.add(index)
                following.append((index, target))
            state += 1

    def _grows(self, state: int, marking: Marking) -> bool:
        """Whether a state before this one had the same tokens, and fewer of a place that it has several of."""
        if len(set(marking)) == len(marking):
            return False
        own = Counter(marking)
        while state > 0:
            state = self.before[state][0]
            earlier = self.markings[state]
            pay(_PRICE * len(earlier))
            if len(earlier) < len(marking):
                held = Counter(earlier)
                if held <= own and any(own[place] > count for place, count in held.items()):
                    return True
        return False


def _fire(transition: NetTransition, marking: Marking) -> Marking:
    tokens = list(marking)
    for place in transition.takes:
        tokens.remove(place)
    for place in transition.puts:
        insort(tokens, place)
    return tuple(tokens)


class _Relations:
    """Which transitions concern each other."""

    def __init__(self, net: Net) -> None:
        self.transitions = net.transitions
        count = len(net.owners)
        self.takers: list[list[int]] = [[] for _ in range(count)]
        self.readers: list[list[int]] = [[] for _ in range(count)]
        self.makers: list[list[int]] = [[] for _ in range(count)]
        self.hindered: list[list[int]] = [[] for _ in range(count)]
        for index, transition in enumerate(net.transitions):
            for lists, places in (
                (self.takers, transition.takes),
                (self.readers, transition.reads),
                (self.makers, transition.puts),
                (self.hindered, transition.unless),
            ):
                for place in places:
                    lists[place].append(index)
        self._conflicts: dict[int, frozenset[int]] = {}
        self._void = net.void

    def is_void(self, marking: Marking) -> bool:
        """Whether a token is where it contradicts what was assumed, and cannot leave."""
        present = set(marking)
        return any(
            not any(self._is_possible(self.transitions[index], present) for index in self.takers[place])
            for place in self._void & present
        )

    def chosen(self, marking: Marking, *, reduces: bool) -> list[int]:
        """The transitions to follow from a marking: all that can happen, or enough of them."""
        present = set(marking)
        possible = list(self._possible(present))
        ordinary = [index for index in possible if not self.transitions[index].is_last]
        if not ordinary:
            return possible
        if not reduces or len(ordinary) == 1 or self._is_one_choice(ordinary):
            return ordinary
        enabled = set(ordinary)
        best = ordinary
        for seed in ordinary[:_SEEDS]:
            closed = [index for index in self._closure(seed, present, enabled) if index in enabled]
            if len(closed) < len(best):
                best = sorted(closed)
                if len(best) == 1:
                    break
        return best

    def _is_one_choice(self, possible: list[int]) -> bool:
        """Whether they are ways to use one and the same token, and nothing else is at work."""
        takes = self.transitions[possible[0]].takes
        return all(self.transitions[index].takes == takes for index in possible)

    def _possible(self, present: set[int]) -> Iterator[int]:
        for place in sorted(present):
            for index in self.takers[place]:
                transition = self.transitions[index]
                if transition.takes[0] == place and transition.is_followed and self._is_possible(transition, present):
                    yield index

    def _is_possible(self, transition: NetTransition, present: set[int]) -> bool:
        return (
            present.issuperset(transition.takes)
            and present.issuperset(transition.reads)
            and present.isdisjoint(transition.unless)
        )

    def _closure(self, seed: int, present: set[int], enabled: set[int]) -> set[int]:
        closed = {seed}
        pending = [seed]
        while pending:
            index = pending.pop()
            pay(_PRICE)
            for other in self._conflicting(index) if index in enabled else self._causes(index, present):
                if other not in closed:
                    closed.add(other)
                    pending.append(other)
        return closed

    def _conflicting(self, index: int) -> frozenset[int]:
        """Those that this one may prevent, or that may prevent this one."""
        known = self._conflicts.get(index)
        if known is None:
            transition = self.transitions[index]
            results: set[int] = set()
            for place in transition.takes:
                results.update(self.takers[place], self.readers[place])
            for place in transition.reads:
                results.update(self.takers[place])
            for place in transition.puts:
                results.update(self.hindered[place])
            for place in transition.unless:
                results.update(self.makers[place])
            known = self._conflicts[index] = frozenset(results)
        return known

    def _causes(self, index: int, present: set[int]) -> Iterable[int]:
        """One of the reasons why it cannot happen now: those that would remove it."""
        transition = self.transitions[index]
        for place in (*transition.takes, *transition.reads):
            if place not in present:
                return self.makers[place]
        for place in transition.unless:
            if place in present:
                return self.takers[place]
        return ()  # it is a last one: it waits for everything
