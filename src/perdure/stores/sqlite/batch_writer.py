"""The statements of one commit. Everything here runs inside a transaction that somebody else began and ends."""

from collections.abc import Collection, Iterable, Sequence

import apsw

from perdure.kernel import inputs
from perdure.kernel.ids import RunName, is_family
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.tasks.permits import PermitRequest, grant
from perdure.stores.access import ActRecord
from perdure.stores.commit_types import Committed, DeliveredMessage, Message, RequestedPermit, Transition
from perdure.stores.errors import NotTheEnd
from perdure.stores.rows import HAS_NO_NAME, RELABEL, SUMMARIZE, elders, encode_labels, may_take
from perdure.stores.sqlite.access import keep_acts
from perdure.stores.sqlite.change_feed import RUN_CHANGED, RUN_CREATED, RUN_MOVED, RUN_SHOWN, RunCountChanges

MOST_NUMBERS_KEPT, FORGOTTEN_AT_ONCE = 100_000, 100

_HAS_NO_NAME = f"SELECT {HAS_NO_NAME.format(elders='?, ?, ?', language='?')}"
_TAKE_OVER = (
    "INSERT INTO names VALUES (?1, ?2, ?3, ?4, NULL)"
    " ON CONFLICT (language, namespace, name) DO UPDATE SET run = ?4, heir = NULL"
)
_KEEP_NAMES = (
    "UPDATE names SET run = ?1, heir = ?2 WHERE run >= ?1 AND run < ?1 || '/' AND (run = ?1 OR run >= ?1 || '.')"
    " AND namespace IS NOT NULL"
)
_LOG = (  # only behind the row that it was decided after: without a number a row is ignored, and counted as missing
    "INSERT OR IGNORE INTO log (run, seq, body) VALUES (?1,"
    " CASE WHEN NOT EXISTS (SELECT 1 FROM log WHERE run = ?1 AND seq > ?4) THEN ?2 END, ?3)"
)

_OFFER = (  # behind what its run has waiting in the pool, and not before what is next there: runs take turns
    "INSERT INTO tasks"
    " (run, task, delivery, pool, provider, state, body, offered_at, namespace, opener, pipeline, turn)"
    " VALUES (?1, ?2, ?3, ?4, ?5, 'ready', ?6, ?7, ?8, ?9, ?10, max("
    "coalesce((SELECT min(turn) FROM tasks WHERE state = 'ready' AND pool = ?4), 0),"
    " coalesce((SELECT max(turn) + 1 FROM tasks WHERE state = 'ready' AND run = ?1), 0)))"
    " ON CONFLICT DO UPDATE SET delivery = excluded.delivery, state = 'ready', worker = NULL, until = NULL,"
    " body = excluded.body, place = 0, machine = '', recalled = 0, turn = excluded.turn, lease = NULL,"
    " offered_at = excluded.offered_at, request = NULL, holder = '', touched = 0, answer = NULL, number = 1,"
    " reported = x'', pipeline = iif(excluded.pipeline = x'', pipeline, excluded.pipeline)"
)
_FOLLOW = (  # the lease of the task before it in its pipeline goes on with it, if it still lasts
    "UPDATE tasks SET state = 'leased', lease = before.lease, worker = before.worker, until = before.until,"
    " holder = before.holder, touched = 1, number = ?3, reported = ?4"
    " FROM (SELECT lease, worker, until, holder, pool FROM tasks WHERE lease = ?5 AND state = 'leased'"
    " AND recalled = 0) AS before"
    " WHERE tasks.run = ?1 AND tasks.task = ?2 AND tasks.pool = before.pool"
)
_ANSWER = (
    "UPDATE tasks SET state = 'answered', answer = ?, until = ?, body = x''"
    " WHERE run = ? AND task = ? AND lease = ? AND state = 'leased'"
)
_RECALL = (
    "UPDATE tasks SET recalled = 1, state = iif(state = 'leased', 'leased', 'lost'), until = min(until, ?)"
    " WHERE run = ? AND task = ? RETURNING state, delivery"
)
_LET_GO = "UPDATE tasks SET recalled = 1, state = 'answered', until = min(until, ?) WHERE run = ? AND state = 'leased'"


