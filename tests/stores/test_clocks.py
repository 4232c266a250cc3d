"""Time in a store (invariant 30): clocks on walls are set, machines sleep and restart; the store's clock counts on.

Nobody may set the clock of the machine that tests run on: `perdure.stores.clocks.sources` is replaced, in this process
or in the first line of another one, and on PostgreSQL the function `perdure.wall`.
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from perdure.engine.clock import SystemClock
from perdure.engine.settings import Settings
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.stores.clocks import ClockSources, format_instant, sources
from perdure.stores.commit_types import Committed, Message, TaskOffer
from perdure.stores.errors import StoreClockBehind
from perdure.stores.pool_tasks import LeaseRequest
from perdure.stores.postgres.clock_offset import DatabaseClock
from perdure.stores.postgres.database import PostgresSettings
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.transitions import created
from perdure.wiring import Engine, Observer
from tests.engine.servers import until
from tests.postgres import VERSIONS, Server

HOUR: Instant = 3_600 * SECOND
DAY: Instant = 24 * HOUR
NEAR: Instant = 20 * SECOND  # what a busy machine takes

REAL = ClockSources()


@pytest.fixture(autouse=True)
def _put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("boot", "wall", "machine"):
        monkeypatch.setattr(sources, name, getattr(REAL, name))


def set_wall(by: Instant) -> None:
    sources.wall = lambda: REAL.wall() + by


def restart(wall: Instant = 0) -> None:
    """The machine was off, and is booted again with its clock set so."""
    booted = REAL.boot()
    sources.boot = lambda: REAL.boot() - booted
    sources.machine = lambda: f"boot at {booted}"
    set_wall(wall)


def is_near(first: Instant, other: Instant) -> bool:
    return abs(first - other) < NEAR


# A file.


@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_setting_the_clock_moves_no_count_of_a_file(by: Instant, tmp_path: Path) -> None:
    """Invariant 30: of who is there, and of who comes."""
    store = SqliteStore(tmp_path / "a.db")
    before, boot = store.clock.now(), REAL.boot()
    set_wall(by)
    other, reader = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "a.db", must_exist=True)

    assert store.clock.offset == other.clock.offset == reader.clock.offset
    assert is_near(store.clock.now(), before + REAL.boot() - boot)
    assert is_near(store.clock.wall(), before + by)
    for opened in (store, other, reader):
        await opened.close()


@pytest.mark.parametrize("by", [0, HOUR, -HOUR])
async def test_a_boot_of_the_machine_draws_anew_and_never_before_the_last_record(by: Instant, tmp_path: Path) -> None:
    """Invariant 30: who only looks draws the same, and leaves no trace."""
    store = SqliteStore(tmp_path / "a.db")
    home = await store.claim()
    last = store.clock.now()
    assert isinstance(await store.commit([created("a", home, at=last)]), Committed)
    await store.close()
    restart(by)
    reader = SqliteStore(tmp_path / "a.db", must_exist=True)
    seen = reader.clock.now()
    await reader.close()
    first = SqliteStore(tmp_path / "a.db")
    set_wall(by + HOUR)  # the second is not the first
    second = SqliteStore(tmp_path / "a.db")

    expected = max(last, last + by)
    assert is_near(seen, expected) and is_near(first.clock.now(), expected)
    assert first.clock.now() >= last and second.clock.offset == first.clock.offset
    await first.close()
    await second.close()


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_a_file_is_not_opened_with_a_clock_a_day_behind_its_last_record(
    is_restarted: bool, tmp_path: Path
) -> None:
    """Invariant 30: both are named."""
    url = f"sqlite:///{tmp_path}/a.db"
    async with Engine(url) as engine:
        await (await engine.start({"drill": 1, "steps": [{"return": 1}]})).result()
    last = REAL.wall()
    (restart if is_restarted else set_wall)(-DAY - HOUR)
    for opens in (lambda: Engine(url), lambda: Observer(url)):
        with pytest.raises(StoreClockBehind) as refused:
            opens()
        assert format_instant(REAL.wall() - DAY - HOUR)[:15] in str(refused.value) and format_instant(last)[:15] in str(
            refused.value
        )

    set_wall(-DAY + HOUR)
    async with Engine(url) as engine:
        assert is_near(engine.clock.now(), last)


def program(by: Instant) -> tuple[str, ...]:
    """The words that call `perdure` on a machine whose clock was set."""
    text = f"""
