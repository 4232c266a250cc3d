"""Leases on PostgreSQL: who lost its row comes back by itself, and no number of open files costs a lease."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from perdure.engine.settings import Settings
from perdure.kernel.json_values.values import RunId
from perdure.stores.commit_types import Committed, Fenced
from perdure.stores.postgres.database import PostgresSettings
from perdure.stores.postgres.store import PostgresStore
from perdure.testing.transitions import created
from perdure.wiring import Engine
from tests.engine.servers import until
from tests.postgres import VERSIONS, Server
from tests.stores.cutting import proxy


@pytest.fixture(params=VERSIONS)
def url(request: pytest.FixtureRequest, postgres_server: Callable[[int], Server]) -> Iterator[str]:
    with postgres_server(request.param).database() as address:
        parameters = conninfo_to_dict(address)
        yield f"postgresql://postgres@{parameters['host']}:{parameters['port']}/{parameters['dbname']}"


def opened(url: str, **settings: Any) -> PostgresStore:
    return PostgresStore(url, lambda: 1_000, settings=PostgresSettings(**settings))


def query(url: str, text: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(text, values)
        return done.fetchall() if done.description else []


def owners(url: str) -> dict[str, int]:
    """How many shared partitions each process owns, by its token."""
    return dict(
        query(
            url,
            "SELECT s.token, count(*) FROM perdure.partitions p JOIN perdure.servers s ON s.id = p.owner"
            " WHERE p.is_shared GROUP BY s.token",
        )
    )


async def test_a_server_whose_row_is_gone_registers_anew_before_it_takes_anything(url: str) -> None:
    """Invariant 21: it was taken over, and its successor has left: it is counted, and owns what it takes."""
    store = opened(url)
    await store.share()
    query(url, "DELETE FROM perdure.servers")
    share = await store.share()

    assert len(share.taken) == 64 and owners(url) == {store._database.token: 64}
    assert store.is_late, "what it had in memory is worth nothing"
    assert isinstance(await store.commit([created("a", 1)]), Fenced)
    assert await store.rejoin() == list(range(1, 65)) and not store.is_late
    assert isinstance(await store.commit([created("a", 1)]), Committed)
    assert query(url, "SELECT count(*) FROM perdure.servers") == [(1,)]
    await store.close()


async def test_a_server_whose_row_is_gone_takes_a_fair_part_beside_others(url: str) -> None:
    """Invariant 21: the others count it, and it counts itself."""
    first, other = opened(url), opened(url)
    await first.share()
    query(url, "DELETE FROM perdure.servers")
    await other.share()
    share = await first.share()
    assert not share.taken and owners(url) == {other._database.token: 64}
    assert (await other.share()).surplus == 32

    await other.give_up(range(33, 65))
    assert len((await first.share()).taken) == 32
    assert await first.rejoin() == list(range(33, 65))
    assert owners(url) == {first._database.token: 32, other._database.token: 32}
    await first.close()
    await other.close()


async def test_a_private_process_whose_row_is_gone_gets_another_partition(url: str) -> None:
    """Invariant 21: claiming and moving register anew, too."""
    store, other = opened(url), opened(url)
    first = await store.claim()
    query(url, "DELETE FROM perdure.servers")
    assert await store.move(None, first) == [] and store.is_late
    query(url, "DELETE FROM perdure.servers")
    second = await store.claim()

    assert await store.rejoin() == [second] and not store.is_late
    assert isinstance(await store.commit([created("a", second)]), Committed)
    assert first == second, "nobody else has claimed it meanwhile"
    query(url, "DELETE FROM perdure.servers")
    third = await other.claim()
    await store.move([RunId("a")], third)
    assert [row.partition for row in [await store.find(RunId("a"))] if row] == [second], "it is not ours to give"
    await store.close()
    await other.close()


@pytest.mark.parametrize("moment", ["before it arrives", "before it is answered"])
async def test_registering_anew_unheard_leaves_one_row(url: str, moment: Any) -> None:
    head, _, database = url.rpartition("/")
    with proxy(int(head.rpartition(":")[2])) as cutting:
        store = opened(f"postgresql://postgres@127.0.0.1:{cutting.port}/{database}")
        await store.share()
        query(url, "DELETE FROM perdure.servers")
        cutting.cut(b"INSERT INTO servers", moment)
        await store.rejoin()

        assert cutting.cuts == 1
        assert query(url, "SELECT token FROM perdure.servers") == [(store._database.token,)]
        await store.close()


async def test_a_server_that_was_cut_off_taken_over_and_left_alone_serves_again(url: str) -> None:
    """Invariants 21 and 22: whoever took over has gone; the first one comes back and drives the runs."""
    head, _, database = url.rpartition("/")
    settings = Settings(serves=True, poll=0.004, share_every=0.02)
    with proxy(int(head.rpartition(":")[2])) as cutting:
        away = f"postgresql://postgres@127.0.0.1:{cutting.port}/{database}"
        engine = Engine(opened(away, lease=0.5), settings=settings)
        await engine.__aenter__()
        await until(lambda: len(engine.runtime.partitions) == 64)
        cutting.is_refusing = True
        cutting.cut_all()
        successor = opened(url, lease=5)
        while len((await successor.share()).taken) < 64:
            await asyncio.sleep(0.02)
        await successor.close()
        assert query(url, "SELECT count(*) FROM perdure.servers") == [(0,)]
        cutting.is_refusing = False

        await until(lambda: len(engine.runtime.partitions) == 64 and not engine.store.is_late)
        assert engine.runtime.stopped is None
        run = await engine.start({"drill": 1, "steps": [{"return": "served"}]})
        assert await asyncio.wait_for(run.result(), 60) == "served"
        await engine.__aexit__(None, None, None)


async def test_whoever_takes_over_tells_the_others_that_something_is_free(url: str) -> None:
    """Invariant 21: by itself the third would look again in minutes."""
    third, heir, dying = opened(url, lease=600.0), opened(url, lease=0.5), opened(url, lease=0.5)
    for store in (third, heir, dying):
        await store.share()
    async with asyncio.timeout(60):
        while third.should_share() or third._lease_of_us._silent_at != inf:  # it has heard of those who came
            await third.share()
            await asyncio.sleep(0.02)
        dying.abandon()
        while not (await heir.share()).ended:
            await asyncio.sleep(0.02)

    await until(third.should_share)
    assert query(url, "SELECT count(*) FROM perdure.servers") == [(2,)]
    await heir.close()
    await third.close()


CROWDED = """
import asyncio, os, resource, sys
from perdure.stores.postgres.database import PostgresSettings
from perdure.stores.postgres.store import PostgresStore

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096) if hard > 0 else 4096, hard))
crowd = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]

async def main():
    store = PostgresStore(sys.argv[1], lambda: 1, settings=PostgresSettings(lease=0.6))
    await store.share()
    lease = store._lease
    assert lease._woken > 1_024
    first = lease._until
    while lease._until < first + 1.5:
        assert not store.is_late, "the lease was lost"
        await asyncio.sleep(0.02)
    lease.has_news.clear()
    lease.notify_everyone()
    while not lease.has_news.is_set():
        await asyncio.sleep(0.01)
    await store.close()
    print("renewed")

asyncio.run(asyncio.wait_for(main(), 60))
"""


def test_a_lease_is_renewed_with_more_than_a_thousand_files_open(url: str, tmp_path: Path) -> None:
    """Invariant 22: and hints come through."""
    done = subprocess.run([sys.executable, "-c", CROWDED, url], capture_output=True, text=True, timeout=100)

    assert done.stdout == "renewed\n", done.stderr
