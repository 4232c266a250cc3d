"""What every store must do with its change feed, its hooks and its counts of runs; a part of `StoreSuite`."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.kernel.outcomes import Status
from perdure.stores.commit_types import Committed, RunSummary, Transition
from perdure.stores.feed_changes import FeedChange
from perdure.stores.hook_deliveries import DeliveryRow
from perdure.stores.protocol import ResourceRemoval, ResourceWrite, RunFilter, Store
from perdure.stores.run_removal import LastView
from perdure.testing.transitions import created

HOUR = 3_600 * SECOND
ENDED = RunSummary(Status.SUCCEEDED, False, None, 900)
RUNNING = RunSummary(Status.RUNNING, True, None)


def told(changes: Sequence[FeedChange]) -> list[tuple[str, str | None, int, bool]]:
    return [(change.name, change.status, change.number, change.is_removed) for change in changes]


class FeedSuite(ABC):
    now: Instant = 1_000

    @abstractmethod
    def open(self, folder: Path) -> Store: ...

    async def test_labels_that_change_are_found(self, tmp_path: Path) -> None:
        """SRV-074: as those of the start are; others stay."""
        store = self.open(tmp_path)
        home = await store.claim()
        await store.commit([created("a", home, ENDED, labels={"kept": "1", "old": "1", "lost": "1"}, at=10)])
        await store.commit([created("b", home, ENDED, at=20)])
        changes: dict[str, dict[str, str | None]] = {"a": {"old": "2", "lost": None}, "b": {"new": "é"}}
        for run, labels in changes.items():
            change = Transition(RunId(run), home, 2, row=b"again", summary=ENDED, labels=labels)
            assert isinstance(await store.commit([change]), Committed)

        async def found(**labels: str) -> list[str]:
            return [row.id for row in await store.search(RunFilter(labels=labels))]

        assert await found(kept="1") == await found(old="2") == ["a"] and await found(new="é") == ["b"]
        assert await found(old="1") == await found(lost="1") == []
        row = await store.find(RunId("a"))
        assert row is not None and row.labels == {"kept": "1", "old": "2"}
        await store.remove([RunId("a")])
        assert await found(kept="1") == []
        await store.close()

    async def test_runs_are_counted_by_interval_and_status(self, tmp_path: Path) -> None:
        """SRV-013: of some namespaces or of all, the latest ones if they are too many."""
        store = self.open(tmp_path)
        home = await store.claim()
        for name, at, namespace, summary in (
            ("a", 10, "blue", RUNNING),
            ("b", 19, "blue", ENDED),
            ("c", 20, "blue", ENDED),
            ("d", 25, "red", ENDED),
            ("e", 30, "red", ENDED),
        ):
            assert isinstance(await store.commit([created(name, home, summary, namespace=namespace, at=at)]), Committed)

        everything = [(10, Status.RUNNING, 1), (10, Status.SUCCEEDED, 1), (20, Status.SUCCEEDED, 2)]
        assert sorted(await store.count_runs(None, 10, 30, 10, 100)) == everything
        assert sorted(await store.count_runs(["blue"], 0, 30, 10, 100)) == [*everything[:2], (20, Status.SUCCEEDED, 1)]
        assert await store.count_runs(["red", "green"], 0, 100, 100, 100) == [(0, Status.SUCCEEDED, 2)]
        assert await store.count_runs(None, 0, 100, 10, 1) == [(30, Status.SUCCEEDED, 1)]
        assert await store.count_runs([], 0, 100, 10, 100) == []
        ((program, name, count),) = await store.count_programs("drill")
        assert count == 5 and await store.count_programs("drill", name) == [(program, name, 5)]
        assert await store.count_programs("drill", "other") == await store.count_programs("other") == []
        assert await store.namespaces() == ["blue", "red"]
        await store.close()

    async def test_counts_of_whole_hours_are_kept_with_the_runs(self, tmp_path: Path) -> None:
        """SRV-013: whatever is created, changed and removed, the counts that are kept are those that can be counted."""
        store = self.open(tmp_path)
        home = await store.claim()
        for first in range(0, 1_200, 100):
            batch = [
                created(f"r{number}", home, RUNNING, namespace="red" if number % 3 else "blue", at=number * HOUR // 400)
                for number in range(first, first + 100)
            ]
            assert isinstance(await store.commit(batch), Committed)
            ended = [Transition(change.run, home, 2, row=b"end", summary=ENDED) for change in batch[:40]]
            assert isinstance(await store.commit(ended), Committed)
            await store.remove([change.run for change in batch[:30]])
            refused = await store.commit([created(f"r{first + 50}", home, ENDED)])
            assert isinstance(refused, Committed) and refused.refused

            for namespaces in (None, ["red"], ["blue", "green"], []):
                kept = await store.count_runs(namespaces, 0, 3 * HOUR, HOUR, None)
                assert sorted(kept) == sorted(await store.count_runs(namespaces, 0, 3 * HOUR, HOUR, 10_000))
        assert sorted(await store.count_runs(None, HOUR, 3 * HOUR, 4 * HOUR, None)) == [
            (0, Status.RUNNING, 480),
            (0, Status.SUCCEEDED, 80),
        ]
        await store.close()

    async def test_a_shown_change_is_one_row_and_a_silent_commit_is_none(self, tmp_path: Path) -> None:
        """SRV-071, Invariant 25: at most one row per run and commit, whatever else the commit writes."""
        store = self.open(tmp_path)
        home = await store.claim()
        begun = await store.open_feed(5_000)
        waiting = RunSummary(Status.WAITING, False, 50)
        for batch in (
            [created("a", home, RUNNING)],
            [Transition(RunId("a"), home, 2, row=b"x", is_shown=True)],
            [Transition(RunId("a"), home, 3, row=b"x")],
            [Transition(RunId("a"), home, 4, row=b"x", summary=waiting, is_shown=True)],
            [Transition(RunId("a"), home, 5, row=b"x", summary=replace(waiting, due=60), is_shown=True)],
            [Transition(RunId("a"), home, 6, row=b"x", summary=replace(waiting, due=70))],
        ):
            assert isinstance(await store.commit(batch), Committed)
        changes = (await store.read_feed(begun.last, 100)).changes
        assert [(change.kind, change.number) for change in changes] == [
            ("run", 1),
            ("shown", 2),
            ("run", 4),
            ("shown", 5),
        ]
        await store.close()

    async def test_each_change_of_a_status_is_one_row_and_a_step_is_none(self, tmp_path: Path) -> None:
        """SRV-071, Invariant 25: a commit that changes no status writes no row."""
        store = self.open(tmp_path)
        home = await store.claim()
        begun = await store.open_feed(5_000)
        new = created("a", home, RUNNING, labels={"team": "red"}, namespace="blue", name="nightly", at=7)
        for batch in (
            [new],
            [created("b", home)],
            [Transition(RunId("a"), home, 2, row=b"x")],
            [Transition(RunId("a"), home, 3, row=b"x", summary=RunSummary(Status.RUNNING, True, 50))],
            [Transition(RunId("a"), home, 4, row=b"x", summary=RunSummary(Status.WAITING, False, 50))],
            [created("b", home), Transition(RunId("a"), home, 6, row=b"x", summary=ENDED, ended=True)],
        ):
            assert isinstance(await store.commit(batch), Committed)
        page = await store.read_feed(begun.last, 100)

        assert told(page.changes) == [
            ("a", "running", 1, False),
            ("b", "waiting", 1, False),
            ("a", "waiting", 4, False),
            ("a", "succeeded", 6, False),
        ]
        last = page.changes[-1]
        assert (last.kind, last.namespace, last.language, last.document) == ("run", "blue", "drill", "nightly")
        assert (last.labels, last.parent, last.started_at, last.ended_at) == ({"team": "red"}, None, 7, 900)
        positions = [change.position for change in page.changes]
        assert positions == sorted(set(positions)) and positions[0] > begun.last and positions[-1] == page.last
        assert await store.read_feed(positions[1], 1) == replace(page, changes=page.changes[2:3])
        await store.close()

    async def test_entries_and_removals_tell_what_was_there(self, tmp_path: Path) -> None:
        """SRV-071: a catalog row carries the object, a removal the last object."""
        store = self.open(tmp_path)
        home = await store.claim()
        begun = await store.open_feed(5_000)
        key = ResourceKey("Thing", "ns", "one")
        assert await store.write_catalog([ResourceWrite(key, "u", 1, b'{"a":1}', b"", {"x": "y"}, None, 0)]) is None
        version = (await store.resources([key]))[key].version
        assert await store.write_catalog([ResourceRemoval(key, version)]) is None
        for name in ("old", "gone"):
            await store.commit([created(name, home, ENDED)])
        assert await store.remove([RunId("gone")]) == ["gone"]
        assert await store.prune(5_000, 10) == ["old"]
        changes = list((await store.read_feed(begun.last, 100)).changes)

        assert [(change.kind, change.name, change.is_removed) for change in changes] == [
            ("Thing", "one", False),
            ("Thing", "one", True),
            ("run", "old", False),
            ("run", "gone", False),
            ("run", "gone", True),
            ("run", "old", True),
        ]
        assert [change.body for change in changes[:2]] == [b'{"a":1}'] * 2
        assert changes[1].labels == {"x": "y"} and changes[1].number == version
        assert told(changes[4:]) == [("gone", "succeeded", 1, True), ("old", "succeeded", 1, True)]
        await store.close()

    async def test_the_removal_of_a_run_tells_what_it_showed_last(self, tmp_path: Path) -> None:
        """SRV-071: of just as many events; a run that has more by now, or ended too late, stays."""
        store = self.open(tmp_path)
        home = await store.claim()
        assert not await store.is_feed_open()
        begun = await store.open_feed(5_000)
        assert await store.is_feed_open()
        for name in ("a", "b", "c"):
            await store.commit([created(name, home, ENDED)])
        runs = [RunId(name) for name in ("a", "b", "c")]
        views = {runs[0]: LastView(1, b'[{"a":"\xc3\xa9"}]'), runs[1]: LastView(2, b"[]")}
        assert await store.prunable(ENDED.ended_at or 0, 10) == [] and await store.prunable(5_000, 2) == runs[:2]
        assert await store.remove(runs, views, ended_before=ENDED.ended_at) == []
        assert await store.remove(runs, views, ended_before=901) == ["a", "c"]
        await store.commit([Transition(runs[1], home, 2, row=b"x")])
        assert await store.remove(runs, views) == ["b"]
        changes = [change for change in (await store.read_feed(begun.last, 10)).changes if change.is_removed]
        assert [(change.name, change.number, change.body, change.entry) for change in changes] == [
            ("a", 1, b'[{"a":"\xc3\xa9"}]', None),
            ("c", 1, None, None),
            ("b", 2, b"[]", None),
        ]
        await store.close()

    async def test_nothing_is_written_for_nobody_and_a_new_feed_has_new_positions(self, tmp_path: Path) -> None:
        """SRV-071: what asks for older is told that it is gone, also after the feed was closed in between."""
        store = self.open(tmp_path)
        home = await store.claim()
        await store.commit([created("before", home)])
        first = await store.open_feed(self.now)  # not in the future: nobody wants any
        await store.commit([created("unheard", home)])
        assert not (await store.read_feed(first.last, 10)).changes
        second = await store.open_feed(self.now + 1)
        assert second.floor > first.last and not second.continues(first.last)
        await store.commit([created("heard", home)])
        page = await store.read_feed(second.last, 10)
        assert told(page.changes) == [("heard", "waiting", 1, False)]
        again = await store.open_feed(9_000)
        assert again.continues(page.last) and again.continues(second.last) and not again.continues(page.last + 1)
        await store.close()

    async def test_old_changes_are_removed_and_their_positions_are_gone(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        begun = await store.open_feed(5_000)
        for name in "abc":
            await store.commit([created(name, home)])
        positions = [change.position for change in (await store.read_feed(begun.last, 10)).changes]

        assert await store.trim_feed(self.now, 10) == 0
        assert await store.trim_feed(self.now + 1, 2) == 2
        page = await store.read_feed(positions[1], 10)
        assert [change.name for change in page.changes] == ["c"]
        assert page.continues(positions[1]) and not page.continues(positions[0])
        assert await store.trim_feed(self.now + 1, 10) == 1
        await store.commit([created("d", home)])
        assert await store.has_changed(positions[2], ["run", "shown"], "default", "d"), "before anybody has read it"
        page = await store.read_feed(positions[2], 10)
        assert page.continues(positions[2]) and [change.name for change in page.changes] == ["d"]
        assert await store.has_changed(positions[2], ["run"], "default", "d")
        for kind, namespace, name in (("Thing", "default", "d"), ("run", "red", "d"), ("run", "default", "c")):
            assert not await store.has_changed(positions[2], [kind], namespace, name)
        assert not await store.has_changed(page.last, ["run", "shown"], "default", "d")
        await store.close()

    async def test_a_hook_holds_the_feed_and_its_deliveries_are_written_once(self, tmp_path: Path) -> None:
        """SRV-043: position and deliveries are one transaction; of two servers one writes them."""
        store = self.open(tmp_path)
        home = await store.claim()
        await store.open_feed(5_000)
        (hook,) = await store.note_hooks({"h": "http://x"}, self.now, 0)
        await store.open_feed(6_000)
        await store.commit([created("a", home, ENDED)])
        (change,) = (await store.read_feed(hook.position, 10)).changes
        assert await store.trim_feed(self.now + 1, 10) == 0, "the hook has not read it"
        row = DeliveryRow("h", change.position, "a", "default", b"{}", self.now)
        assert await store.add_deliveries("h", hook.position, change.position, [row])
        assert not await store.add_deliveries("h", hook.position, change.position, [row])
        assert await store.trim_feed(self.now + 1, 10) == 1
        assert await store.deliveries("h", "open", None, 10) == [row]
        (noted,) = await store.note_hooks({"h": "http://y"}, self.now + 5, 0)
        assert (noted.address, noted.position, noted.seen_at) == ("http://y", change.position, self.now + 5)
        assert await store.note_hooks({}, self.now, self.now + 6) == []
        assert await store.deliveries("h", None, None, 10) == []
        await store.close()

    async def test_a_delivery_is_taken_by_one_and_tried_until_it_is_settled(self, tmp_path: Path) -> None:
        """SRV-043: who took it and died leaves it to others; paused hooks have nothing to take."""
        store = self.open(tmp_path)
        await store.open_feed(5_000)
        (hook,) = await store.note_hooks({"h": "http://x"}, self.now, 0)
        rows = [DeliveryRow("h", hook.position + n, f"r{n}", "default", b"{}", self.now) for n in (1, 2)]
        assert await store.add_deliveries("h", hook.position, hook.position + 2, rows)
        assert await store.pause_hook("h", is_paused=True) and not await store.pause_hook("g", is_paused=True)
        assert await store.take_deliveries(["h"], self.now, 2_000, 10) == []
        assert await store.pause_hook("h", is_paused=False)
        taken = await store.take_deliveries(["h"], self.now, 2_000, 10)
        assert [(row.run, row.attempts, row.next_at) for row in taken] == [("r1", 1, 2_000), ("r2", 1, 2_000)]
        assert await store.take_deliveries(["h", "g"], 1_999, 3_000, 10) == []
        await store.settle_delivery(replace(taken[0], state="delivered", status=204, answered_at=1_500))
        await store.settle_delivery(
            replace(taken[1], state="dead", status=500, answered_at=1_500, error="answered 500")
        )
        assert await store.take_deliveries(["h"], 9_000, 9_999, 10) == []
        assert [row.run for row in await store.deliveries("h", "dead", None, 10)] == ["r2"]
        assert [row.run for row in await store.deliveries("h", None, hook.position + 2, 10)] == ["r1"]
        assert await store.retry_deliveries("h", 4_000) == 1
        (again,) = await store.take_deliveries(["h"], 4_000, 5_000, 10)
        assert (again.run, again.attempts, again.created_at) == ("r2", 1, 4_000)
        assert await store.drop_deliveries(1_500) == 0 and await store.drop_deliveries(1_501) == 1
        await store.close()
