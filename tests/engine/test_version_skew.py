"""Invariant 24: programs of different ages on one store. What a newer one has recorded is left alone, never misread."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.engine.clock import SystemClock
from perdure.engine.settings import Settings
from perdure.kernel import events as e
from perdure.kernel.errors import NewerRecord
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Code, Status
from perdure.kernel.turn import Turn
from perdure.kernel.versions import RECORDS
from perdure.stores.commit_types import Message
from perdure.testing import ScriptedHands
from perdure.testing.drill import Drill, folding
from perdure.testing.drill import body as b
from perdure.testing.opening import open_store
from perdure.wiring import Engine
from tests import storing
from tests.engine.documents import drill
from tests.engine.servers import until

ON_POSTGRES = pytest.mark.parametrize(
    "world_store", [store for store in storing.chosen() if store.values[0] != storing.SQLITE], indirect=True
)


class Blessed(e.Event, frozen=True, tag=150):
    thread: int


class NewDrill(Drill):
    """The language of a newer program: one event more, in an edition of its own."""

    events = (*b.OWN_EVENTS, Blessed)
    edition = 2

    def advance(self, turn: Turn) -> bool:
        number = next(iter(turn.body.agenda), None)
        step = None if number is None else turn.body.step(turn.body.threads[number])
        if number is not None and step is not None and (step.kind, step.about) == ("trip", "blessing"):
            turn.emit(Blessed(number))
            return True
        return super().advance(turn)

    @staticmethod
    def evolve(body: b.Body, event: e.Event) -> None:
        folding.evolve(body, b.Advanced(event.thread) if isinstance(event, Blessed) else event)


class Blessing(NewDrill):
    """The same, in documents that older programs can read too."""

    edition = 1


BLESSED = drill({"trip": "blessing"}, {"signal": "go", "save": "x"}, {"call": "work"}, {"return": "$x"})
WAITS = drill({"signal": "go", "save": "x"}, {"return": "$x"})


@asynccontextmanager
async def server(folder: Path, language: Drill | None = None, **settings: Any) -> AsyncIterator[Engine]:
    """One that serves; with a language of its own it is a newer program."""
    clock = SystemClock()
    store: Any = open_store(folder, clock.now)
    if language is not None:
        store.reads = RECORDS + 1
    options = Settings(serves=True, poll=0.004, share_every=0.01, **settings)
    hands = ScriptedHands({"work": lambda arguments, input: input})
    engine = Engine(store, settings=options, clock=clock, hands=hands, spoken={"drill": language or Drill()})
    async with engine:
        yield engine


async def waits_for_newer(engine: Engine, run: RunId) -> str:
    async with asyncio.timeout(60):
        while not (stuck := (await engine.find(run)).stuck):
            await asyncio.sleep(0.005)
    return stuck


@pytest.mark.every_store
async def test_an_old_server_leaves_a_run_alone_that_a_newer_one_has_written_to(tmp_path: Path) -> None:
    """It says why, keeps what is sent, goes on with other runs; the next newer program takes the run up."""
    async with server(tmp_path, Blessing()) as new:
        run = (await new.start(BLESSED)).id
        plain = (await new.start(WAITS)).id
    async with server(tmp_path) as old:
        await until(lambda: bool(old.runtime.partitions))
        await old.store.send(Message(run, 1, msgspec.msgpack.encode([6, "go", b'"kept"', "k", ""])))
        message = await waits_for_newer(old, run)
        await old.signal(plain, "go", "other runs go on")

        assert await old.handle(plain).result() == "other runs go on"
        assert "newer Perdure" in message and "150" in message
        assert (await old.find(run)).status in (Status.RUNNING, Status.WAITING)
        assert old.runtime.stopped is None
        with pytest.raises(NewerRecord, match=run):
            await old.show(run)
        with pytest.raises(NewerRecord, match=run):
            await old.history(run, raw=True)
    async with server(tmp_path, Blessing()) as new:
        assert await asyncio.wait_for(new.handle(run).result(), 60) == "kept"
        assert (await new.find(run)).stuck is None
        names = [event["event"] for event in await new.history(run, raw=True)]
        assert names.count("SignalReceived") == names.count("TaskEnded") == names.count("Blessed") == 1


@ON_POSTGRES
async def test_a_run_goes_to_a_live_server_that_can_read_it(tmp_path: Path) -> None:
    """Whether that one is there already or comes later; nothing but the run itself changes hands."""
    async with server(tmp_path, Blessing()) as new:
        runs = [(await new.start(BLESSED)).id for _ in range(12)]
    async with server(tmp_path) as old:
        await until(lambda: len(old.runtime.partitions) == 64)
        await old.store.send(Message(runs[0], 1, msgspec.msgpack.encode([6, "go", b"0", "k", ""])))
        await waits_for_newer(old, runs[0])

        async with server(tmp_path, Blessing()) as new:
            assert await asyncio.wait_for(new.handle(runs[0]).result(), 60) == 0, "it had waited for this server"
            assert (await new.find(runs[0])).stuck is None
            for number, run in enumerate(runs[1:], start=1):  # some of them are the old one's by now, others never were
                await new.signal(run, "go", number)
            results = await asyncio.gather(*[asyncio.wait_for(new.handle(run).result(), 60) for run in runs])

            assert results == list(range(12))
            assert {(await new.find(run)).stuck for run in runs} == {None}, "no one had to wait"
            assert old.runtime.stopped is None and old.runtime.partitions


@ON_POSTGRES
async def test_children_whose_document_is_too_new_are_born_at_a_server_that_can_read_it(tmp_path: Path) -> None:
    """Their starts are messages, which come to old servers too."""
    kid = drill({"trip": "blessing"}, {"signal": "go"}, {"return": "$input"}, name="kid")
    parent = drill({"each": 10, "do": [{"child": kid, "input": "$index", "save": "r"}]}, {"return": "all"})
    async with server(tmp_path) as old, server(tmp_path, NewDrill()) as new:
        await until(lambda: len(new.runtime.partitions) == 32 and len(old.runtime.partitions) == 32)
        run = await new.start(parent)
        children = [RunId(f"{run.id}.{number}") for number in await _children(new, run.id)]
        assert len(children) == 10
        async with asyncio.timeout(60):
            for child in children:
                while await new.store.find(child) is None:
                    await asyncio.sleep(0.005)
                await new.signal(child, "go")

        assert await asyncio.wait_for(run.result(), 60) == "all"
        assert {(await new.find(child)).status for child in children} == {Status.SUCCEEDED}
        assert old.runtime.stopped is None


async def _children(engine: Engine, run: RunId) -> list[int]:
    return [event["child"] for event in await engine.history(run, raw=True) if event["event"] == "ChildStarted"]


@pytest.mark.every_store
async def test_a_start_that_cannot_be_read_yet_waits(tmp_path: Path) -> None:
    """It is a letter, and stays one until somebody comes who can read its document."""
    async with server(tmp_path, NewDrill()) as new:
        pinned = (await new.find((await new.start(WAITS)).id)).program
    later = RunId("later")
    async with server(tmp_path) as old:
        await until(lambda: bool(old.runtime.partitions))
        home = old.runtime.partitions[0]
        await _put(old, home, later, [1, "drill", pinned, "later", b"null", b"{}", 7])
        beside = (await old.start(drill({"signal": "go", "save": "said"}, {"return": "$said"}))).id
        await old.store.send(Message(beside, 1, msgspec.msgpack.encode([6, "go", b'"read"', "k", ""])))
        assert await asyncio.wait_for(old.handle(beside).result(), 60) == "read", "the inbox was read to its end"

        assert await old.store.find(later) is None and old.runtime.stopped is None
        assert [delivered.message.to for delivered in await old.store.inbox([home], 10)] == [later]
        assert await (await old.start(drill({"return": "well"}))).result() == "well"
    async with server(tmp_path, NewDrill()) as new, asyncio.timeout(60):
        while await new.store.find(later) is None:
            await asyncio.sleep(0.005)
        await new.signal(later, "go", "born at last")
        assert await new.handle(later).result() == "born at last"


async def _put(engine: Engine, partition: int, run: RunId, message: list[Any]) -> None:
    """A letter to a run that is not there yet, as its parent's commit would write it."""
    store: Any = engine.store
    body = msgspec.msgpack.encode(message)
    if hasattr(store, "_database"):
        from perdure.stores.postgres.wire import BLOB, INT, TEXT, Statement

        insert = Statement(
            "INSERT INTO inbox (partition, position, run, at, body) VALUES ({}, nextval('inbox_positions'), {}, 1, {})",
            INT,
            TEXT,
            BLOB,
        )
        await store._write(lambda session, again: session.run(insert, partition, run, body))
    else:
        await store._transaction(
            lambda: store._connection.execute(
                "INSERT INTO inbox (partition, run, at, body) VALUES (?, ?, 1, ?)", (partition, run, body)
            )
        )


