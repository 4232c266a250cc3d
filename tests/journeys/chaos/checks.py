"""What must hold after the chaos. Each check returns one sentence per broken promise, and nothing if all is well.

The checks read the log, what the receiver saw, and the orders;
they ask no engine.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.engine.client import Client
from perdure.engine.runs import run_views
from perdure.kernel import events as e
from perdure.kernel.codec import decode_turns, encode_snapshot, fold
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId
from perdure.stores.protocol import RunFilter, RunRow, StoredRun
from tests.journeys.chaos.cluster import Life
from tests.journeys.chaos.receiver import Call, Receiver
from tests.journeys.chaos.workload import Order, Word, essence

NEAR: Instant = 250_000
"""Microseconds by which the counts of two processes may differ: each knows the store's clock as well as a busy database
has answered. What was given away begins again much later, when a lease is over."""


@dataclass(frozen=True)
class Recorded:
    """One run as the store has it."""

    row: RunRow
    events: list[tuple[Instant, e.Event]]
    stored: StoredRun
    folded: Execution
    shown: Any


@dataclass(frozen=True)
class Ends:
    """How every order ended, and what was charged for it."""

    results: Mapping[str, Any]  # by token
    charged: Counter[str]  # by what it was for

    def of(self, orders: Iterable[Order], examples: Mapping[str, str]) -> "Ends":
        """The ends that these orders have if they end as the example of their kind (kind → token) did."""
        results, charged = {}, Counter[str]()
        for order in orders:
            example = examples[order.kind]
            text = jsontext.encode(self.results[example]).decode()
            results[order.token] = jsontext.decode(text.replace(example, order.token).encode())
            for what, times in self.charged.items():
                if what == example or what.startswith(f"{example}/"):
                    charged[what.replace(example, order.token, 1)] += times
        return Ends(results, charged)


async def recorded(client: Client) -> tuple[list[Recorded], list[str]]:
    """All runs, and what is wrong with those that cannot be read."""
    recorded, wrong = [], []
    for row in await client.search(RunFilter()):
        wrong += await numbers_are_wrong(client, row)
        try:
            recorded.append(await _read(client, row))
        except Exception as error:
            wrong.append(f"{row.id}: it cannot be folded: {error!r}")
    return recorded, wrong


async def numbers_are_wrong(client: Client, row: RunRow) -> list[str]:
    """Events are numbered without a gap: none is lost, none is doubled."""
    wrong = []
    last = 0
    dialect = run_views.dialect_of(client.languages, row.language)
    for seq, body in await client.store.history(row.id):
        last += sum(len(turn) for _, turn in decode_turns(dialect, body))
        if seq != last:
            wrong.append(f"{row.id}: a row of the log ends at event {seq}, its events end at {last}")
            last = seq
    return wrong


async def _read(client: Client, row: RunRow) -> Recorded:
    dialect = run_views.dialect_of(client.languages, row.language)
    program = await run_views.program_of(client.store, dialect, row)
    rows = await client.store.history(row.id)
    events = [(at, event) for _, body in rows for at, turn in decode_turns(dialect, body) for event in turn]
    folded = fold(Execution(row.id, dialect, program), rows)
    (stored,) = await client.store.load([row.id])
    return Recorded(row, events, stored, folded, await client.show(row.id))


def ends(orders: Mapping[Order, RunId], runs: Sequence[Recorded], receiver: Receiver) -> Ends:
    by_id = {run.row.id: run for run in runs}
    results = {order.token: essence(order.language, by_id[run].shown) for order, run in orders.items() if run in by_id}
    charged = Counter(call.said["what"] for done in receiver.performed.values() for call in done)
    return Ends(results, charged)


# Results.


def results_differ(expected: Ends, actual: Ends) -> Iterator[str]:
    """Every run ended with the Result of a fault-free run, and so did what it did outside."""
    for token in sorted(expected.results.keys() | actual.results.keys()):
        ending, got = expected.results.get(token, "no such run"), actual.results.get(token, "no such run")
        if ending != got:
            yield f"{token}: without faults it ends as {ending}, here as {got}"
    for what in sorted(expected.charged.keys() | actual.charged.keys()):
        if expected.charged[what] != actual.charged[what]:
            yield f"{what}: charged {actual.charged[what]} times instead of {expected.charged[what]}"


# The log.


async def log_is_broken(client: Client, run: Recorded) -> list[str]:
    """The fold of the log is what the store says of the run, and it began and ended once."""
    wrong = []
    dialect = run_views.dialect_of(client.languages, run.row.language)
    from_snapshot = await run_views.fold_stored(client.store, run.stored, dialect, run.folded.program)
    if encode_snapshot(from_snapshot) != encode_snapshot(run.folded):
        wrong.append(f"{run.row.id}: its snapshot and the fold of its log differ")
    state = run.folded.state
    if (state.status, state.ended_at) != (run.row.status, run.row.ended_at):
        wrong.append(f"{run.row.id}: its row says {run.row.status.value}, its log {state.status.value}")
    counts = Counter(type(event).__name__ for _, event in run.events)
    for name in ("RunStarted", "RunEnded"):
        if counts[name] != 1:
            wrong.append(f"{run.row.id}: {name} is recorded {counts[name]} times")
    return wrong


def children_are_wrong(runs: Sequence[Recorded]) -> Iterator[str]:
    """Every child that was started was born once, and every end was told once."""
    born = {run.row.id for run in runs}
    for run in runs:
        started = [event.child for _, event in run.events if isinstance(event, e.ChildStarted)]
        ended = [event.child for _, event in run.events if isinstance(event, e.ChildEnded)]
        if len(set(started)) != len(started) or len(set(ended)) != len(ended):
            yield f"{run.row.id}: a child was started or ended twice"
        for child in started:
            if run.folded.child_id(child) not in born:
                yield f"{run.row.id}: its child {child} was never born"


# Words.


def words_are_lost(acknowledged: Iterable[tuple[RunId, Word]], runs: Sequence[Recorded]) -> Iterator[str]:
    """What was acknowledged counts, or the log says why it does not."""
    heard = {run.row.id: {_word(event) for _, event in run.events} for run in runs}
    for run, word in acknowledged:
        if (word.kind, word.key) not in heard.get(run, set()):
            yield f"{run}: {word.kind} {word.key!r} was acknowledged, and is neither counted nor declined"


def _word(event: e.Event) -> tuple[str, str] | None:
    match event:
        case e.SignalReceived():
            return "signal", event.key
        case e.Steered():
            return "steer", event.key
        case e.CancelRequested():
            return "cancel", ""
        case e.InputDeclined():
            return event.kind, event.key
        case _:
            return None


# Tasks.


@dataclass
class Task:
    scheduled: e.TaskScheduled
    deliveries: list[int]
    ended_at: Instant | None = None


def tasks_of(run: Recorded) -> tuple[dict[int, Task], list[str]]:
    tasks: dict[int, Task] = {}
    wrong = []
    for at, event in run.events:
        match event:
            case e.TaskScheduled(task):
                if task in tasks:
                    wrong.append(f"{run.row.id}: task {task} is scheduled twice")
                tasks[task] = Task(event, [1])
            case e.TaskRedelivered(task, delivery):
                if tasks[task].ended_at is not None:
                    wrong.append(f"{run.row.id}: task {task} was delivered again after its end")
                if delivery != tasks[task].deliveries[-1] + 1:
                    wrong.append(f"{run.row.id}: task {task} has deliveries {tasks[task].deliveries} and {delivery}")
                tasks[task].deliveries.append(delivery)
            case e.TaskEnded(task):
                if tasks[task].ended_at is not None:
                    wrong.append(f"{run.row.id}: task {task} ended twice")
                tasks[task].ended_at = at
            case _:
                pass
    return tasks, wrong


def tasks_ran_again(runs: Sequence[Recorded], receiver: Receiver, lives: Sequence[Life]) -> Iterator[str]:
    """No finished task runs again: a delivery begins once, and only one that is recorded.

    A process that slept through its own replacement may begin a delivery that was given away meanwhile; nobody can
    keep it from its first instructions after it wakes. Of a process that was not asleep this is a fault.
    """
    by_place: dict[tuple[str, str, int], list[Task]] = defaultdict(list)
    for run in runs:
        tasks, wrong = tasks_of(run)
        yield from wrong
        for task in tasks.values():
            by_place[(run.row.id, task.scheduled.path, task.scheduled.attempt)].append(task)
    processes = {life.pid: life for life in lives}
    begun: Counter[tuple[str, str, int, int]] = Counter()
    for call in receiver.began():
        body = call.said
        place = (body["run"], body["path"], body["attempt"])
        known = by_place.get(place, [])
        if not known:
            yield f"{place}: it ran and is not recorded"
            continue
        begun[(*place, body["delivery"])] += 1
        if begun[(*place, body["delivery"])] > len(known):
            yield f"{place}: delivery {body['delivery']} began twice"
        if not any(body["delivery"] in task.deliveries for task in known):
            yield f"{place}: delivery {body['delivery']} ran and is not recorded"
        if len(known) == 1 and _is_late(call, known[0]) and not _slept(call, processes):
            yield f"{place}: delivery {body['delivery']} began after the task had ended"


def _is_late(call: Call, task: Task) -> bool:
    return task.ended_at is not None and call.recorded_at > task.ended_at + NEAR


def _slept(call: Call, processes: Mapping[int, Life]) -> bool:
    life = processes.get(call.said["process"])
    return life is not None and life.was_paused(life.born_at, call.at)


# Effects.


def effects_ran_again(runs: Sequence[Recorded], receiver: Receiver, lives: Sequence[Life]) -> Iterator[str]:
    """A completed effect never runs again, and the outside saw every key once."""
    processes = {life.pid: life for life in lives}
    completed_at: dict[tuple[str, str], Instant] = {}
    for run in runs:
        claims: dict[str, e.EffectClaimed] = {}
        done: set[str] = set()
        tasks, _ = tasks_of(run)
        for at, event in run.events:
            match event:
                case e.EffectClaimed(key):
                    if key in done:
                        yield f"{run.row.id}: effect {key} was claimed after it was completed"
                    claims[key] = event
                case e.EffectCompleted(key):
                    if key in done:
                        yield f"{run.row.id}: effect {key} was completed twice"
                    done.add(key)
                    completed_at[(run.row.id, tasks[claims[key].task].scheduled.path)] = at
                case _:
                    pass
    performed = set()
    for key, done_calls in receiver.performed.items():
        place = (done_calls[0].said["run"], done_calls[0].said["path"])
        performed.add(place)
        if len(done_calls) != 1:
            yield f"{key}: performed {len(done_calls)} times"
        if place not in completed_at:
            yield f"{key}: performed outside and not recorded as completed"
    for place in completed_at.keys() - performed:
        yield f"{place}: recorded as completed and never performed"
    for call in receiver.charges():
        done_at = completed_at.get((call.said["run"], call.said["path"]))
        if done_at is not None and call.recorded_at > done_at + NEAR and not _slept(call, processes):
            yield f"{call.said['key']}: tried again after it was completed"


# What is left over.


async def left_over(client: Client, runs: Sequence[Recorded], partitions: Sequence[int]) -> list[str]:
    """No message, no work and no open run is left."""
    wrong = [
        f"a message to {delivered.message.to} is left" for delivered in await client.store.inbox(partitions, 1_000)
    ]
    for run in runs:
        if not run.row.status.is_final:
            wrong.append(f"{run.row.id}: {run.row.status.value}, not ended")
        if run.row.has_work or run.row.due is not None or run.row.stuck:
            wrong.append(f"{run.row.id}: has_work {run.row.has_work}, due {run.row.due}, stuck {run.row.stuck}")
        state = run.folded.state
        if state.tasks or state.timers or state.children or state.permits:
            wrong.append(f"{run.row.id}: ended with open tasks, timers, children or permits")
    return wrong


@dataclass(frozen=True)
class Verdict:
    """`wrong` is what must not be; the rest says how much was looked at, and how much had to be done again."""

    wrong: list[str]
    runs: int
    events: int
    tasks: int
    redelivered: int
    in_doubt: int  # effects that were claimed again by a later delivery
    words: int  # that were acknowledged
    declined: int  # words that were, and do not count
    charged: int  # losses of a process that a task answers for


async def check_everything(
    client: Client,
    orders: Mapping[Order, RunId],
    words: Sequence[tuple[RunId, Word]],
    expected: Ends,
    receiver: Receiver,
    lives: Sequence[Life],
    partitions: Sequence[int],
) -> Verdict:
    runs, wrong = await recorded(client)
    wrong += [*results_differ(expected, ends(orders, runs, receiver))]
    for run in runs:
        wrong += await log_is_broken(client, run)
    wrong += children_are_wrong(runs)
    wrong += words_are_lost(words, runs)
    wrong += tasks_ran_again(runs, receiver, lives)
    wrong += effects_ran_again(runs, receiver, lives)
    wrong += await left_over(client, runs, partitions)
    happened = Counter(type(event) for run in runs for _, event in run.events)
    claimed = happened[e.EffectClaimed] - happened[e.EffectCompleted] - happened[e.EffectReleased]
    charged = sum(isinstance(event, e.TaskRedelivered) and event.charged for run in runs for _, event in run.events)
    return Verdict(
        wrong,
        len(runs),
        happened.total(),
        happened[e.TaskScheduled],
        happened[e.TaskRedelivered],
        claimed,
        len(words),
        happened[e.InputDeclined],
        charged,
    )
