"""Lost connections, restarts and late owners on PostgreSQL: nothing is lost, doubled or written by who may not."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from perdure.kernel import inputs as i
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.json_values.values import RunId, digest
from perdure.kernel.outcomes import Status, Succeeded
from perdure.stores.commit_types import (
    Committed,
    CommitUnknown,
    Fenced,
    Message,
    RequestedPermit,
    RunSummary,
    TaskOffer,
    Transition,
)
from perdure.stores.errors import StoreUnreachable
from perdure.stores.pool_tasks import LeaseRequest
from perdure.stores.postgres.database import PostgresSettings
from perdure.stores.postgres.session import Session
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import ResourceWrite
from perdure.testing.transitions import created
from tests.postgres import Server, own_server
from tests.stores.cutting import Proxy, proxy

T = TypeVar("T")

A = RunId("a")
NOW = 1_000


@pytest.fixture
def url(postgres_server: Callable[[int], Server]) -> Iterator[str]:
    with postgres_server(18).database() as address:
        parameters = conninfo_to_dict(address)
        yield f"postgresql://postgres@{parameters['host']}:{parameters['port']}/{parameters['dbname']}"


@pytest.fixture
def cutting(url: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy, and the address of the database behind it."""
    head, _, database = url.rpartition("/")
    with proxy(int(head.rpartition(":")[2])) as faulty:
        yield faulty, f"postgresql://postgres@127.0.0.1:{faulty.port}/{database}"


def opened(url: str, **settings: Any) -> PostgresStore:
    return PostgresStore(url, lambda: NOW, settings=PostgresSettings(**settings))