@pytest.mark.every_store
async def test_a_letter_of_a_kind_that_is_not_known_waits_and_stops_nobody(tmp_path: Path) -> None:
    """The run goes on without it; the letter is kept for a server that can read it."""
    async with server(tmp_path) as old:
        run = (await old.start(WAITS)).id
        await old.store.send(Message(run, 1, msgspec.msgpack.encode([99, "something new"])))
        await old.store.send(Message(run, 1, msgspec.msgpack.encode([7, "a member more", "", "new"])))
        await old.store.send(Message(run, 1, msgspec.msgpack.encode([6, "go", b'"and goes on"', "k", ""])))

        assert await asyncio.wait_for(old.handle(run).result(), 60) == "and goes on"
        assert old.runtime.stopped is None
        home = (await old.find(run)).partition
        kept = [delivered for delivered in await old.store.inbox([home], 10) if delivered.message.to == run]
        assert len(kept) == 2, "nothing was thrown away"


@ON_POSTGRES
async def test_a_run_with_a_letter_that_cannot_be_read_goes_to_who_reads_more(tmp_path: Path) -> None:
    async with server(tmp_path) as old:
        run = (await old.start(WAITS)).id
        await old.store.send(Message(run, 1, msgspec.msgpack.encode([99, "something new"])))
        async with server(tmp_path, Blessing()) as new:
            async with asyncio.timeout(60):
                while (await new.find(run)).partition not in new.runtime.partitions:
                    await asyncio.sleep(0.005)
            await old.signal(run, "go", "there")

            assert await asyncio.wait_for(old.handle(run).result(), 60) == "there"
            assert (await new.find(run)).partition in new.runtime.partitions