import sys
from perdure.stores.clocks import sources
real = sources.wall
sources.wall = lambda: real() + {by}
from perdure.cli.main import main
from perdure.testing.drill import Drill
from perdure.wiring import add_language
add_language(Drill)
sys.exit(main(sys.argv[1:]))
"""
    return sys.executable, "-c", text


def perdure(*words: str, by: Instant = 0) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*program(by), *words], capture_output=True, text=True, timeout=60)


def test_a_program_that_starts_with_its_clock_behind_says_so(tmp_path: Path) -> None:
    """Invariant 30, as a person meets it."""
    document = tmp_path / "a.json"
    document.write_text('{"drill": 1, "steps": [{"return": 1}]}')
    db = f"sqlite:///{tmp_path}/a.db"
    assert perdure("run", str(document), "--db", db).returncode == 0
    refused = perdure("run", str(document), "--db", db, by=-2 * DAY)

    assert refused.returncode != 0 and "the clock says" in refused.stderr and "the last record" in refused.stderr
    assert perdure("run", str(document), "--db", db, by=-HOUR).returncode == 0


@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_timers_of_a_file_go_on_when_the_clock_is_set(by: Instant, tmp_path: Path) -> None:
    """Invariant 30: what is due soon comes soon, and what is due in an hour does not come now."""
    async with Engine(f"sqlite:///{tmp_path}/a.db") as engine:
        long = await engine.start({"drill": 1, "steps": [{"sleep": "30m"}]})
        soon = await engine.start({"drill": 1, "steps": [{"sleep": "300ms"}, {"return": "woken"}]})
        set_wall(by)
        later = await engine.start({"drill": 1, "steps": [{"sleep": "300ms"}, {"return": "woken"}]})

        assert await asyncio.wait_for(soon.result(), 60) == await asyncio.wait_for(later.result(), 60) == "woken"
        assert (await long.status()).value == "waiting"


async def test_what_is_due_while_a_laptop_sleeps_comes_when_it_wakes(tmp_path: Path) -> None:
    """Invariant 30: sleep counts, although the event loop has not counted it."""
    async with Engine(f"sqlite:///{tmp_path}/a.db") as engine:
        run = await engine.start({"drill": 1, "steps": [{"sleep": "1h"}, {"return": "woken"}]})
        sources.boot = lambda: REAL.boot() + 2 * HOUR
        set_wall(2 * HOUR)

        assert await asyncio.wait_for(run.result(), 60) == "woken"


async def test_an_engine_that_counts_opens_its_file_again_whatever_the_wall_shows(tmp_path: Path) -> None:
    """Invariants 2 and 30: after a commit of unknown end."""
    async with Engine(f"sqlite:///{tmp_path}/a.db") as engine:
        await (await engine.start({"drill": 1, "steps": [{"return": 1}]})).result()
        set_wall(-3 * DAY)
        await engine.store.reopen()
        run = await engine.start({"drill": 1, "steps": [{"return": 2}]})

        assert await run.result() == 2 and is_near(engine.clock.now(), REAL.wall())


# A database.


@pytest.fixture(params=VERSIONS)
def url(request: pytest.FixtureRequest, postgres_server: Callable[[int], Server]) -> Iterator[str]:
    with postgres_server(request.param).database() as address:
        parameters = conninfo_to_dict(address)
        yield f"postgresql://postgres@{parameters['host']}:{parameters['port']}/{parameters['dbname']}"


def query(url: str, text: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(text, values)
        return done.fetchall() if done.description else []


def set_database(url: str, by: Instant) -> None:
    query(
        url,
        "CREATE OR REPLACE FUNCTION perdure.wall() RETURNS bigint LANGUAGE sql VOLATILE"
        f" AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + ({by}) $$",
    )


def opened(url: str, lease: float = 2.0, **more: Any) -> PostgresStore:
    return PostgresStore(url, settings=PostgresSettings(lease=lease), **more)


async def renewed(*stores: PostgresStore) -> None:
    """Until each has renewed its lease twice from now on: the second was begun after now."""
    for _ in range(2):
        known = [store._lease_of_us._until for store in stores]
        await until(lambda: all(s._lease_of_us._until > k for s, k in zip(stores, known, strict=True)))  # noqa: B023


@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_setting_the_databases_clock_costs_nobody_the_lease(by: Instant, url: str) -> None:
    """Invariants 22 and 30: on each of three servers; one row says what is taken back, and it says it once."""
    stores = [opened(url) for _ in range(3)]
    for store in stores:
        await store.share()
    ids = query(url, "SELECT id FROM perdure.servers ORDER BY id")
    set_database(url, by)
    shares = [await store.share() for store in stores]  # whoever looks first would fence the others
    await renewed(*stores)

    assert [share.ended for share in shares] == [[], [], []]
    assert query(url, "SELECT id FROM perdure.servers ORDER BY id") == ids
    assert not any(store.is_late for store in stores)
    ((shift,),) = query(url, "SELECT shift FROM perdure.clock")
    assert is_near(shift, -by)
    assert all(is_near(store.clock.now(), REAL.wall()) for store in stores)
    assert all(is_near(store.clock.wall(), REAL.wall() + by) for store in stores), "calendars go by the wall"
    late = opened(url)
    assert is_near(late.clock.now(), REAL.wall())
    for store in [*stores, late]:
        await store.close()


@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_who_comes_before_a_jump_was_noticed_does_not_bring_it_along(by: Instant, url: str) -> None:
    """Invariant 30: who lives is asked to renew, and sets the clock right; nobody is fenced."""
    there = opened(url, lease=60.0)  # by itself it looks again in twenty seconds
    await there.share()
    set_database(url, by)
    coming = opened(url)

    assert is_near(coming.clock.now(), REAL.wall())
    assert (await coming.share()).ended == []
    await coming.close()
    ((shift,),) = query(url, "SELECT shift FROM perdure.clock")
    assert is_near(shift, -by) and not there.is_late
    await there.close()


async def test_nobody_is_waited_for_where_all_servers_are_gone(url: str) -> None:
    """Invariant 30: what the dead left makes no one who looks at the store slow."""
    dead = opened(url)
    await dead.share()
    dead.abandon()
    sessions = "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE %s"
    async with asyncio.timeout(60):
        while query(url, sessions, f"{dead._database.token}%"):
            await asyncio.sleep(0.02)
    query(url, "UPDATE perdure.servers SET until = until - 60000000, renewed = renewed - 60000000")
    with psycopg.connect(url, autocommit=True) as listening:
        listening.execute("LISTEN perdure_everyone")
        reader = opened(url, must_exist=True)

        assert list(listening.notifies(timeout=0)) == [], "somebody was asked to renew"
    await reader.close()


@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_timers_of_a_database_go_on_when_its_clock_is_set(by: Instant, url: str) -> None:
    """Invariant 30."""
    clock = SystemClock()
    store = opened(url)
    clock.follow(store.clock)
    engine = Engine(store, clock=clock, settings=Settings(serves=True))
    async with engine:
        long = await engine.start({"drill": 1, "steps": [{"sleep": "30m"}]})
        set_database(url, by)
        await renewed(store)
        soon = await engine.start({"drill": 1, "steps": [{"sleep": "300ms"}, {"return": "woken"}]})

        assert await asyncio.wait_for(soon.result(), 60) == "woken"
        assert (await long.status()).value == "waiting"


@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_a_server_that_dies_while_the_clock_is_set_is_taken_over_in_time(by: Instant, url: str) -> None:
    """Invariants 21 and 30: what it last wrote of its lease is by its own count."""
    dying, heir = opened(url), opened(url)
    await dying.share()
    await heir.share()
    set_database(url, by)
    dying.abandon()

    ended: list[str] = []
    async with asyncio.timeout(60):
        while not ended:
            ended += (await heir.share()).ended
            await asyncio.sleep(0.05)
    assert len(query(url, "SELECT 1 FROM perdure.servers")) == 1
    await heir.close()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_the_clock_of_one_server_of_three_concerns_nobody(by: Instant, url: str) -> None:
    """Invariant 30: a real process whose machine's clock was set serves beside two others."""
    stores = [opened(url) for _ in range(2)]
    for store in stores:
        await store.share()
    words = (*program(by), "serve", "--lease", "2s", "--db", url)
    third = await asyncio.create_subprocess_exec(*words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        async with asyncio.timeout(60):
            while len(await stores[0].servers()) < 3:
                await asyncio.sleep(0.05)
        await renewed(*stores)
        assert [(await store.share()).ended for store in stores] == [[], []]
        ((nearest,),) = query(url, "SELECT min(renewed) FROM perdure.servers")
        assert is_near(nearest, REAL.wall()) and len(await stores[0].servers()) == 3
        assert query(url, "SELECT coalesce(sum(shift), 0)::bigint FROM perdure.clock") == [(0,)]
    finally:
        third.terminate()
        await third.wait()
    for store in stores:
        await store.close()


async def test_a_process_that_stood_still_does_not_hold_up_the_clock_of_all(url: str) -> None:
    """Invariant 30: a virtual machine that was stopped for a minute; the others have counted on."""
    still, other = opened(url, lease=30.0), opened(url, lease=0.5)
    await still.share()
    await other.share()
    now = still.clock.now()
    still.clock.set(now - 60 * SECOND, 0)
    await renewed(other)
    await still.share()

    assert is_near(still.clock.now(), REAL.wall())
    assert query(url, "SELECT coalesce(sum(shift), 0)::bigint FROM perdure.clock") == [(0,)]
    await still.close()
    await other.close()


async def test_a_database_whose_clock_was_set_back_meanwhile_counts_from_the_last_record(url: str) -> None:
    """Invariant 30: nobody was there to notice."""
    store = opened(url)
    home = await store.claim()
    last = store.clock.now()
    assert isinstance(await store.commit([created("a", home, at=last)]), Committed)
    await store.close()
    set_database(url, -HOUR)
    again = opened(url)

    assert again.clock.now() >= last - SECOND and is_near(again.clock.now(), last)
    await again.close()


async def test_a_database_is_not_opened_with_its_clock_a_day_behind_the_last_record(url: str) -> None:
    """Invariant 30: both are named, whoever asks."""
    store = opened(url)
    home = await store.claim()
    last = store.clock.now()
    assert isinstance(await store.commit([created("a", home, at=last)]), Committed)
    await store.close()
    set_database(url, -DAY - HOUR)
    for must_exist in (False, True):
        with pytest.raises(StoreClockBehind) as refused:
            opened(url, must_exist=must_exist)
        assert format_instant(last)[:15] in str(refused.value)
        assert format_instant(REAL.wall() - DAY - HOUR)[:15] in str(refused.value)

    set_database(url, 0)
    await opened(url).close()


def test_a_count_follows_the_database_by_one_part_in_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 30: and never goes back."""
    boot = 0
    monkeypatch.setattr(sources, "boot", lambda: boot)
    count = DatabaseClock()
    count.set(1_000 * SECOND, 0)
    assert count.compare(1_000 * SECOND + 500_000, 0, 0) == 0
    readings = []
    for _ in range(100):
        boot += SECOND
        readings.append(count.now())

    steps = {later - sooner for sooner, later in pairwise(readings)}
    assert steps == {SECOND + SECOND // 100, SECOND}
    assert readings[-1] == 1_100 * SECOND + 500_000
    assert count.compare(readings[-1] - 900_000, 0, boot) == 0
    boot += SECOND
    assert count.now() == readings[-1] + SECOND - SECOND // 100
    assert count.compare(count.now() + 2 * SECOND, 0, boot) == 2 * SECOND, "that is no drift"
    assert count.compare(count.now(), 0, boot - 4 * SECOND) == 0, "the answer took that long"


async def test_messages_are_stamped_by_the_store_and_not_by_what_a_sender_has_counted(url: str) -> None:
    """Invariant 30: words and results alike; who waits for the owner's answer is told when its word arrived."""
    store = PostgresStore(url)
    home = await store.claim()
    offers = [TaskOffer(1, 1, "gpu", "render", b"body")]
    assert isinstance(await store.commit([created("a", home, offers=offers)]), Committed)
    (lease,) = await store.lease(LeaseRequest(["gpu"], "w1", 1, store.clock.now() + HOUR))
    before = store.clock.now()
    sent = await store.send(Message(RunId("a"), 5, b"word", is_control=True))
    (together,) = await store.send_together([Message(RunId("a"), 2 * before, b"more")])
    assert await store.report(lease.lease, Message(RunId("a"), 6, b"result"))
    messages = [row.message for row in await store.inbox([home], 10)]

    assert sent is not None and [sent.message.at, together.message.at] == [message.at for message in messages[:2]]
    assert [message.body for message in messages] == [b"word", b"more", b"result"]
    assert all(is_near(message.at, before) for message in messages)
    await store.close()


async def test_what_others_took_back_of_a_jump_does_not_hide_a_wall_a_day_behind(url: str) -> None:
    """Invariant 30: who is there counts on; whoever comes is told what the wall shows, not what the count says."""
    store = opened(url)
    home = await store.claim()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("INSERT INTO perdure.clock (shift) VALUES (%s)", [DAY + HOUR])
    set_database(url, -DAY - HOUR)
    assert isinstance(await store.commit([created("a", home, at=store.clock.now())]), Committed)
    with pytest.raises(StoreClockBehind):
        opened(url)
    await store.close()
