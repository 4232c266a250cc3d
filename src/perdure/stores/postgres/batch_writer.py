"""One commit. The common one is one statement and one round trip; what must look before it writes is a transaction."""

from collections.abc import Iterable, Sequence
from time import monotonic

from perdure.kernel import inputs
from perdure.kernel.json_values.values import Instant, RunId
from perdure.stores.commit_types import Committed, DeliveredMessage, Fenced, Message, Transition
from perdure.stores.postgres import names, permits
from perdure.stores.postgres.commit_statement import CommitStatement, Row, WriteResult
from perdure.stores.postgres.fence import Fence
from perdure.stores.postgres.messages import delivered, insert_statement
from perdure.stores.postgres.session import BEGIN, COMMIT, Session, Step
from perdure.stores.postgres.wire import INT, INTS, TEXTS, Statement

PARTITION_SHIFT = 40
NUMBERS_AT_ONCE = 64  # as the sequence counts
MOST_NUMBERS_KEPT = 100_000
MOST_PROGRAMS_KEPT = 10_000
PROGRAM_IS_KNOWN = 600.0  # seconds for which a document that was just used needs no look; see `pruning`
MOST_BYTES = 32 * 1024 * 1024  # in one statement

_TAKE_NUMBERS = Statement("SELECT nextval('run_numbers') FROM generate_series(1, {})", INT)
_NUMBERS = Statement("SELECT id, number FROM runs WHERE id = ANY({})", TEXTS)
_STUCK = Statement(
    "UPDATE runs SET stuck = nullif(n.stuck, '') FROM unnest({}, {}) AS n (id, stuck) WHERE runs.id = n.id",
    TEXTS,
    TEXTS,
)
_RECALL = Statement(
    "UPDATE tasks SET recalled = true, state = CASE WHEN state = 'leased' THEN 'leased' ELSE 'lost' END,"
    " until = least(tasks.until, n.until)"
    " FROM unnest({}, {}, {}) AS n (run, task, until) WHERE tasks.run = n.run AND tasks.task = n.task"
    " RETURNING tasks.run, tasks.task, tasks.delivery, tasks.state",
    TEXTS,
    INTS,
    INTS,
)