@pytest.mark.every_store
async def test_a_language_that_is_not_spoken_here_is_left_alone(tmp_path: Path) -> None:
    class Other(Drill):
        name = "other"

    clock = SystemClock()
    newer = Engine(open_store(tmp_path, clock.now), clock=clock, hands=ScriptedHands({}), spoken={"other": Other()})
    async with newer:
        run = (await newer.start(WAITS)).id
    async with server(tmp_path) as old:
        await until(lambda: bool(old.runtime.partitions))
        await old.store.send(Message(run, 1, msgspec.msgpack.encode([6, "go", b"1", "k", ""])))

        assert "'other'" in await waits_for_newer(old, run)
        assert old.runtime.stopped is None


@pytest.mark.every_store
async def test_a_run_whose_log_is_damaged_is_stuck_and_stops_nobody(tmp_path: Path) -> None:
    """Invariant 3, for a run that never came as far as to be in memory."""
    async with server(tmp_path) as engine:
        run = (await engine.start(WAITS)).id
        await _damage(engine, run)
        await engine.store.send(Message(run, 1, msgspec.msgpack.encode([6, "go", b"1", "k", ""])))

        assert "DecodeError" in await waits_for_newer(engine, run)
        assert await (await engine.start(drill({"return": "well"}))).result() == "well"
        assert engine.runtime.stopped is None and engine.runtime.partitions


async def _damage(engine: Engine, run: RunId) -> None:
    store: Any = engine.store
    if hasattr(store, "_database"):
        from perdure.stores.postgres.wire import TEXT, Statement

        cut = Statement(
            "UPDATE log SET body = '\\x92'::bytea WHERE run = (SELECT number FROM runs WHERE id = {})", TEXT
        )
        await store._write(lambda session, again: session.run(cut, run))
    else:
        await store._transaction(
            lambda: store._connection.execute(
                "UPDATE log SET body = x'92' WHERE run = (SELECT number FROM runs WHERE id = ?)", (run,)
            )
        )


@pytest.mark.every_store
async def test_a_child_whose_document_cannot_be_read_at_all_fails_for_its_parent(tmp_path: Path) -> None:
    """No newer program is in sight: its parent hears why, and the server goes on."""

    class Broken(Drill):
        def load(self, text: bytes) -> Any:
            if b'"child"' not in text:
                raise ValueError("no such kind of step")
            return super().load(text)

    parent = drill({"child": drill({"return": 1}, name="kid"), "save": "r"}, {"return": "$r"})
    async with server(tmp_path, Broken()) as engine:
        run = await engine.start(parent)
        status, outcome = await asyncio.wait_for(engine.wait(run.id), 60)

        assert status is Status.FAILED
        assert getattr(outcome, "code", "") == Code.CANNOT_BEGIN
        assert "no such kind of step" in getattr(outcome, "message", "")
        assert engine.runtime.stopped is None


class Careful(Blessing):
    """A newer program that says in old words what not everybody understands."""

    def advance(self, turn: Turn) -> bool:
        return super().advance(turn) if turn.record_version > RECORDS else Drill.advance(self, turn)


@ON_POSTGRES
async def test_a_new_event_is_written_once_every_live_server_reads_it(tmp_path: Path) -> None:
    async with server(tmp_path, Careful()) as new:
        async with server(tmp_path) as old:
            await until(lambda: new.store.min_record_version == old.store.min_record_version == RECORDS)
            before = (await new.start(BLESSED)).id
        await until(lambda: new.store.min_record_version == RECORDS + 1)
        after = (await new.start(BLESSED)).id

        kinds = [{event["event"] for event in await new.history(run, raw=True)} for run in (before, after)]

    assert ["Blessed" in kinds for kinds in kinds] == [False, True]


@ON_POSTGRES
async def test_a_server_knows_what_all_can_read_before_its_first_renewal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it refuses, for a moment after it was opened, what only newer programs can read."""
    from perdure.stores.postgres.server_lease import ServerLease

    monkeypatch.setattr(ServerLease, "_keep", lambda lease: None)
    async with server(tmp_path) as alone:
        assert alone.store.min_record_version == RECORDS


async def test_a_file_speaks_the_vocabulary_of_its_program(tmp_path: Path) -> None:
    async with server(tmp_path) as alone:
        assert alone.store.min_record_version == RECORDS
