"""What every store must do with what is handed out: permits, and tasks under a lease; a part of `StoreSuite`."""

from abc import ABC, abstractmethod
from pathlib import Path

from msgspec.structs import replace

from perdure.kernel import inputs as i
from perdure.kernel.documents.lookups import PermitQueue
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Succeeded
from perdure.kernel.tasks.crash_attribution import LossKind, StartPlace
from perdure.stores.commit_types import Committed, Message, RequestedPermit, TaskOffer, Transition
from perdure.stores.pool_tasks import LeaseRequest
from perdure.stores.protocol import Store
from perdure.testing.transitions import created, granted


class PermitSuite(ABC):
    now: Instant = 1_000

    @abstractmethod
    def open(self, folder: Path) -> Store: ...

    @abstractmethod
    async def commit(self, store: Store, *batch: Transition) -> Committed: ...

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
        assert await granted(store, home) == ["a"]
        await self.commit(store, Transition(RunId("a"), home, 2, row=b"x", permits_released=[1]))
        assert await granted(store, home) == ["a", "b"]
        await self.commit(store, Transition(RunId("b"), home, 2, row=b"x", ended=True))
        assert await granted(store, home) == ["a", "b", "c"]
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

        assert await granted(store, home) == ["holder", "urgent", "old", "important"]
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
        assert await store.lease(LeaseRequest(["cpu"], "w1", 5, 2_000)) == []
        assert await store.lease(LeaseRequest(["gpu"], "w1", 5, 2_000, ["other"])) == []
        assert await store.is_offered(RunId("a"), 1)
        mine = await store.lease(LeaseRequest(["gpu"], "w1", 2, 2_000, ["render"]))
        assert not await store.is_offered(RunId("a"), 1) and await store.is_offered(RunId("a"), 3)
        assert not await store.is_offered(RunId("a"), 4), "there is no such task"
        theirs = await store.lease(LeaseRequest(["gpu"], "w2", 5, 9_000))
        assert ([row.task for row in mine], [row.task for row in theirs]) == ([1, 2], [3])

        await self.commit(store, Transition(RunId("a"), home, 2, row=b"x", recalled=[1], recalled_until=5_000))
        renewal = await store.renew([row.lease for row in mine], 3_000)
        assert renewal.lost == frozenset()
        assert renewal.recalled == {mine[0].lease}
        result = Message(RunId("a"), 5, i.encode(i.TaskResult(1, 1, 1, Succeeded(b"1"))))
        assert not await store.report("f" * 32, result), "no lease"
        assert await store.report(mine[0].lease, result, b"digest", 9_000)
        assert (await store.find_leases([mine[0].lease]))[mine[0].lease].answer == b"digest"
        assert not await store.report(mine[0].lease, result), "turned in already"
        assert await store.expire(4_000) == 1, "w1 fell silent with task 2"
        assert (await store.renew([mine[1].lease], 9_000)).lost == {mine[1].lease}
        await store.close()

    async def test_the_same_request_for_tasks_gets_the_same_and_another_one_is_refused(self, tmp_path: Path) -> None:
        """Under one key, while leases of it last."""
        store = self.open(tmp_path)
        home = await store.claim()
        offers = [TaskOffer(number, 1, "gpu", "render", b"body") for number in (1, 2, 3)]
        await self.commit(store, created("a", home, offers=offers))
        request = LeaseRequest(["gpu"], "w1", 2, 2_000, key="k", content=b"two")
        mine = await store.lease(request)
        assert [row.task for row in mine] == [1, 2]
        assert await store.lease(request) == mine
        for other in (b"three", b""):
            try:
                await store.lease(replace(request, content=other))
            except Conflict:
                continue
            raise AssertionError("another request has used the key")
        (third,) = await store.lease(replace(request, key="l"))
        assert third.task == 3
        for row in mine:
            assert await store.release(row.lease)
        again = await store.lease(replace(request, content=b"three"))
        assert [row.task for row in again] == [1, 2], "no lease of it lasts"
        await store.close()

    async def test_a_lease_goes_on_with_the_next_task_of_its_pipeline(self, tmp_path: Path) -> None:
        """Only one that lasts, and was not recalled, and in its own pool; otherwise the next task is offered."""
        store = self.open(tmp_path)
        home = await store.claim()
        offers = [TaskOffer(number, 1, "gpu", "render", b"body", pipeline=b"p") for number in (1, 2, 3, 4)]
        await self.commit(store, created("a", home, offers=offers))
        leases = await store.lease(LeaseRequest(["gpu"], "w1", 9, 2_000, holder="token"))
        kept, lost, recalled, elsewhere = (lease.lease for lease in leases)
        message = Message(RunId("a"), 5, i.encode(i.TaskResult(1, 1, 1, Succeeded(b"1"))))
        assert not await store.report_outcome(kept, 2, b"second", message), "another outcome is next"
        assert await store.report_outcome(kept, 1, b"first", message)
        assert (await store.find_leases([kept]))[kept].reported == b"first"
        assert not await store.release(kept), "it has reported something"
        await store.renew([kept, recalled, elsewhere], 9_000)
        assert await store.expire(3_000) == 1
        await self.commit(store, Transition(RunId("a"), home, 2, row=b"x", recalled=[3], recalled_until=9_000))
        follows = {5: (kept, "gpu"), 6: (lost, "gpu"), 7: (recalled, "gpu"), 8: (elsewhere, "cpu")}
        next_ones = [
            TaskOffer(number, 1, pool, "render", b"next", follows=lease, number=2, reported=b"first")
            for number, (lease, pool) in follows.items()
        ]
        change = Transition(RunId("a"), home, 3, row=b"x", offers=next_ones, withdrawn=[1, 2, 3, 4])
        await self.commit(store, change)
        left = await store.find_leases([lease.lease for lease in leases])
        assert list(left) == [kept]
        row = left[kept]
        assert (row.task, row.worker, row.until, row.number, row.reported) == (5, "w1", 9_000, 2, b"first")
        assert row.body == b"next"
        again = await store.lease(LeaseRequest(["gpu", "cpu"], "w2", 9, 20_000))
        assert [(other.task, other.number, other.reported) for other in again] == [
            (6, 1, b""),
            (7, 1, b""),
            (8, 1, b""),
        ]
        await store.expire(10_000)
        redelivered = TaskOffer(5, 2, "gpu", "render", b"again")
        await self.commit(store, Transition(RunId("a"), home, 4, row=b"x", offers=[redelivered]))
        (heir,) = await store.lease(LeaseRequest(["gpu"], "w3", 9, 20_000))
        assert (heir.task, heir.delivery, heir.number, heir.reported) == (5, 2, 1, b"")
        await store.close()

    async def test_the_row_of_a_lease_says_what_was_begun(self, tmp_path: Path) -> None:
        """Invariant 27: whoever finds the lease lost judges by it; the next delivery knows nothing of it."""
        store = self.open(tmp_path)
        home = await store.claim()
        places = [StartPlace.UNKNOWN, StartPlace.BESIDE_OTHERS, StartPlace.ALONE, StartPlace.APART, StartPlace.ALONE]
        offers = [TaskOffer(number, 1, "gpu", "render", b"body") for number in range(len(places))]
        await self.commit(store, created("a", home, offers=offers))
        leases = await store.lease(LeaseRequest(["gpu"], "w1", 9, 2_000))
        for lease, place in zip(leases, places, strict=True):
            if place:
                assert await store.begin(lease.lease, place)
        assert not await store.begin("f" * 32, StartPlace.ALONE), "no lease"
        word = Message(RunId("a"), 5, i.encode(i.Clear(4, 1, outlived=True)))
        assert await store.begin(leases[4].lease, StartPlace.BESIDE_OTHERS, word)
        assert await store.expire(3_000) == len(places)
        assert not await store.begin(leases[2].lease, StartPlace.ALONE), "it is lost"
        inputs = [i.decode(row.message.body) for row in await store.inbox([home], 20)]

        assert [row for row in inputs if isinstance(row, i.Clear)] == [i.Clear(4, 1, outlived=True)]
        losses = {row.task: row.loss for row in inputs if isinstance(row, i.TaskLost)}
        assert losses == {
            0: LossKind.PROCESS,
            1: LossKind.BESIDE_OTHERS,
            2: LossKind.ALONE,
            3: LossKind.STOPPED,
            4: LossKind.BESIDE_OTHERS,
        }
        again = [TaskOffer(2, 2, "gpu", "render", b"body")]
        await self.commit(store, Transition(RunId("a"), home, 2, row=b"x", offers=again))
        assert len(await store.lease(LeaseRequest(["gpu"], "w1", 9, 4_000))) == 1
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
        assert await store.lease(LeaseRequest(["gpu"], "w1", 5, 2_000)) == []
        await store.close()

    async def test_a_recalled_lease_lasts_as_long_as_its_grace(self, tmp_path: Path) -> None:
        """Of a run that goes on it is lost then; of one that has ended nothing is left but what its worker is told."""
        store = self.open(tmp_path)
        home = await store.claim()
        offers = [TaskOffer(number, 1, "gpu", "render", b"body") for number in (1, 2)]
        for name in ("a", "b"):
            await self.commit(store, created(name, home, offers=[*offers, TaskOffer(3, 1, "cpu", "render", b"body")]))
        leases = await store.lease(LeaseRequest(["gpu"], "w1", 9, 90_000))
        by_run = {name: [row.lease for row in leases if row.run == name] for name in ("a", "b")}
        for name, has_ended in (("a", False), ("b", True)):
            change = Transition(RunId(name), home, 2, row=b"x", recalled=[1, 2, 3], recalled_until=20_000)
            change.ended = has_ended
            await self.commit(store, change)

        renewal = await store.renew([row.lease for row in leases], 80_000)
        assert renewal.recalled == {row.lease for row in leases} and renewal.lost == frozenset()
        rows = await store.find_leases([row.lease for row in leases])
        assert {(row.until, row.is_let_go) for row in rows.values()} == {(20_000, True)}
        assert await store.report(by_run["b"][0], None, b"digest", 99_000)
        assert not await store.report(by_run["b"][0], None, b"other", 99_000)
        assert not await store.touch(by_run["b"][1]) and not await store.release(by_run["b"][1])
        assert await store.expire(20_000) == 2, "those of the run that goes on"
        left = await store.find_leases([row.lease for row in leases])
        assert {lease: row.answer for lease, row in left.items()} == {by_run["b"][0]: b"digest"}
        await store.close()