class BatchWriter:
    """Writes transitions. Keeps the short numbers of runs it met, so that a step looks nothing up."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._connection = connection
        self._numbers: dict[RunId, int] = {}
        self.sent_to: set[int] = set()  # partitions of others to which this transaction sends messages
        self._counts = RunCountChanges(connection)
        self._feed_until: Instant | None = None  # changes are written until then; None: not read in this transaction

    def forget(self) -> None:
        """After a rollback the numbers given in the transaction mean nothing, and nobody was sent anything."""
        self._numbers.clear()
        self.sent_to.clear()

    def write(self, batch: Sequence[Transition], owned: Collection[int], now: Instant) -> Committed:
        self._feed_until = None
        self._counts.clear()
        refused, programs = set[RunId](), set[bytes]()  # of programs: what this batch has stored
        delivered: list[DeliveredMessage] = []
        scopes: set[str] = set()
        log_rows: list[tuple[int, int, bytes, int | None]] = []
        consumed: list[tuple[int]] = []
        acts: list[ActRecord] = []
        rivals: dict[RunId, dict[tuple[RunName, RunId], RunId]] = {}
        for change in batch:
            if change.name_claims and (rivals_of_run := self._rivals(change)):
                rivals[change.run] = rivals_of_run
                continue
            if new := [row for row in change.programs if row[0] not in programs]:
                self._executemany("INSERT INTO programs VALUES (?, ?, ?) ON CONFLICT DO NOTHING", new)
                programs |= {row[0] for row in new}
            if change.create is not None and not self._create(change, now):
                refused.add(change.run)
                continue
            if change.consumes:
                consumed.extend((position,) for position in change.consumes)
            number = self._number(change.run)
            if change.inherited_log:
                log_rows.extend((number, seq, row, None) for seq, row in change.inherited_log)
            if change.row is not None:
                log_rows.append((number, change.seq, change.row, change.base))
            if change.snapshot is not None:
                self._execute(
                    "INSERT INTO snapshots VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET seq = ?2, body = ?3",
                    (number, change.seq, change.snapshot),
                )
            if change.summary is not None and change.create is None:
                self._summarize(number, change, now)
            elif change.is_shown and change.create is None and self._is_feed_open(now):
                self._execute(RUN_MOVED, (number, now, change.seq))
            if change.stuck is not None:
                self._execute("UPDATE runs SET stuck = nullif(?, '') WHERE number = ?", (change.stuck, number))
            for digest, text in change.values:
                self._execute(
                    "INSERT INTO large_values (run, digest, text) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                    (number, digest, text),
                )
            for source, value_digest in change.borrowed_values:
                self._execute(
                    "INSERT INTO large_values (run, digest, text) SELECT ?1, digest, text FROM large_values"
                    " WHERE run = (SELECT number FROM runs WHERE id = ?2) AND (?3 IS NULL OR digest = ?3)"
                    " ON CONFLICT DO NOTHING",
                    (number, source, value_digest),
                )
            if change.stream_rows:
                self._keep_stream_rows(number, change)
            for message in change.messages:
                delivered.append(self.send(message, change.partition))
            if (ends := change.ended and change.create is None) or change.permits_asked or change.permits_released:
                scopes |= self._permits(change, delivered)
            if change.disowned or change.name_claims:
                self._hand_names_on(change)
            if change.memories:
                self._remember(change, now)
            if change.offers or change.withdrawn or change.recalled or ends:  # a new run has no permits or tasks yet
                self._tasks(change, delivered, now)
            if change.acts:
                acts.extend(change.acts)
        if log_rows:
            before = self._connection.total_changes()
            self._executemany(_LOG, log_rows)
            if self._connection.total_changes() - before != len(log_rows):
                raise NotTheEnd("a run was written to by another process since it was read here")
        if consumed:
            self._executemany("DELETE FROM inbox WHERE position = ?", consumed)
        for scope in sorted(scopes):
            delivered.extend(self.allocate(scope, now))
        if acts:
            keep_acts(self._connection, acts)
        self._counts.write()
        return Committed(frozenset(refused), [message for message in delivered if message.partition in owned], rivals)

    def _create(self, change: Transition, now: Instant) -> bool:
        new, summary = change.create, change.summary
        assert new is not None and summary is not None
        self._execute(
            "INSERT INTO runs (id, partition, language, name, program, parent, labels, key, status, has_work, due,"
            " created_at, ended_at, on_wall, namespace)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (
                change.run,
                change.partition,
                new.language,
                new.name,
                new.program,
                new.parent,
                encode_labels(new.labels),
                new.key,
                summary.status.value,
                summary.has_work,
                summary.due,
                new.created_at,
                summary.ended_at,
                summary.on_wall,
                new.namespace,
            ),
        )
        if not self._connection.changes():
            return False
        number = self._connection.last_insert_rowid()
        if new.named is not None and not self._take_name(RunName(new.language, new.namespace, new.named), change.run):
            self._execute("DELETE FROM runs WHERE number = ?", (number,))
            return False
        if self._is_feed_open(now):
            self._execute(RUN_CREATED, (number, now, change.seq))
        if len(self._numbers) >= MOST_NUMBERS_KEPT:
            self._numbers.clear()
        self._numbers[change.run] = number
        return True

    # Names.

    def _take_name(self, name: RunName, run: RunId) -> bool:
        """False: it is another's."""
        if self._has_no_name(name.language, run):
            return True
        self._execute("INSERT INTO names VALUES (?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING", (*name, run))
        if self._connection.changes():
            return True
        if self._rival(name, run) is not None:
            return False
        self._execute(_TAKE_OVER, (*name, run))
        return True

    def _has_no_name(self, language: str, run: RunId) -> bool:
        above = elders(run)
        return bool(above[0]) and bool(self._execute(_HAS_NO_NAME, (*above, language)).get)

    def _rival(self, name: RunName, run: RunId, disowned: Iterable[RunId] = ()) -> RunId | None:
        """Who has the name, if this run may not; of those who are disowned in this moment it may."""
        row = self._execute("SELECT run, heir FROM names WHERE language = ? AND namespace = ? AND name = ?", name).get
        if row is None or may_take(run, *row) or any(is_family(row[0], other) for other in disowned):
            return None
        holder, heir = row
        return RunId(heir or holder)

    def _rivals(self, change: Transition) -> dict[tuple[RunName, RunId], RunId]:
        """Who has the names that a change claims; empty: it may have them."""
        rivals = {}
        claimed: dict[RunName, RunId] = {}
        for name, child in change.name_claims:
            if self._has_no_name(name.language, child):
                continue
            first = claimed.setdefault(name, child)
            rival = self._rival(name, child, change.disowned) if first == child else first
            if rival is not None:
                rivals[name, child] = rival
        return rivals

    def _hand_names_on(self, change: Transition) -> None:
        for child in change.disowned:
            self._execute(_KEEP_NAMES, (child, change.run))
        for name, child in change.name_claims:
            if not self._has_no_name(name.language, child):
                self._execute(_TAKE_OVER, (*name, child))

    def _number(self, run: RunId) -> int:
        number = self._numbers.get(run)
        if number is None:
            number = self._execute("SELECT number FROM runs WHERE id = ?", (run,)).get
            if number is None:
                raise LookupError(f"run {run} was removed while it was being decided")
            if len(self._numbers) >= MOST_NUMBERS_KEPT:
                self._numbers.clear()
            self._numbers[run] = number
        return number

    def _is_feed_open(self, now: Instant) -> bool:
        """Whether somebody wants to hear of changes: asked once in a transaction, for most stores have nobody."""
        if self._feed_until is None:
            self._feed_until = self._execute("SELECT until FROM feed_state").get
        return self._feed_until > now

    def _summarize(self, number: int, change: Transition, now: Instant) -> None:
        summary = change.summary
        assert summary is not None
        if self._is_feed_open(now):
            statement = RUN_SHOWN if change.is_shown else RUN_CHANGED
            self._execute(statement, (number, now, change.seq, summary.status.value, summary.ended_at))
        if change.was is not summary.status:
            self._counts.add(number, summary.status)
        columns = (summary.status.value, summary.has_work, summary.due, summary.ended_at, summary.on_wall, number)
        self._execute(SUMMARIZE, columns)
        if change.labels is not None:
            self._execute(RELABEL, (encode_labels(change.labels), number))
        if change.program is not None:
            self._execute("UPDATE runs SET program = ? WHERE number = ?", (change.program, number))

    def send(self, message: Message, sender: int) -> DeliveredMessage:
        """A run that does not exist yet (a child about to start) lives where its sender does."""
        home = self._execute("SELECT partition FROM runs WHERE id = ?", (message.to,)).get
        partition = sender if home is None else home
        self._execute(
            "INSERT INTO inbox (partition, run, at, body, is_word) VALUES (?, ?, ?, ?, ?)",
            (partition, message.to, message.at, message.body, message.is_control),
        )
        self.sent_to.update(() if partition == sender else (partition,))
        return DeliveredMessage(self._connection.last_insert_rowid(), partition, message)

    def _keep_stream_rows(self, number: int, change: Transition) -> None:
        gone = [(number, key) for key, body in change.stream_rows if body is None]
        kept = [(number, key, body) for key, body in change.stream_rows if body is not None]
        if gone:
            self._executemany("DELETE FROM stream_rows WHERE run = ? AND key = ?", gone)
        if kept:
            self._executemany(
                "INSERT INTO stream_rows VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET body = excluded.body", kept
            )

    def _remember(self, change: Transition, now: Instant) -> None:
        """Whoever adds to what is remembered also clears some of what has expired."""
        self._execute(
            "DELETE FROM memories WHERE key IN (SELECT key FROM memories WHERE expires_at <= ? LIMIT ?)",
            (now, FORGOTTEN_AT_ONCE),
        )
        self._executemany(
            "INSERT INTO memories VALUES (?1, ?2, ?3, ?4)"
            " ON CONFLICT DO UPDATE SET value = ?2, created_at = ?3, expires_at = ?4",
            [(key, memory.value, memory.created_at, memory.expires_at) for key, memory in change.memories],
        )

    # Permits.

    def _permits(self, change: Transition, delivered: list[DeliveredMessage]) -> set[str]:
        touched: set[str] = set()
        for permit in change.permits_released:
            for (scope,) in self._execute(
                "DELETE FROM permits WHERE run = ? AND permit = ? RETURNING scope", (change.run, permit)
            ):
                touched.add(scope)
        if change.ended:
            for (scope,) in self._execute("DELETE FROM permits WHERE run = ? RETURNING scope", (change.run,)):
                touched.add(scope)
        for request in change.permits_asked:
            capacity = self._capacity(request)
            if capacity is None:
                body = inputs.encode(inputs.PermitGrant(request.permit))
                delivered.append(self.send(Message(change.run, request.asked_at, body), change.partition))
            else:
                self._execute(
                    "INSERT INTO permits VALUES (?, ?, ?, ?, ?, ?, 0, ?)",
                    (
                        request.scope,
                        change.run,
                        request.permit,
                        request.priority,
                        capacity,
                        request.asked_at,
                        request.ageing,
                    ),
                )
                touched.add(request.scope)
        return touched

    def _capacity(self, request: RequestedPermit) -> int | None:
        configured: int | None = self._execute("SELECT capacity FROM limits WHERE scope = ?", (request.scope,)).get
        limits = [limit for limit in (configured, request.limit) if limit is not None]
        return min(limits) if limits else None

    def allocate(self, scope: str, now: Instant) -> list[DeliveredMessage]:
        """Give the free places of a scope away. The write transaction is the lock."""
        capacity = self._execute("SELECT min(capacity) FROM limits WHERE scope = ?", (scope,)).get
        if capacity is None:
            capacity = self._execute("SELECT capacity FROM permits WHERE scope = ? LIMIT 1", (scope,)).get
        if capacity is None:
            return []
        held = self._execute("SELECT count(*) FROM permits WHERE scope = ? AND granted = 1", (scope,)).get
        # Only where waiting counts is the order a matter of the moment, and all who wait have to be looked at.
        some_age = "SELECT EXISTS (SELECT 1 FROM permits WHERE scope = ? AND granted = 0 AND ageing > 0)"
        place = (
            "priority + iif(ageing > 0, (?3 - asked_at) / ageing, 0)" if self._execute(some_age, (scope,)).get else ""
        )
        waiting = self._execute(
            "SELECT run, permit, priority, asked_at, ageing FROM permits WHERE scope = ?1 AND granted = 0"
            f" ORDER BY {place or 'priority'} DESC, asked_at, run, permit LIMIT ?2",
            (scope, max(0, capacity - held), now) if place else (scope, max(0, capacity - held)),
        )
        delivered = []
        for request in grant(capacity, held, [PermitRequest(*row) for row in waiting], now):
            self._execute(
                "UPDATE permits SET granted = 1 WHERE scope = ? AND run = ? AND permit = ?",
                (scope, request.run, request.permit),
            )
            body = inputs.encode(inputs.PermitGrant(request.permit))
            delivered.append(self.send(Message(request.run, max(now, request.asked_at), body), 0))
        return delivered

    # Tasks for other processes.

    def _tasks(self, change: Transition, delivered: list[DeliveredMessage], now: Instant) -> None:
        for offer in change.offers:
            about = (change.run, offer.task, offer.delivery, offer.pool, offer.provider)
            self._execute(_OFFER, (*about, offer.body, offer.at, offer.namespace, offer.opener, offer.pipeline))
            if offer.follows:
                self._execute(_FOLLOW, (change.run, offer.task, offer.number, offer.reported, offer.follows))
        answered = set()
        for answer in change.answers:
            self._execute(_ANSWER, (answer.digest, answer.until, change.run, answer.task, answer.lease))
            if self._connection.changes():
                answered.add(answer.task)
        for task in sorted(set(change.withdrawn) - answered):
            query = "DELETE FROM tasks WHERE run = ? AND task = ? AND state <> 'answered'"
            self._execute(query, (change.run, task))
        if change.ended:  # whoever has a lease hears of it until then; the rest is gone
            if change.recalled:
                self._execute(_LET_GO, (change.recalled_until, change.run))
            self._execute("DELETE FROM tasks WHERE run = ? AND state <> 'answered'", (change.run,))
            return
        for task in change.recalled:
            # One that nobody has taken yet is simply lost; one that is leased hears of it with its next heartbeat.
            row = self._execute(_RECALL, (change.recalled_until, change.run, task)).get
            if row is not None and row[0] == "lost":
                body = inputs.encode(inputs.TaskLost(task, row[1], "recalled before anyone had taken it"))
                delivered.append(self.send(Message(change.run, now, body), change.partition))