class BatchWriter:
    """Writes transitions and tells of all messages, whoever they are for.

    Keeps the short numbers of runs it met, so that a step looks nothing up.
    """

    def __init__(self) -> None:
        self.numbers: dict[RunId, int] = {}
        self._free_numbers: list[int] = []
        self._blocks = 1
        self._programs: dict[bytes, float] = {}

    def learn(self, numbers: dict[RunId, int]) -> None:
        if len(self.numbers) >= MOST_NUMBERS_KEPT:
            self.numbers.clear()
        self.numbers.update(numbers)

    def forget(self) -> None:
        """After a loss or a removal: what we know may not be so any more."""
        self.numbers.clear()
        self._programs.clear()

    def knows(self, program: bytes) -> bool:
        used_at = self._programs.get(program)
        return used_at is not None and monotonic() - used_at < PROGRAM_IS_KNOWN

    def new_number(self, partition: int) -> int:
        return partition << PARTITION_SHIFT | self._free_numbers.pop()

    def is_ready_for(self, batch: Sequence[Transition]) -> bool:
        """Whether the batch is one statement, and everything it needs is known."""
        births = 0
        for change in batch:
            if change.permits_asked or change.permits_released or change.recalled or change.stuck is not None:
                return False
            if change.disowned or change.name_claims:
                return False
            if change.create is not None:
                births += 1
            elif change.run not in self.numbers:
                return False
        return births <= len(self._free_numbers) and len(_pieces(batch)) == 1

    def write(
        self,
        session: Session,
        batch: Sequence[Transition],
        fence: Fence,
        now: Instant,
    ) -> Committed | Fenced:
        is_ready = self.is_ready_for(batch)
        if not is_ready:
            self._prepare(session, batch)
            is_ready = self.is_ready_for(batch)
        if is_ready:
            commit_statement = CommitStatement(batch, self, now)
            statement, values = commit_statement.statement(fence, is_guarded=True)
            answer = commit_statement.read(session.run(statement, *values))
            if answer is not None:
                return self.finish(answer)
            self._prepare(session, batch)
        return self._write_in_transaction(session, batch, fence, now)

    def finish(self, answer: WriteResult | Fenced) -> Committed | Fenced:
        if isinstance(answer, Fenced):
            return answer
        self._keep(answer)
        return Committed(frozenset(answer.refused), answer.delivered)

    def _keep(self, answer: WriteResult) -> None:
        self.learn(answer.numbers)
        if answer.programs:
            if len(self._programs) >= MOST_PROGRAMS_KEPT:
                self._programs.clear()
            for program in answer.programs:
                if not self.knows(program):
                    self._programs[program] = monotonic()

    def _prepare(self, session: Session, batch: Sequence[Transition]) -> None:
        """Numbers for runs that are new, and of those that are not."""
        births = sum(change.create is not None for change in batch)
        if births > len(self._free_numbers):
            blocks = max(self._blocks, -(-births // NUMBERS_AT_ONCE))
            self._blocks = min(self._blocks * 2, NUMBERS_AT_ONCE)
            for (last,) in session.run(_TAKE_NUMBERS, blocks):
                self._free_numbers.extend(range(last, last - NUMBERS_AT_ONCE, -1))
        unknown = [change.run for change in batch if change.create is None and change.run not in self.numbers]
        if unknown:
            self.learn({RunId(id): number for id, number in session.run(_NUMBERS, unknown)})
            for run in unknown:
                if run not in self.numbers:
                    raise LookupError(f"run {run} was removed while it was being decided")

    def _write_in_transaction(
        self, session: Session, batch: Sequence[Transition], fence: Fence, now: Instant
    ) -> Committed | Fenced:
        """What claims names that others have is left out, one after the other."""
        refused: set[RunId] = set()
        rivals: dict[RunId, names.Rivals] = {}
        remaining = list(batch)
        while remaining:
            answer = self._transact(session, remaining, fence, now)
            if isinstance(answer, Fenced):
                return answer
            if isinstance(answer, Committed):
                return Committed(answer.refused | refused, answer.delivered, rivals)
            refused |= answer.refused
            rivals |= answer.rivals
            remaining = [change for change in remaining if change.run not in refused and change.run not in rivals]
            self._prepare(session, remaining)
        return Committed(frozenset(refused), (), rivals)

    def _transact(
        self, session: Session, batch: Sequence[Transition], fence: Fence, now: Instant
    ) -> Committed | Fenced | names.RefusedNames:
        """A transaction of a few trips. Its own part goes with the first one, unless runs may turn out to exist."""
        claiming = {change.run for change in batch if change.name_claims}
        commit_statements = [CommitStatement(piece, self, now) for piece in _pieces(batch)]
        writes = [commit_statement.statement(fence, is_guarded=False) for commit_statement in commit_statements]
        first: list[Step] = [*writes] if claiming else [(BEGIN, ()), *writes]
        rest = None if any(change.create is not None for change in batch) else PermitSteps(batch, now)
        try:
            if claiming:
                session.run(BEGIN)
                if (vain := names.claim(session, batch)) is not None:
                    session.roll_back()
                    return vain
            answers = session.run_all([*first, *(rest.steps if rest else ())])
            done: list[WriteResult] = []
            for statement, answer in zip(commit_statements, answers[len(first) - len(writes) :], strict=False):
                result = statement.read(answer)
                assert result is not None
                if isinstance(result, Fenced):
                    session.roll_back()
                    return Fenced(sorted({change.partition for change in batch}))
                done.append(result)
            refused = frozenset(run for part in done for run in part.refused)
            if claiming & refused:  # what they have claimed is not theirs
                session.roll_back()
                return names.RefusedNames(refused & claiming)
            answers = answers[len(first) :]
            if rest is None:
                rest = PermitSteps([change for change in batch if change.run not in refused], now)
                answers = session.run_all(rest.steps) if rest.steps else []
            messages = rest.read(session, answers)
            delivered = [message for part in done for message in part.delivered]
            delivered += _ended(session, rest.last, messages)
        except BaseException:
            session.roll_back()
            raise
        for result in done:
            self._keep(result)
        return Committed(refused, delivered)


class PermitSteps:
    """What only some commits have: runs that are stuck, tasks that are recalled, permits."""

    def __init__(self, changes: Sequence[Transition], now: Instant) -> None:
        self._now = now
        self._permits = permits.PermitSettlement(changes)
        stuck = sorted((change.run, change.stuck) for change in changes if change.stuck is not None)
        recalls = [change for change in changes if change.recalled and not change.ended]
        recalled = [(change.run, task, change.recalled_until) for change in recalls for task in change.recalled]
        self._recalls = bool(recalled)
        self.steps: list[Step] = [
            *([(_RECALL, list(zip(*recalled, strict=True)))] if recalled else ()),
            *self._permits.first,
            *([(_STUCK, list(zip(*stuck, strict=True)))] if stuck else ()),
            *names.kept(changes),
        ]
        self.last: list[Step] = []

    def read(self, session: Session, answers: Sequence[Sequence[Row]]) -> list[tuple[Message, int]]:
        """Messages that follow from the answers, after a look at who gets a permit; `last` is written with them."""
        messages = self._lost(answers[0]) if self._recalls else []
        scopes, granted = self._permits.read(answers[self._recalls :])
        messages += granted
        if scopes:
            (foremost,) = session.run_all([permits.foremost_requests(scopes, self._now)])
            self.last, grant_messages = permits.grants(foremost, self._now)
            messages += grant_messages
        return messages

    def _lost(self, recalled: Iterable[Row]) -> list[tuple[Message, int]]:
        """One that nobody has taken yet is simply lost; one that is leased hears of it with its next heartbeat."""
        messages = []
        for run, task, delivery, state in recalled:
            if state == "lost":
                lost = inputs.TaskLost(task, delivery, "recalled before anyone had taken it")
                messages.append((Message(RunId(run), self._now, inputs.encode(lost)), 0))
        return messages


def _ended(session: Session, last: Sequence[Step], messages: Sequence[tuple[Message, int]]) -> list[DeliveredMessage]:
    """The last trip of a transaction."""
    sends = [insert_statement(messages)] if messages else []
    answers = session.run_all([*last, *sends, (COMMIT, ())])
    return delivered(answers[len(last)], [message for message, _ in messages]) if messages else []


def _pieces(batch: Sequence[Transition]) -> list[Sequence[Transition]]:
    """The batch as statements: one, unless it is very large, or one of its runs borrows from another of them."""
    writers = {change.run for change in batch if change.values or change.borrowed_values}
    borrows = bool(writers) and any(source in writers for change in batch for source, _ in change.borrowed_values)
    sizes = [_size(change) for change in batch]
    if sum(sizes) <= MOST_BYTES and not borrows:
        return [batch]
    pieces: list[list[Transition]] = []
    size = 0
    for change, change_size in zip(batch, sizes, strict=True):
        if not pieces or borrows or size + change_size > MOST_BYTES:
            pieces.append([])
            size = 0
        pieces[-1].append(change)
        size += change_size
    return list(pieces)


def _size(change: Transition) -> int:
    size = len(change.row or b"") + len(change.snapshot or b"")
    for _, text in change.values:
        size += len(text)
    for _, text in change.inherited_log:
        size += len(text)
    for message in change.messages:
        size += len(message.body)
    for _, body in change.stream_rows:
        size += len(body or b"")
    return size
