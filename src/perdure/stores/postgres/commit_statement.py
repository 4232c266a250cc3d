"""What a batch of transitions writes, as one SQL statement, and how the answer of that statement is read."""

from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import Any, Protocol

from perdure.kernel.json_values.values import Instant, RunId
from perdure.stores.commit_types import DeliveredMessage, Fenced, Message, Transition
from perdure.stores.postgres.commit_sql import BORN, PARTS, SENT, STAND_WITH_THEIR_RUN, SUMMED, build_statement
from perdure.stores.postgres.fence import Fence
from perdure.stores.postgres.messages import birthplace, delivered
from perdure.stores.postgres.wire import Statement, jsonb


class KnownNumbers(Protocol):
    """What the writer knows of runs and documents, so that a statement looks nothing up."""

    @property
    def numbers(self) -> dict[RunId, int]: ...

    def new_number(self, partition: int) -> int: ...

    def knows(self, program: bytes) -> bool: ...


Row = tuple[Any, ...]
_SORTED_BY: dict[str, Callable[[Row], Any]] = {
    "titled": itemgetter(0, 1, 2),
    "born": itemgetter(1),
    "summed": itemgetter(0),
}


class CommitStatement:
    """What a batch wants written, as one statement."""

    def __init__(self, batch: Sequence[Transition], writer: KnownNumbers, now: Instant) -> None:
        self._batch = batch
        self._writer = writer
        self._rows: dict[str, list[Row]] = {}
        self._messages: list[Message] = []
        self._homes = {change.run: change.partition for change in batch}
        self.born: dict[int, RunId] = {}
        self.ended: list[RunId] = []
        self._answered: list[str] = []  # leases
        self._now = now
        self.programs: dict[bytes, tuple[str, bytes]] = {}
        self._bases: list[tuple[int, int]] = []  # run and last event of the logs that are added to
        for change in batch:
            self._take(change)
        self._take_programs()
        self._take_memories()

    def _add(self, part: str, *row: Any) -> None:
        self._rows.setdefault(part, []).append(row)

    def _take(self, change: Transition) -> None:
        run, new = change.run, change.create
        for digest, language, text in change.programs:
            self.programs[digest] = (language, text)
        if new is None:
            number, fresh = self._writer.numbers[run], 0
        else:
            number = fresh = self._writer.new_number(change.partition)
            self.born[number] = run
            self._take_creation(number, change)
        for position in change.consumes:
            self._add("consumed", change.partition, position, fresh)
        for seq, body in change.inherited_log:
            self._add("logged", number, seq, body, fresh)
        if change.row is not None:
            self._add("logged", number, change.seq, change.row, fresh)
            if change.base is not None:
                self._bases.append((number, change.base))
        if change.snapshot is not None:
            self._add("noted", number, change.seq, change.snapshot, fresh)
        summary = change.summary
        if summary is not None and new is None:
            columns = (summary.status.value, int(summary.has_work), summary.due, summary.ended_at, summary.on_wall)
            labels = None if change.labels is None else jsonb(change.labels)
            self._add("summed", run, *columns, labels, change.program)
            ending = (summary.status.value, summary.ended_at)
            self._add("told_changed", run, change.seq, *ending, self._now, int(change.is_shown))
        elif change.is_shown and new is None:
            self._add("told_changed", run, change.seq, None, None, self._now, 1)
        for digest, text in change.values:
            self._add("valued", number, digest, text, fresh)
        for key, packet in change.stream_rows:
            if packet is None:
                self._add("unstreamed", number, key)
            else:
                self._add("streamed", number, key, packet, fresh)
        for source, value_digest in change.borrowed_values:
            self._add("borrowed", number, source, value_digest, fresh)
        for message in change.messages:
            self._take_message(message, change.partition, fresh)
        if change.offers or change.withdrawn or change.answers or change.recalled:
            self._take_tasks(change, fresh)
        if change.ended and new is None:
            self.ended.append(run)
        for act in change.acts:
            self._add("audited", act.audit.id, act.audit.at, act.audit.run, act.audit.body, fresh)
            if act.key is not None:
                self._add("keyed", *act.key.columns, fresh)

    def _take_creation(self, number: int, change: Transition) -> None:
        new, summary = change.create, change.summary
        assert new is not None and summary is not None
        self._add(
            "born",
            number,
            change.run,
            change.partition,
            new.language,
            new.name,
            new.program,
            new.parent,
            jsonb(new.labels) if new.labels else None,
            new.key,
            summary.status.value,
            int(summary.has_work),
            summary.due,
            new.created_at,
            summary.ended_at,
            summary.on_wall,
            new.namespace,
            int(new.named is not None),
        )
        self._add("told_created", number, change.seq, self._now)
        if new.named is not None:
            self._add("titled", new.language, new.namespace, new.named, change.run)
            self._rows["inherited"] = self._rows["titled"]

    def _take_message(self, message: Message, sender: int, fresh: int) -> None:
        home = self._homes.get(message.to)
        is_known = home is not None
        if home is None:
            home = birthplace(message.to, sender)
        self._add("sent", len(self._messages), message.to, message.at, message.body, home, int(is_known), fresh)
        self._messages.append(message)

    def _take_tasks(self, change: Transition, fresh: int) -> None:
        withdrawn = set(change.withdrawn)
        for offer in change.offers:
            if offer.task in withdrawn or change.ended:
                continue
            about = (change.run, offer.task, offer.delivery, offer.pool, offer.provider, offer.body, offer.namespace)
            if offer.follows:
                before = (offer.number, offer.reported, offer.follows)
                self._add("followed", *about, offer.at, offer.opener, offer.pipeline, *before)
            else:
                self._add("offered", *about, offer.at, offer.opener, offer.pipeline, fresh)
        if not fresh:
            answered = {answer.task for answer in change.answers}
            for answer in change.answers:
                self._answered.append(answer.lease)
                self._add("answered", change.run, answer.task, answer.lease, answer.digest, answer.until)
            for task in sorted(withdrawn - answered):
                self._add("withdrawn", change.run, task)
            for task in change.recalled if change.ended else ():
                if task not in withdrawn:
                    self._add("let_go", change.run, task, change.recalled_until)

    def _take_programs(self) -> None:
        unknown = [digest for digest in sorted(self.programs) if not self._writer.knows(digest)]
        if unknown:
            self._rows["kept"] = [(digest, *self.programs[digest]) for digest in unknown]

    def _take_memories(self) -> None:
        fresh = {run: number for number, run in self.born.items()}
        latest = {
            key.encode(): (memory.value, memory.created_at, memory.expires_at, fresh.get(change.run, 0))
            for change in self._batch
            for key, memory in change.memories
        }
        if latest:
            self._rows["remembered"] = [(key, *latest[key]) for key in sorted(latest)]
            self._forgotten = (self._now, sorted(latest))

    def statement(self, fence: Fence, *, is_guarded: bool) -> tuple[Statement, list[Any]]:
        is_guarded = is_guarded and bool(self.ended)
        values: list[Any] = [*fence]
        if self._bases:
            values.extend(self._bases[0] if len(self._bases) == 1 else zip(*self._bases, strict=True))
        if is_guarded:
            values.append(self.ended)
        parts, singles = list[str](), list[str]()
        for name in PARTS:  # in the order in which locks are taken
            if name == "used" and "kept" in self._rows:
                values.append([row[0] for row in self._rows["kept"]])
            elif name == "finished" and self.ended:
                values += [self.ended, self._answered, [row[0] for row in self._rows.get("let_go", ())]]
            elif name == "forgotten" and "remembered" in self._rows:
                values.extend(self._forgotten)
            elif name in self._rows:
                rows = self._rows[name]
                if len(rows) > 1 and name in _SORTED_BY:
                    rows.sort(key=_SORTED_BY[name])
                columns: list[Any] = list(zip(*rows, strict=True)) if len(rows) > 1 else list(rows[0])
                if name in STAND_WITH_THEIR_RUN and not self.born:
                    columns.pop()
                values.extend(columns)
                if len(rows) == 1:
                    singles.append(name)
            else:
                continue
            parts.append(name)
        return build_statement(tuple(parts), frozenset(singles), is_guarded, min(len(self._bases), 2)), values

    def read(self, answers: Sequence[Row]) -> "WriteResult | Fenced | None":
        """What the statement says it did; None when it did nothing, because a run that ends holds permits."""
        is_ours, is_written = False, False
        created: set[int] = set()
        positions: list[tuple[int, int]] = []
        summed = None
        for kind, first, second in answers:
            match kind:
                case 0:
                    is_ours, is_written = bool(first), bool(second)
                case _ if kind == BORN:
                    created.add(first)
                case _ if kind == SENT:
                    positions.append((first, second))
                case _ if kind == SUMMED:
                    summed = first
        if not is_ours:
            return Fenced(sorted({change.partition for change in self._batch}))
        if not is_written:
            return None
        if summed is not None and summed != len(self._rows["summed"]):
            raise LookupError("a run was removed while it was being decided")
        numbers = {run: number for number, run in self.born.items() if number in created}
        refused = {run for number, run in self.born.items() if number not in created}
        return WriteResult(numbers, refused, delivered(positions, self._messages), self.programs)


class WriteResult:
    """What the statement of a batch has written."""

    def __init__(
        self,
        numbers: dict[RunId, int],
        refused: set[RunId],
        delivered: list[DeliveredMessage],
        programs: Collection[bytes],
    ) -> None:
        self.numbers = numbers
        self.refused = refused
        self.delivered = delivered
        self.programs = programs
