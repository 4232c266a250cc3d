"""What every store must do. A backend passes by subclassing this and saying how it is opened."""

import asyncio
import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from perdure.kernel import inputs as i
from perdure.kernel.crash_attribution import LossKind, StartPlace
from perdure.kernel.lookups import PermitQueue
from perdure.kernel.outcomes import Status, Succeeded
from perdure.kernel.values import Instant, RunId, digest
from perdure.stores.commit_types import Committed, Fenced, Message, RequestedPermit, RunSummary, TaskOffer, Transition
from perdure.stores.protocol import AdoptedRuns, RunFilter, Store
from perdure.testing.catalog_suite import CatalogSuite
from perdure.testing.name_suite import NameSuite
from perdure.testing.transitions import PROGRAM, TEXT, created


class StoreSuite(CatalogSuite, NameSuite):
    """Each test opens its own store; `now` is the clock the store reads."""

    now: Instant = 1_000

    @abstractmethod
    def open(self, folder: Path) -> Store:
        """A store of the backend under test."""

    async def commit(self, store: Store, *batch: Transition) -> Committed:
        answer = await store.commit(batch)
        assert isinstance(answer, Committed), answer
        return answer

    async def test_a_committed_run_can_be_found_and_loaded(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(store, created("a", home, labels={"team": "blue"}))
        row = await store.find(RunId("a"))
        (stored,) = await store.load([RunId("a"), RunId("missing")])

        assert row is not None
        assert (row.id, row.partition, row.labels, row.status) == ("a", home, {"team": "blue"}, Status.WAITING)
        assert stored.rows == [(1, b"first")]
        assert stored.snapshot is None
        assert await store.program(PROGRAM) == ("drill", TEXT)
        assert await store.find(RunId("missing")) is None
        await store.close()

    async def test_a_batch_is_written_whole_and_in_order(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(store, created("a", home), created("b", home))
        await self.commit(
            store,
            Transition(RunId("a"), home, 3, row=b"second"),
            Transition(RunId("b"), home, 2, row=b"other"),
        )
        await self.commit(store, Transition(RunId("a"), home, 4, row=b"third"))

        assert await store.history(RunId("a")) == [(1, b"first"), (3, b"second"), (4, b"third")]
        assert await store.history(RunId("b")) == [(1, b"first"), (2, b"other")]
        await store.close()

    async def test_a_run_that_exists_is_refused_and_the_rest_is_written(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(store, created("a", home))
        answer = await self.commit(store, created("a", home, row=b"impostor"), created("b", home))

        assert answer.refused == {"a"}
        assert await store.history(RunId("a")) == [(1, b"first")]
        assert await store.find(RunId("b")) is not None
        await store.close()

    async def test_a_snapshot_shortens_what_is_loaded(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(store, created("a", home))
        await self.commit(store, Transition(RunId("a"), home, 2, row=b"second", snapshot=b"at two"))
        await self.commit(store, Transition(RunId("a"), home, 3, row=b"third"))
        (stored,) = await store.load([RunId("a")])

        assert stored.snapshot == (2, b"at two")
        assert stored.rows == [(3, b"third")]
        assert len(await store.history(RunId("a"))) == 3, "the history is whole"
        await store.close()

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

    @abstractmethod
    async def take_over(self, late: Store, successor: Store) -> int:
        """Make `successor` the owner although `late` does not know; the partition where everything is then."""

    async def die(self, store: Store) -> None:
        """End the store as a dying process does, and let as much time pass as others need to be sure of it."""
        store.abandon()

    async def test_partitions_have_one_owner_and_orphans_can_be_adopted(self, tmp_path: Path) -> None:
        """Invariant 23."""
        one, two = self.open(tmp_path), self.open(tmp_path)
        first, second = await one.claim(), await two.claim()
        assert first != second
        busy = RunSummary(Status.RUNNING, True, None)
        await self.commit(one, created("a", first), created("a.1", first, busy), created("b", first, busy))
        assert await two.move(None, second) == []
        assert await two.orphaned_partitions() == []
        assert await two.owned([first, second, 4711]) == {first, second}
        await self.die(one)

        assert await two.orphaned_partitions() == [first]
        assert await two.move([RunId("a")], second) == [AdoptedRuns(first, [RunId("a.1")])]
        rows = {row.id: row.partition for row in await two.search(RunFilter())}
        assert rows == {"a": second, "a.1": second, "b": first}
        assert await two.move(None, second) == [AdoptedRuns(first, [RunId("b")])]
        assert await two.orphaned_partitions() == []
        await two.close()

    async def test_with_a_message_the_run_that_it_is_for_is_moved(self, tmp_path: Path) -> None:
        """A run that has ended stays where it is, and comes when something is there that may reopen it."""
        one, two = self.open(tmp_path), self.open(tmp_path)
        first, second = await one.claim(), await two.claim()
        over = RunSummary(Status.SUCCEEDED, False, None, 10)
        await self.commit(one, created("a", first, over), created("b", first, over), created("open", first))
        await one.send(Message(RunId("a"), 11, b"reopen"))
        await self.die(one)
        await two.move(None, second)

        rows = {row.id: row.partition for row in await two.search(RunFilter())}
        assert rows == {"a": second, "b": first, "open": second}
        assert [message.message.to for message in await two.inbox([second], 10)] == ["a"]
        await two.close()

    async def test_with_a_run_its_whole_family_is_moved(self, tmp_path: Path) -> None:
        """Invariant 32: also who has ended, for relatives that go on, or are reopened, write to it."""
        one, two = self.open(tmp_path), self.open(tmp_path)
        first, second = await one.claim(), await two.claim()
        over = RunSummary(Status.SUCCEEDED, False, None, 10)
        await self.commit(one, created("a", first, over), created("a.1", first, over), created("a.1.1", first, over))
        await self.commit(one, created("b", first), created("b.1", first, over), created("ba", first, over))
        await one.send(Message(RunId("a"), 11, b"reopen"))
        await self.die(one)
        await two.move(None, second)

        rows = {row.id: row.partition for row in await two.search(RunFilter())}
        assert rows == {**dict.fromkeys(("a", "a.1", "a.1.1", "b", "b.1"), second), "ba": first}
        await two.close()

    async def test_what_is_given_up_is_shared_by_those_who_serve(self, tmp_path: Path) -> None:
        """Invariants 21 and 23: a live owner gives up by itself, and from then on writes nothing there."""
        one, two = self.open(tmp_path), self.open(tmp_path)
        first = await one.share()
        home = first.taken[0]
        await self.commit(one, created("a", home))
        assert home not in (await two.share()).taken
        await one.give_up([home])
        refused = await one.commit([Transition(RunId("a"), home, 2, row=b"too late")])
        second = await two.share()

        assert isinstance(refused, Fenced)
        assert home in [*second.taken, *(one.partition for one in second.adopted)]
        found = await two.find(RunId("a"))
        assert found is not None
        await self.commit(two, Transition(RunId("a"), found.partition, 2, row=b"in time"))
        assert await two.history(RunId("a")) == [(1, b"first"), (2, b"in time")]
        assert not one.is_late
        assert home not in await one.rejoin()
        assert found.partition in await two.rejoin()
        await one.close()
        await two.close()

    async def test_a_message_waits_in_the_inbox_until_a_commit_consumes_it(self, tmp_path: Path) -> None:
        """Invariant 7."""
        store = self.open(tmp_path)
        home = await store.claim()
        message = Message(RunId("a"), 5, b"from b")
        answer = await self.commit(store, created("a", home), created("b", home, messages=[message]))
        sent = await store.send(Message(RunId("a"), 6, b"from outside"))
        assert await store.send(Message(RunId("nobody"), 6, b"lost")) is None
        found = await store.inbox([home], 10)

        assert [delivered.message for delivered in answer.delivered] == [message]
        assert [one.message.body for one in found] == [b"from b", b"from outside"]
        assert sent is not None and found[1].position == sent.position
        await self.commit(store, Transition(RunId("a"), home, 2, row=b"x", consumes=[found[0].position]))
        assert [one.message.body for one in await store.inbox([home], 10)] == [b"from outside"]
        await store.discard([found[1].position])
        assert await store.inbox([home], 10) == []
        await store.close()

    async def test_a_child_about_to_start_lives_where_its_sender_does(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(store, created("a", home, messages=[Message(RunId("a.1"), 5, b"start")]))

        assert [one.message.to for one in await store.inbox([home], 10)] == ["a.1"]
        await store.close()

    async def test_messages_are_sent_together_also_to_who_is_about_to_start(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(store, created("a", home, messages=[Message(RunId("a.1"), 5, b"start")]))
        assert await store.unstarted_children(RunId("a")) == ["a.1"]
        await store.send_together([Message(RunId(to), 6, b"stop", is_control=True) for to in ("a", "a.1", "a.2", "b")])

        found = [(one.message.to, one.message.body) for one in await store.inbox([home], 10)]
        assert found == [("a.1", b"start"), ("a", b"stop"), ("a.1", b"stop")]
        assert await store.unstarted_children(RunId("a.1")) == []
        await store.close()

    async def test_due_times_and_open_work_are_found_without_reading_logs(self, tmp_path: Path) -> None:
        """Invariant 9."""
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(
            store,
            created("late", home, RunSummary(Status.WAITING, False, 300)),
            created("soon", home, RunSummary(Status.WAITING, False, 100)),
            created("busy", home, RunSummary(Status.RUNNING, True, 50)),
            created("ended", home, RunSummary(Status.SUCCEEDED, False, None, 10)),
        )

        assert await store.runs_with_work([home]) == ["busy"]
        assert await store.due([home], 1_000, 10) == ["soon", "late"]
        assert await store.due([home], 200, 10) == ["soon"]
        assert await store.due([home], 1_000, 1) == ["soon"]
        assert await store.next_due([home], 0) == 100
        assert await store.next_due([home], 100) == 300
        assert await store.next_due([home], 300) is None
        parked = Transition(RunId("busy"), home, 2, row=b"x", summary=RunSummary(Status.WAITING, False, 70))
        await self.commit(store, parked)
        assert await store.runs_with_work([home]) == []
        assert await store.due([home], 1_000, 1) == ["busy"]
        await store.close()

    async def test_due_times_on_the_wall_are_compared_with_the_wall(self, tmp_path: Path) -> None:
        """Invariant 30."""
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(
            store,
            created("both", home, RunSummary(Status.WAITING, False, 150, None, 300)),
            created("wall", home, RunSummary(Status.WAITING, False, None, None, 200)),
            created("busy", home, RunSummary(Status.RUNNING, True, None, None, 50)),
        )
        row = await store.find(RunId("both"))

        assert row is not None and (row.due, row.on_wall) == (150, 300)
        assert await store.due([home], 1_000, 10) == ["both", "wall"]
        assert await store.due([home], 100, 10, 90) == []
        assert await store.due([home], 100, 10, 100) == ["wall"]
        assert await store.due([home], 100, 10, 250) == ["wall", "both"]
        assert await store.due([home], 190, 10, -100) == ["both"]
        assert await store.next_due([home], 0) == 150
        assert await store.next_due([home], 0, 100) == 100
        assert await store.next_due([home], 160, -100) == 300
        assert await store.next_due([home], 160, 300) is None
        parked = Transition(RunId("wall"), home, 2, row=b"x", summary=RunSummary(Status.WAITING, False, 70))
        await self.commit(store, parked)
        assert await store.due([home], 60, 10, 1_000) == ["both"]
        await store.close()

    async def test_root_runs_that_ended_come_in_order_of_their_end_page_by_page(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        over = [RunSummary(Status.SUCCEEDED, False, None, ended) for ended in (30, 10, 20, 20)]
        await self.commit(
            store,
            *[created(f"r{n}", home, summary) for n, summary in enumerate(over)],
            created("r0.1", home, RunSummary(Status.FAILED, False, None, 5), parent="r0"),
            created("open", home),
        )
        found: list[str] = []
        behind = (0, RunId(""))
        while page := await store.ended(["drill", "flow"], behind, 2):
            found += [row.id for row in page]
            behind = (page[-1].ended_at or 0, page[-1].id)

        assert found == ["r1", "r2", "r3", "r0"]
        assert await store.ended(["flow"], (0, RunId("")), 9) == []
        await store.close()

    async def test_large_values_belong_to_one_run_and_can_be_borrowed(self, tmp_path: Path) -> None:
        """Invariant 19."""
        store = self.open(tmp_path)
        home = await store.claim()
        first, second = digest(b"one"), digest(b"two")
        await self.commit(store, created("a", home, values=[(first, b"one"), (first, b"one"), (second, b"two")]))
        await self.commit(store, created("b", home, borrowed_values=[(RunId("a"), first)]))
        await self.commit(store, created("c", home, borrowed_values=[(RunId("a"), None)]))

        assert await store.values(RunId("a"), [first, second]) == {first: b"one", second: b"two"}
        assert await store.values(RunId("b"), [first, second]) == {first: b"one"}
        assert await store.values(RunId("c"), [first, second]) == {first: b"one", second: b"two"}
        await store.close()

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

    async def test_who_waits_for_a_permit_is_found_by_the_beginning_of_its_scope(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        scopes = {"a": "resource:X/default/*", "b": "resource:Y//other", "c": "queue:resource"}
        asked = {name: RequestedPermit(scope, 1, 0, 0, 0) for name, scope in scopes.items()}
        await self.commit(store, *[created(name, home, permits_asked=[ask]) for name, ask in asked.items()])
        await self.commit(store, created("d", home, permits_asked=[RequestedPermit("resource:free", 1, 0, 1, 0)]))

        assert await store.waiting_permits("resource:", [home]) == [("a", 1, scopes["a"]), ("b", 1, scopes["b"])]
        assert await store.waiting_permits("resource:X/default/*", [home]) == [("a", 1, scopes["a"])]
        assert await store.waiting_permits("resource:", [home + 1]) == []
        await store.close()

    async def test_permits_are_granted_by_message_as_places_become_free(self, tmp_path: Path) -> None:
        """Invariant 17."""
        store = self.open(tmp_path)
        home = await store.claim()
        asked = [RequestedPermit("scope", 1, 0, 1, at) for at in (10, 20, 30)]
        await self.commit(
            store, *[created(name, home, permits_asked=[ask]) for name, ask in zip("abc", asked, strict=True)]
        )
        assert await self.granted(store, home) == ["a"]
        await self.commit(store, Transition(RunId("a"), home, 2, row=b"x", permits_released=[1]))
        assert await self.granted(store, home) == ["a", "b"]
        await self.commit(store, Transition(RunId("b"), home, 2, row=b"x", ended=True))
        assert await self.granted(store, home) == ["a", "b", "c"]
        await store.close()

    async def test_waiting_adds_to_priority_where_it_counts(self, tmp_path: Path) -> None:
        """Invariant 17."""
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(store, created("holder", home, permits_asked=[RequestedPermit("scope", 1, 0, 1, 0)]))
        now = self.now
        asked = {
            "old": RequestedPermit("scope", 1, 0, 1, now - 250, 100),
            "important": RequestedPermit("scope", 1, 1, 1, now - 10, 100),
            "urgent": RequestedPermit("scope", 1, 9, 1, now - 10),
        }
        await self.commit(store, *[created(name, home, permits_asked=[ask]) for name, ask in asked.items()])

        for name in ("holder", "urgent", "old"):
            await self.commit(store, Transition(RunId(name), home, 2, row=b"x", ended=True))

        assert await self.granted(store, home) == ["holder", "urgent", "old", "important"]
        await store.close()

    async def test_a_line_tells_how_many_hold_a_place_and_how_high_others_stand(self, tmp_path: Path) -> None:
        """Invariant 17."""
        store = self.open(tmp_path)
        home = await store.claim()
        assert await store.line("scope", RunId("a")) == PermitQueue(0, None)
        now = self.now
        asked = {
            "a": RequestedPermit("scope", 1, 1, 2, now - 1_000, 100),  # holds one, and does not age any more
            "b": RequestedPermit("scope", 1, 3, 2, now - 10),
            "c": RequestedPermit("scope", 1, 2, 2, now - 10),
            "d": RequestedPermit("scope", 1, 0, 2, now - 950, 100),
        }
        for name, ask in asked.items():
            await self.commit(store, created(name, home, permits_asked=[ask]))

        assert await store.line("scope", RunId("c")) == PermitQueue(2, 9)
        assert await store.line("scope", RunId("d")) == PermitQueue(2, 3)
        await store.close()

    async def test_leased_tasks_have_one_holder_at_a_time(self, tmp_path: Path) -> None:
        """Invariants 11 to 13."""
        store = self.open(tmp_path)
        home = await store.claim()
        offers = [TaskOffer(number, 1, "gpu", "render", b"body") for number in (1, 2, 3)]
        await self.commit(store, created("a", home, offers=offers))
        assert await store.lease("cpu", None, "w1", 5, 2_000) == []
        assert await store.lease("gpu", ["other"], "w1", 5, 2_000) == []
        assert await store.is_offered(RunId("a"), 1)
        mine = await store.lease("gpu", ["render"], "w1", 2, 2_000)
        assert not await store.is_offered(RunId("a"), 1) and await store.is_offered(RunId("a"), 3)
        assert not await store.is_offered(RunId("a"), 4), "there is no such task"
        theirs = await store.lease("gpu", None, "w2", 5, 9_000)
        assert ([one.task for one in mine], [one.task for one in theirs]) == ([1, 2], [3])

        await self.commit(store, Transition(RunId("a"), home, 2, row=b"x", recalled=[1]))
        renewal = await store.renew("w1", mine, 3_000)
        assert renewal.lost == frozenset()
        assert renewal.recalled == {("a", 1)}
        result = Message(RunId("a"), 5, i.encode(i.TaskResult(1, 1, 1, Succeeded(b"1"))))
        assert not await store.report("w2", mine[0], result), "not the holder"
        assert await store.report("w1", mine[0], result)
        assert not await store.report("w1", mine[0], result), "turned in already"
        assert await store.expire(4_000) == 1, "w1 fell silent with task 2"
        assert (await store.renew("w1", mine[1:], 9_000)).lost == {("a", 2)}
        await store.close()

    async def test_the_row_of_a_lease_says_what_was_begun(self, tmp_path: Path) -> None:
        """Invariant 27: whoever finds the lease lost judges by it; the next delivery knows nothing of it."""
        store = self.open(tmp_path)
        home = await store.claim()
        places = [StartPlace.UNKNOWN, StartPlace.BESIDE_OTHERS, StartPlace.ALONE, StartPlace.APART, StartPlace.ALONE]
        offers = [TaskOffer(number, 1, "gpu", "render", b"body") for number in range(len(places))]
        await self.commit(store, created("a", home, offers=offers))
        leases = await store.lease("gpu", None, "w1", 9, 2_000)
        for lease, place in zip(leases, places, strict=True):
            if place:
                assert await store.begin("w1", lease, place)
        assert not await store.begin("w2", leases[0], StartPlace.ALONE), "not the holder"
        word = Message(RunId("a"), 5, i.encode(i.Clear(4, 1, outlived=True)))
        assert await store.begin("w1", leases[4], StartPlace.BESIDE_OTHERS, word)
        assert await store.expire(3_000) == len(places)
        assert not await store.begin("w1", leases[2], StartPlace.ALONE), "it is lost"
        said = [i.decode(one.message.body) for one in await store.inbox([home], 20)]

        assert [one for one in said if isinstance(one, i.Clear)] == [i.Clear(4, 1, outlived=True)]
        losses = {one.task: one.loss for one in said if isinstance(one, i.TaskLost)}
        assert losses == {
            0: LossKind.PROCESS,
            1: LossKind.BESIDE_OTHERS,
            2: LossKind.ALONE,
            3: LossKind.STOPPED,
            4: LossKind.BESIDE_OTHERS,
        }
        again = [TaskOffer(2, 2, "gpu", "render", b"body")]
        await self.commit(store, Transition(RunId("a"), home, 2, row=b"x", offers=again))
        assert len(await store.lease("gpu", None, "w1", 9, 4_000)) == 1
        assert await store.expire(5_000) == 1
        last = i.decode((await store.inbox([home], 20))[-1].message.body)
        assert isinstance(last, i.TaskLost) and (last.delivery, last.loss) == (2, LossKind.PROCESS)
        await store.close()

    async def test_a_task_that_nobody_took_is_lost_when_recalled(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(store, created("a", home, offers=[TaskOffer(1, 1, "gpu", "render", b"body")]))
        await self.commit(store, Transition(RunId("a"), home, 2, row=b"x", recalled=[1]))
        (message,) = await store.inbox([home], 10)

        assert isinstance(i.decode(message.message.body), i.TaskLost)
        assert await store.lease("gpu", None, "w1", 5, 2_000) == []
        await store.close()

    async def test_runs_are_searched_by_status_name_label_time_and_parent(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(
            store,
            created("a", home, name="x", labels={"team": "blue", 'odd "key"': "1"}, at=10),
            created("b", home, RunSummary(Status.FAILED, False, None, 30), name="y", labels={"team": "red"}, at=20),
            created("a.1", home, parent=RunId("a"), at=30),
        )
        filters: Sequence[tuple[RunFilter, list[str]]] = (
            (RunFilter(), ["a.1", "b", "a"]),
            (RunFilter(statuses=[Status.FAILED]), ["b"]),
            (RunFilter(name="x"), ["a"]),
            (RunFilter(language="other"), []),
            (RunFilter(labels={"team": "blue"}), ["a"]),
            (RunFilter(labels={"team": "blue", 'odd "key"': "1"}), ["a"]),
            (RunFilter(labels={"team": "green"}), []),
            (RunFilter(created_after=20), ["a.1", "b"]),
            (RunFilter(created_before=20), ["a"]),
            (RunFilter(parent=RunId("a")), ["a.1"]),
            (RunFilter(roots_only=True), ["b", "a"]),
            (RunFilter(limit=1), ["a.1"]),
        )
        for wanted, expected in filters:
            assert [row.id for row in await store.search(wanted)] == expected, wanted
        assert await store.find_by_prefix("a") == ["a"]
        assert await store.find_by_prefix("a.") == ["a.1"]
        assert await store.find_by_prefix("a*") == []
        await store.close()

    async def test_pruning_removes_closed_trees_leaves_first(self, tmp_path: Path) -> None:
        """Invariant 19."""
        store = self.open(tmp_path)
        home = await store.claim()
        ended = RunSummary(Status.SUCCEEDED, False, None, 10)
        await self.commit(
            store,
            created("done", home, ended),
            created("done.1", home, ended, parent=RunId("done")),
            created("open", home),
            created("open.1", home, ended, parent=RunId("open")),
        )
        removed = [await store.prune(100, 10) for _ in range(3)]

        assert sorted(itertools.chain(*removed)) == ["done", "done.1"]
        assert removed[0] == ["done.1"]
        assert await store.history(RunId("done")) == []
        assert await store.program(PROGRAM) is not None, "an open run keeps its document"
        await store.close()

    async def test_a_run_that_has_words_to_be_decided_is_marked_and_not_removed(self, tmp_path: Path) -> None:
        """Invariant 26: neither pruned nor removed; other messages do not keep it."""
        store = self.open(tmp_path)
        home = await store.claim()
        over = RunSummary(Status.SUCCEEDED, False, None, ended_at=50)
        await self.commit(store, created("a", home, over), created("b", home, over))
        await store.send(Message(RunId("b"), 60, b"no word"))
        word = await store.send(Message(RunId("a"), 60, b"a word", is_control=True))

        assert [(row.id, row.has_control_messages) for row in await store.search(RunFilter())] == [
            ("b", False),
            ("a", True),
        ]
        assert [one.message.body for one in await store.messages(RunId("a"))] == [b"a word"]
        assert await store.prune(100, 10) == ["b"]
        assert await store.prune(100, 10) == []
        assert await store.remove([RunId("a")]) == []
        assert word is not None
        await self.commit(store, Transition(RunId("a"), home, 2, row=b"x", consumes=[word.position]))
        assert not any(row.has_control_messages for row in await store.search(RunFilter()))
        assert await store.remove([RunId("a")]) == ["a"]
        await store.close()

    async def test_runs_are_removed_by_name_children_first(self, tmp_path: Path) -> None:
        """Invariant 19: what is open, or has children, stays."""
        store = self.open(tmp_path)
        home = await store.claim()
        ended = RunSummary(Status.SUCCEEDED, False, None, 10)
        await self.commit(
            store,
            created("done", home, ended),
            created("done.1", home, ended, parent=RunId("done")),
            created("open", home),
            created("kept", home, ended),
        )
        named = [RunId(name) for name in ("done", "open", "gone")]

        assert await store.remove(named) == []
        assert await store.remove([RunId("done.1"), *named]) == ["done.1", "done"]
        assert await store.find(RunId("done")) is None and await store.history(RunId("done")) == []
        assert {row.id for row in await store.search(RunFilter())} == {"open", "kept"}
        await store.close()

    async def test_a_stuck_run_says_why_and_can_be_freed(self, tmp_path: Path) -> None:
        """Invariant 3."""
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(store, created("a", home))
        await self.commit(store, Transition(RunId("a"), home, 1, stuck="KeyError: 'x'"))
        stuck = await store.find(RunId("a"))
        await self.commit(store, Transition(RunId("a"), home, 2, row=b"x", stuck=""))
        freed = await store.find(RunId("a"))

        assert stuck is not None and freed is not None
        assert (stuck.stuck, freed.stuck) == ("KeyError: 'x'", None)
        await store.close()

    async def test_nothing_is_entrusted_while_nobody_reads_more(self, tmp_path: Path) -> None:
        """Invariant 24."""
        store, other = self.open(tmp_path), self.open(tmp_path)
        home = await store.claim()
        await other.share()
        await self.commit(store, created("a", home))
        await store.send(Message(RunId("a"), 5, b"to a"))

        assert await store.transfer([RunId("a"), RunId("not there")]) == []
        assert [one.message.body for one in await store.inbox([home], 10)] == [b"to a"]
        await store.close()
        await other.close()

    async def test_others_hear_of_messages_to_their_runs(self, tmp_path: Path) -> None:
        one, two = self.open(tmp_path), self.open(tmp_path)
        first, second = await one.claim(), await two.claim()
        await self.commit(two, created("b", second))
        await self.settled(two.changed)
        await self.commit(one, created("a", first, messages=[Message(RunId("b"), 5, b"from a")]))
        await self.heard(two.changed)

        assert [one.message.body for one in await two.inbox([second], 10)] == [b"from a"]
        await one.close()
        await two.close()

    async def settled(self, changed: Callable[[], bool]) -> None:
        """Until nothing is new any more, as far as one is told at once."""
        for _ in range(100):
            if not changed():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("there is news without end")

    async def heard(self, changed: Callable[[], bool]) -> None:
        for _ in range(500):
            if changed():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("nobody was told")
