"""What every store must do with partitions, their owners and families of runs; a part of `StoreSuite`."""

from abc import ABC, abstractmethod
from pathlib import Path

import msgspec

from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Status
from perdure.stores.commit_types import Committed, CommitUnknown, Fenced, Message, RunSummary, Transition
from perdure.stores.protocol import AdoptedRuns, RunFilter, Store
from perdure.testing.transitions import created


class PartitionSuite(ABC):
    now: Instant = 1_000

    @abstractmethod
    def open(self, folder: Path) -> Store: ...

    @abstractmethod
    async def commit(self, store: Store, *batch: Transition) -> Committed: ...

    async def test_an_owner_that_was_taken_over_writes_nothing(self, tmp_path: Path) -> None:
        """Invariant 21 in small: the epoch is checked inside the transaction."""
        late, successor = self.open(tmp_path), self.open(tmp_path)
        home = await late.claim()
        await self.commit(late, created("a", home))
        now_at = await self.take_over(late, successor)
        answer = await late.commit([Transition(RunId("a"), home, 2, row=b"too late")])

        assert isinstance(answer, Fenced)
        assert await successor.history(RunId("a")) == [(1, b"first")]
        await self.commit(successor, Transition(RunId("a"), now_at, 2, row=b"in time"))
        await late.close()
        await successor.close()

    async def test_what_was_decided_after_anything_but_the_last_event_is_not_written(self, tmp_path: Path) -> None:
        """Invariant 3: whoever has an old state in memory cannot split a log, whatever it believes to own."""
        for others in (0, 1):  # one log, and several in one commit
            store = self.open(tmp_path)
            home = await store.claim()
            a, b = RunId(f"a{others}"), RunId(f"b{others}")
            await self.commit(store, created(a, home), created(b, home))
            await self.commit(store, Transition(a, home, 2, row=b"second", base=1))
            stale = Transition(a, home, 4, row=b"decided after the first", base=1)
            answer = await store.commit([stale, *([Transition(b, home, 2, row=b"x", base=1)] if others else [])])

            assert isinstance(answer, Fenced | CommitUnknown)
            assert await store.history(a) == [(1, b"first"), (2, b"second")]
            assert await store.history(b) == [(1, b"first")]
            await store.close()

    @abstractmethod
    async def take_over(self, late: Store, successor: Store) -> int:
        """Make `successor` the owner although `late` does not know; the partition where everything is then."""

    async def die(self, store: Store) -> None:
        """End the store as a dying process does, and let as much time pass as others need to be sure of it."""
        store.abandon()

    async def test_partitions_have_one_owner_and_orphans_can_be_adopted(self, tmp_path: Path) -> None:
        """Invariant 23."""
        store_a, store_b = self.open(tmp_path), self.open(tmp_path)
        first, second = await store_a.claim(), await store_b.claim()
        assert first != second
        busy = RunSummary(Status.RUNNING, True, None)
        await self.commit(store_a, created("a", first), created("a.1", first, busy), created("b", first, busy))
        assert await store_b.move(None, second) == []
        assert await store_b.orphaned_partitions() == []
        assert await store_b.owned([first, second, 4711]) == {first, second}
        await self.die(store_a)

        assert await store_b.orphaned_partitions() == [first]
        assert await store_b.move([RunId("a")], second) == [AdoptedRuns(first, [RunId("a.1")])]
        rows = {row.id: row.partition for row in await store_b.search(RunFilter())}
        assert rows == {"a": second, "a.1": second, "b": first}
        assert await store_b.move(None, second) == [AdoptedRuns(first, [RunId("b")])]
        assert await store_b.orphaned_partitions() == []
        await store_b.close()

    async def test_with_a_message_the_run_that_it_is_for_is_moved(self, tmp_path: Path) -> None:
        """A run that has ended stays where it is, and comes when something is there that may reopen it."""
        store_a, store_b = self.open(tmp_path), self.open(tmp_path)
        first, second = await store_a.claim(), await store_b.claim()
        over = RunSummary(Status.SUCCEEDED, False, None, 10)
        await self.commit(store_a, created("a", first, over), created("b", first, over), created("open", first))
        await store_a.send(Message(RunId("a"), 11, b"reopen"))
        await self.die(store_a)
        await store_b.move(None, second)

        rows = {row.id: row.partition for row in await store_b.search(RunFilter())}
        assert rows == {"a": second, "b": first, "open": second}
        assert [message.message.to for message in await store_b.inbox([second], 10)] == ["a"]
        await store_b.close()

    async def test_a_message_is_undecided_until_a_commit_takes_it_also_when_its_run_is_moved(
        self, tmp_path: Path
    ) -> None:
        store_a, store_b = self.open(tmp_path), self.open(tmp_path)
        first, second = await store_a.claim(), await store_b.claim()
        await self.commit(store_a, created("a", first))
        sent = await store_a.send(Message(RunId("a"), 11, b"claim"))
        assert sent is not None and await store_b.is_undecided(sent)
        await self.die(store_a)
        await store_b.move(None, second)
        assert await store_b.is_undecided(sent)

        await self.commit(store_b, Transition(RunId("a"), second, 2, row=b"second", consumes=[sent.position]))
        assert not await store_b.is_undecided(sent)
        await store_b.close()

    async def test_with_a_run_its_whole_family_is_moved(self, tmp_path: Path) -> None:
        """Invariant 32: also who has ended, for relatives that go on, or are reopened, write to it."""
        store_a, store_b = self.open(tmp_path), self.open(tmp_path)
        first, second = await store_a.claim(), await store_b.claim()
        over = RunSummary(Status.SUCCEEDED, False, None, 10)
        await self.commit(
            store_a, created("a", first, over), created("a.1", first, over), created("a.1.1", first, over)
        )
        await self.commit(store_a, created("b", first), created("b.1", first, over), created("ba", first, over))
        await store_a.send(Message(RunId("a"), 11, b"reopen"))
        await self.die(store_a)
        await store_b.move(None, second)

        rows = {row.id: row.partition for row in await store_b.search(RunFilter())}
        assert rows == {**dict.fromkeys(("a", "a.1", "a.1.1", "b", "b.1"), second), "ba": first}
        await store_b.close()

    async def test_what_is_given_up_is_shared_by_those_who_serve(self, tmp_path: Path) -> None:
        """Invariants 21 and 23: a live owner gives up by itself, and from then on writes nothing there."""
        store_a, store_b = self.open(tmp_path), self.open(tmp_path)
        first = await store_a.share()
        home = first.taken[0]
        await self.commit(store_a, created("a", home))
        assert home not in (await store_b.share()).taken
        await store_a.give_up([home])
        refused = await store_a.commit([Transition(RunId("a"), home, 2, row=b"too late")])
        second = await store_b.share()

        assert isinstance(refused, Fenced)
        assert home in [*second.taken, *(adoption.partition for adoption in second.adopted)]
        row = await store_b.find(RunId("a"))
        assert row is not None
        await self.commit(store_b, Transition(RunId("a"), row.partition, 2, row=b"in time"))
        assert await store_b.history(RunId("a")) == [(1, b"first"), (2, b"in time")]
        assert not store_a.is_late
        assert home not in await store_a.rejoin()
        assert row.partition in await store_b.rejoin()
        await store_a.close()
        await store_b.close()

    async def test_a_run_is_created_where_a_live_server_owns_it(self, tmp_path: Path) -> None:
        """SRV-002: with what wakes it; nothing is written while nobody serves, and none is created twice."""
        guest, server = self.open(tmp_path), self.open(tmp_path)
        wake = [Message(RunId("a"), 3, b"wake")]

        def change(text: bytes = b"first") -> Transition:
            return msgspec.structs.replace(created("a", 0), row=text, messages=wake)

        assert await guest.create_elsewhere(change()) is None
        assert await guest.find(RunId("a")) is None
        taken = (await server.share()).taken
        done = await guest.create_elsewhere(change())
        assert done is not None and not done.refused
        again = await guest.create_elsewhere(change(b"second"))
        assert again is not None and again.refused == {"a"}
        row = await server.find(RunId("a"))
        assert row is not None and row.partition in taken
        assert [(sent.partition, sent.message.body) for sent in await server.inbox(taken, 10)] == [
            (row.partition, b"wake")
        ]
        await self.commit(server, Transition(RunId("a"), row.partition, 2, row=b"goes on", base=1))
        assert await guest.history(RunId("a")) == [(1, b"first"), (2, b"goes on")]
        await server.close()
        assert await guest.create_elsewhere(msgspec.structs.replace(created("b", 0), row=b"x")) is None
        await guest.close()

    async def test_families_are_found_by_their_roots_and_can_be_left_to_others(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(store, created("a", home), created("a.1", home), created("b", home))
        await self.commit(store, Transition(RunId("b"), home, 2, row=b"x", messages=[Message(RunId("c.1"), 1, b"x")]))

        assert sorted(await store.families([home])) == ["a", "b", "c"]
        assert await store.families([home + 1]) == []
        await store.disown_families([RunId("a")], home)

        rows = [await store.find(RunId(name)) for name in ("a", "a.1", "b")]
        places = [row.partition for row in rows if row is not None]
        assert places[0] == places[1] != home and places[2] == home
        assert await store.orphaned_partitions() == places[:1]
        assert await store.families(places[:1]) == ["a"]
        await store.move([RunId("a")], home)
        assert await store.orphaned_partitions() == []
        await store.close()

    async def test_nothing_is_entrusted_while_nobody_reads_more(self, tmp_path: Path) -> None:
        """Invariant 24."""
        store, other = self.open(tmp_path), self.open(tmp_path)
        home = await store.claim()
        await other.share()
        await self.commit(store, created("a", home))
        await store.send(Message(RunId("a"), 5, b"to a"))

        assert await store.transfer([RunId("a"), RunId("not there")]) == []
        assert [store_a.message.body for store_a in await store.inbox([home], 10)] == [b"to a"]
        await store.close()
        await other.close()