def query(url: str, text: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(text, values)
        return done.fetchall() if done.description else []


async def somebody_waits(locking: psycopg.Connection[Any]) -> None:
    """Until a lock of this database is waited for."""
    waiting = "SELECT 1 FROM pg_locks JOIN pg_database ON oid = database WHERE datname = current_database()"
    async with asyncio.timeout(60):
        while not locking.execute(f"{waiting} AND NOT granted").fetchall():
            await asyncio.sleep(0.01)


async def insist(store: PostgresStore, change: Transition) -> None:
    """Commit as the engine does: after an unknown end look at what is there, and only then try again."""
    for _ in range(5):
        answer = await store.commit([change])
        if isinstance(answer, Committed):
            return
        assert isinstance(answer, CommitUnknown), answer
        await store.reopen()
        rows = await store.history(change.run)
        if rows and rows[-1][0] >= change.seq:
            return
    raise AssertionError("it was never committed")


# Commits of unknown end (invariant 2).


@pytest.mark.parametrize("moment", ["before it arrives", "before it is answered"])
@pytest.mark.parametrize("word", [b"INSERT INTO log", b"COMMIT"])
async def test_a_connection_lost_in_a_commit_leaves_its_end_unknown(
    cutting: tuple[Proxy, str], word: bytes, moment: Any
) -> None:
    """Invariant 2: the request was lost, or its answer was; in one statement, or in a transaction's COMMIT."""
    gate, address = cutting
    store = opened(address)
    home = await store.claim()
    await insist(store, created("a", home))
    permits = [RequestedPermit("scope", 1, 0, 1, 1)] if word == b"COMMIT" else []
    change = Transition(A, home, 2, row=b"second", permits_asked=permits)
    gate.cut(word, moment)

    assert isinstance(await store.commit([change]), CommitUnknown)
    assert gate.cuts == 1

    await store.reopen()
    was_written = moment == "before it is answered"
    assert await store.history(A) == [(1, b"first"), (2, b"second")][: 2 if was_written else 1]
    if not was_written:
        await insist(store, change)
    await insist(store, Transition(A, home, 3, row=b"third"))
    assert await store.history(A) == [(1, b"first"), (2, b"second"), (3, b"third")]
    assert len(await store.inbox([home], 10)) == bool(permits)
    await store.close()


async def test_a_statement_of_a_lost_connection_that_comes_late_writes_nothing(url: str) -> None:
    """It may still be on its way to the server when the run has been folded anew: it carries an older epoch."""
    store = opened(url)
    home = await store.claim()
    await insist(store, created("a", home))
    late = (store._lease_of_us.server, store._epoch)
    await store.reopen()
    lost = store._database.connect("late")  # the lost one itself was ended
    answer = store._writer.write(lost, [Transition(A, home, 3, row=b"other")], late, NOW)

    assert isinstance(answer, Fenced)
    assert await store.history(A) == [(1, b"first")]
    await insist(store, Transition(A, home, 2, row=b"second"))
    lost.close()
    await store.close()


async def test_a_commit_without_an_answer_is_unknown_after_a_leases_time(url: str) -> None:
    """Somebody keeps a row locked that the commit needs: it does not wait longer than it is worth."""
    store = opened(url, lease=1.0)
    home = await store.claim()
    await insist(store, created("a", home))
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE perdure.log IN ACCESS EXCLUSIVE MODE")
        answer = await asyncio.wait_for(store.commit([Transition(A, home, 2, row=b"x")]), 60)
        assert isinstance(answer, CommitUnknown | Fenced)
        assert await asyncio.wait_for(store.rejoin(), 60) == [home], "what is left of it is ended, not waited for"
    assert await store.history(A) == [(1, b"first")]
    await store.close()


async def test_the_event_loop_waits_a_moment_only_for_a_database_that_stalls(url: str) -> None:
    """The thread waits on; who wants to write next waits for its turn."""
    store = opened(url)
    home = await store.claim()
    await insist(store, created("a", home))
    await insist(store, Transition(A, home, 2, row=b"second"))
    await insist(store, Transition(A, home, 3, row=b"third"))
    store._cost = 0.0
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE perdure.log IN ACCESS EXCLUSIVE MODE")
        began = time.perf_counter()
        answer = store.commit_at_once([Transition(A, home, 4, row=b"fourth")])
        assert time.perf_counter() - began < 30
        assert isinstance(answer, Awaitable)
        assert store.commit_at_once([Transition(A, home, 5, row=b"fifth")]) is None
        waiting = asyncio.ensure_future(answer)
        following = asyncio.ensure_future(store.commit([Transition(A, home, 5, row=b"fifth")]))
        await somebody_waits(other)
        assert not waiting.done() and not following.done()

    assert isinstance(await waiting, Committed)
    assert isinstance(await following, Committed)
    assert [seq for seq, _ in await store.history(A)] == [1, 2, 3, 4, 5]
    await store.close()


async def test_closing_does_not_wait_for_a_database_that_does_not_answer(url: str) -> None:
    store = opened(url)
    await store.claim()
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE perdure.runs IN ACCESS EXCLUSIVE MODE")
        looking = asyncio.ensure_future(store.find(A))
        await somebody_waits(other)
        await asyncio.wait_for(asyncio.to_thread(store.abandon), 60)
    with pytest.raises(StoreUnreachable):
        await looking


# The fence (invariant 21).


async def test_an_owner_whose_row_was_taken_over_writes_nothing_although_its_transaction_was_open(url: str) -> None:
    """Invariant 21: the successor waits for, or ends, what is under way; it never writes behind it."""
    late, successor = opened(url), opened(url)
    home = await late.claim()
    await insist(late, created("a", home))
    session, lease = late._write_thread.session, late._lease_of_us
    assert session is not None
    lease.end()  # it fell silent
    session.execute("BEGIN")
    session.execute(f"SELECT 1 FROM servers WHERE id = {lease.server} FOR KEY SHARE")
    session.execute("INSERT INTO log SELECT number, 2, 'late' FROM runs WHERE id = 'a'")
    query(url, "UPDATE perdure.servers SET until = 0 WHERE id = %s", lease.server)
    new_home = await successor.claim()
    for _ in range(50):
        if await successor.move([A], new_home):
            break

    with pytest.raises(Exception, match=r"closed|terminat|lost"):
        session.execute("COMMIT")
    assert isinstance(await late.commit([Transition(A, home, 3, row=b"late")]), Fenced)
    assert await successor.history(A) == [(1, b"first")]
    await insist(successor, Transition(A, new_home, 2, row=b"in time"))
    await late.close()
    await successor.close()


async def test_a_take_over_waits_for_a_commit_that_is_under_way(url: str) -> None:
    """Invariant 21: what was locked before the take-over counts, and the successor sees it."""
    owner = opened(url)
    home = await owner.claim()
    await insist(owner, created("a", home))
    server = owner._lease_of_us.server
    with psycopg.connect(url) as committing:
        committing.execute("SELECT 1 FROM perdure.servers WHERE id = %s FOR KEY SHARE", (server,))
        committing.execute("INSERT INTO perdure.log SELECT number, 2, 'x' FROM perdure.runs WHERE id = 'a'")
        taking = threading.Thread(target=query, args=(url, "DELETE FROM perdure.servers WHERE id = %s", server))
        taking.start()
        taking.join(0.3)
        assert taking.is_alive(), "it waits"
        query(url, f"UPDATE perdure.servers SET until = until + 1 WHERE id = {server + 1}")  # others are not held up
        committing.commit()
        taking.join(10)
    assert isinstance(await owner.commit([Transition(A, home, 3, row=b"late")]), Fenced)
    await owner.close()


async def test_renewal_does_not_wait_for_a_commit(url: str) -> None:
    """Invariant 22."""
    owner = opened(url)
    await owner.claim()
    server = owner._lease_of_us.server
    with psycopg.connect(url) as committing, psycopg.connect(url, autocommit=True) as renewing:
        committing.execute("SELECT 1 FROM perdure.servers WHERE id = %s FOR KEY SHARE", (server,))
        renewing.execute("SET lock_timeout = '1s'")
        renewing.execute("UPDATE perdure.servers SET until = until + 1 WHERE id = %s", (server,))
        with pytest.raises(psycopg.errors.LockNotAvailable):
            renewing.execute("UPDATE perdure.servers SET epoch = epoch + 1 WHERE id = %s", (server,))
    await owner.close()


async def test_past_its_lease_a_commit_is_fenced_without_asking_the_database(url: str) -> None:
    """Invariant 22: by the clock of the machine, counted from before the renewal was sent."""
    store = opened(url, lease=0.6)
    home = await store.claim()
    await insist(store, created("a", home))
    store._lease_of_us.end()
    assert store._write_thread.session is not None
    async with asyncio.timeout(60):
        while not store.is_late:
            await asyncio.sleep(0.02)
    before = store._write_thread.session.round_trips

    assert isinstance(await store.commit([Transition(A, home, 2, row=b"late")]), Fenced)
    assert isinstance(store.commit_at_once([Transition(A, home, 2, row=b"late")]), Fenced | None)
    assert store._write_thread.session.round_trips == before
    await store.close()


async def test_a_late_owner_that_closes_leaves_nothing_behind_although_nobody_has_taken_over(url: str) -> None:
    """Invariant 21: the last server to leave has no successor that would remove its row."""
    store = opened(url, lease=0.6)
    await store.share()
    store._lease_of_us.end()
    async with asyncio.timeout(60):
        while not store.is_late:
            await asyncio.sleep(0.02)
    held = "SELECT (SELECT count(*) FROM perdure.servers), count(owner) FROM perdure.partitions"
    assert query(url, held) == [(1, 64)]

    await store.close()
    assert query(url, held) == [(0, 0)]


async def test_a_late_owner_that_closes_waits_for_a_silent_database_only_for_a_moment(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.stores.postgres.store.LEAVING", 0.1)
    store = opened(url, lease=0.3)
    await store.share()
    store._lease_of_us.lose()
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE perdure.servers IN ACCESS EXCLUSIVE MODE")

        await asyncio.wait_for(store.close(), 30)
        assert query(url, "SELECT count(owner) FROM perdure.partitions") == [(64,)]


async def test_a_message_that_was_sent_while_its_run_was_moved_is_not_taken_for_decided(url: str) -> None:
    """SRV-033: it lies where its run was until it is forwarded; who waits for its answer waits for that too."""
    store = opened(url)
    await store.share()
    await insist(store, created("a", 1))
    sent = await store.send(Message(A, NOW, b"claim"))
    assert sent is not None
    query(url, "UPDATE perdure.runs SET partition = 2")  # by somebody who did not see the message yet

    assert await store.messages(A) == []
    assert await store.is_undecided(sent)
    await store.inbox([1], 10)  # which forwards it
    assert [entry.position for entry in await store.messages(A)] == [sent.position]
    assert await store.is_undecided(sent)
    await store.close()


# Everything else goes on.


class Killer:
    """Ends the connection of a session right before the n-th request of every verb, once each."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._requests = 0
        self.fatal = 0
        self.kills = 0
        for name in ("send", "execute", "run_all"):
            self._watch(monkeypatch, name, getattr(Session, name))

    def begin(self) -> None:
        self._requests = 0

    def _watch(self, monkeypatch: pytest.MonkeyPatch, name: str, method: Callable[..., Any]) -> None:
        def watched(session: Session, *arguments: Any) -> Any:
            if threading.current_thread().name != "perdure-lease":
                self._requests += 1
                if self._requests == self.fatal:
                    self.kills += 1
                    self._connection.execute("SELECT pg_terminate_backend(%s, 5000)", (session.pid,))
            return method(session, *arguments)

        monkeypatch.setattr(Session, name, watched)

    def close(self) -> None:
        self._connection.close()


async def day(store: PostgresStore, name: str, begin: Callable[[], None]) -> None:
    """Some of everything a store does; `begin` hears of each verb."""

    async def do(verb: Awaitable[T]) -> T:
        begin()
        return await verb

    home = await do(store.claim())
    run, child = RunId(name), RunId(f"{name}.1")
    blob = digest(b"large")
    start = [Message(child, 5, b"start")]
    await do(insist(store, created(name, home, values=[(blob, b"large")], messages=start)))
    (message,) = await do(store.inbox([home], 10))
    birth = created(child, home, parent=run, consumes=[message.position], borrowed_values=[(run, blob)])
    await do(insist(store, birth))
    asks = [RequestedPermit(f"scope {name}", 1, 0, 1, 1)]
    await do(insist(store, Transition(run, home, 2, row=b"asks", permits_asked=asks)))
    await do(insist(store, Transition(child, home, 2, row=b"waits", permits_asked=asks)))
    offers = [TaskOffer(1, 1, name, "p", b"do")]
    await do(insist(store, Transition(child, home, 3, row=b"offers", offers=offers)))
    leased = await do(store.lease(LeaseRequest([name], "worker", 5, 2_000)))
    assert [(lease.run, lease.task, lease.delivery, lease.body) for lease in leased] == [(child, 1, 1, b"do")]
    assert (await do(store.renew([lease.lease for lease in leased], 3_000))).lost == frozenset()
    result = Message(child, 5, i.encode(i.TaskResult(1, 1, 1, Succeeded(b"1"))))
    assert await do(store.report(leased[0].lease, result))
    assert await do(store.send(Message(run, 7, b"signal"))) is not None
    entry = ResourceWrite(ResourceKey("Kind", "default", name), name, 1, b"{}", b"", {}, None, 0)
    assert await do(store.write_catalog([entry])) is None
    await do(store.set_limit(f"other {name}", 3))
    over = RunSummary(Status.SUCCEEDED, False, None, 10)
    mail = [delivered.position for delivered in await do(store.inbox([home], 10)) if delivered.message.to == run]
    await do(insist(store, Transition(run, home, 3, row=b"ends", summary=over, consumes=mail, ended=True)))
    await do(insist(store, Transition(child, home, 4, row=b"ends", summary=over, ended=True)))
    assert [stored.row.id for stored in await do(store.load([run, child]))] == [run, child]


def state(url: str, name: str) -> dict[str, Any]:
    """What is in the database, as far as it does not depend on names, numbers and repetition."""
    runs = "SELECT number FROM perdure.runs WHERE id = %s OR id = %s || '.1'"
    return {
        "log": query(url, f"SELECT seq, body FROM perdure.log WHERE run IN ({runs}) ORDER BY run, seq", name, name),
        "values": query(url, f"SELECT count(*) FROM perdure.large_values WHERE run IN ({runs})", name, name),
        "status": query(url, "SELECT status FROM perdure.runs WHERE id = %s OR parent = %s", name, name),
        "permits": query(url, "SELECT run FROM perdure.permits WHERE scope LIKE '%%' || %s", name),
        "tasks": query(url, "SELECT task FROM perdure.tasks WHERE pool = %s", name),
        "letters": query(
            url, "SELECT DISTINCT at, length(body) FROM perdure.inbox WHERE run = %s || '.1' ORDER BY 1, 2", name
        ),
        "entries": query(url, "SELECT generation FROM perdure.editions WHERE uid = %s", name),
    }


async def test_a_connection_may_be_lost_before_any_statement(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads and writes are done again; a commit ends unknown, is looked for, and is made once."""
    killer = Killer(url, monkeypatch)
    plain = opened(url)
    await day(plain, "plain", killer.begin)
    expected = state(url, "plain")
    await plain.close()

    kills, number = -1, 0
    while kills < killer.kills:
        kills, number = killer.kills, number + 1
        store = opened(url)
        name = f"n{number:02}z"
        killer.fatal = number
        await day(store, name, killer.begin)
        killer.fatal = 0
        assert state(url, name) == expected, f"after losing connections at request {number} of each verb"
        await store.close()
    assert number > 8 and kills > 45
    killer.close()


async def test_reads_wait_for_a_database_that_comes_back_and_give_up_when_patience_ends(
    cutting: tuple[Proxy, str],
) -> None:
    gate, address = cutting
    store = opened(address, timeout=1.0)
    home = await store.claim()
    await insist(store, created("a", home))
    gate.is_refusing = True
    gate.cut_all()
    asyncio.get_running_loop().call_later(0.3, setattr, gate, "is_refusing", False)

    assert await store.find(A) is not None

    gate.is_refusing = True
    gate.cut_all()
    with pytest.raises(StoreUnreachable):
        await store.find(A)
    with pytest.raises(StoreUnreachable):
        await store.reopen()
    await store.close()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_restart_of_the_server_stops_nothing(mode: str, own_url: "OwnUrl") -> None:
    """What was committed is there, what was not is made once, and the lease is ours still."""
    server, url = own_url
    store = opened(url)
    home = await store.claim()
    name = f"run-{mode}"
    await insist(store, created(name, home))
    await asyncio.to_thread(server.restart, mode)
    await insist(store, Transition(RunId(name), home, 2, row=b"after"))

    assert await store.history(RunId(name)) == [(1, b"first"), (2, b"after")]
    assert await store.owned([home]) == {home}
    assert not store.is_late
    await store.close()


OwnUrl = tuple[Any, str]


@pytest.fixture(scope="module")
def own_url() -> Iterator[OwnUrl]:
    with own_server(18) as server:
        yield server, f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
