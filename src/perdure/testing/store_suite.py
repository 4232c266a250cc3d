"""What every store must do. A backend passes by subclassing this and saying how it is opened."""

import asyncio
import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from perdure.kernel.json_values.values import RunId, digest
from perdure.kernel.outcomes import Status
from perdure.stores.commit_types import (
    LOG_BYTES_PER_ATTEMPT,
    LOG_BYTES_PER_RUN,
    Committed,
    Message,
    RunSummary,
    TaskLogRow,
    Transition,
)
from perdure.stores.protocol import RunFilter, Store
from perdure.testing.access_suite import AccessSuite
from perdure.testing.catalog_suite import CatalogSuite
from perdure.testing.feed_suite import FeedSuite
from perdure.testing.name_suite import NameSuite
from perdure.testing.partition_suite import PartitionSuite
from perdure.testing.permit_suite import PermitSuite
from perdure.testing.transitions import PROGRAM, TEXT, created


class StoreSuite(AccessSuite, CatalogSuite, FeedSuite, NameSuite, PartitionSuite, PermitSuite):
    """Each test opens its own store; `now` is the clock the store reads."""

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

    async def test_a_message_waits_in_the_inbox_until_a_commit_consumes_it(self, tmp_path: Path) -> None:
        """Invariant 7."""
        store = self.open(tmp_path)
        home = await store.claim()
        message = Message(RunId("a"), 5, b"from b")
        answer = await self.commit(store, created("a", home), created("b", home, messages=[message]))
        sent = await store.send(Message(RunId("a"), 6, b"from outside"))
        assert await store.send(Message(RunId("nobody"), 6, b"lost")) is None
        rows = await store.inbox([home], 10)

        assert [delivered.message for delivered in answer.delivered] == [message]
        assert [entry.message.body for entry in rows] == [b"from b", b"from outside"]
        assert sent is not None and rows[1].position == sent.position
        await self.commit(store, Transition(RunId("a"), home, 2, row=b"x", consumes=[rows[0].position]))
        assert [entry.message.body for entry in await store.inbox([home], 10)] == [b"from outside"]
        await store.discard([rows[1].position])
        assert await store.inbox([home], 10) == []
        await store.close()

    async def test_a_child_about_to_start_lives_where_its_sender_does(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(store, created("a", home, messages=[Message(RunId("a.1"), 5, b"start")]))

        assert [entry.message.to for entry in await store.inbox([home], 10)] == ["a.1"]
        await store.close()

    async def test_messages_are_sent_together_also_to_who_is_about_to_start(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(store, created("a", home, messages=[Message(RunId("a.1"), 5, b"start")]))
        assert await store.unstarted_children(RunId("a")) == ["a.1"]
        await store.send_together([Message(RunId(to), 6, b"stop", is_control=True) for to in ("a", "a.1", "a.2", "b")])

        rows = [(entry.message.to, entry.message.body) for entry in await store.inbox([home], 10)]
        assert rows == [("a.1", b"start"), ("a", b"stop"), ("a.1", b"stop")]
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
        rows: list[str] = []
        behind = (0, RunId(""))
        while page := await store.ended(["drill", "flow"], behind, 2):
            rows += [row.id for row in page]
            behind = (page[-1].ended_at or 0, page[-1].id)

        assert rows == ["r1", "r2", "r3", "r0"]
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
        assert await store.value_sizes(RunId("b"), [first, second]) == {first: 3}
        await store.close()

    async def test_stream_rows_are_written_removed_and_go_with_their_run(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(store, created("a", home), created("b", home, stream_rows=[(b"p1", b"of b")]))
        first = [(b"p\0\1", b"one"), (b"p\0\2", b"two"), (b"s", b"3"), (b"absent", None)]
        await self.commit(store, Transition(RunId("a"), home, 0, stream_rows=first))
        await self.commit(store, Transition(RunId("a"), home, 0, stream_rows=[(b"p\0\1", None), (b"s", b"4")]))

        assert await store.stream_rows(RunId("a")) == [(b"p\0\2", b"two"), (b"s", b"4")]
        assert await store.stream_rows(RunId("a"), b"s") == [(b"s", b"4")]
        assert await store.history(RunId("a")) == [(1, b"first")], "rows of streams are no events"
        await self.commit(store, Transition(RunId("a"), home, 2, summary=RunSummary(Status.SUCCEEDED, False, None, 5)))
        assert await store.remove([RunId("a")]) == ["a"]
        await self.commit(store, created("a", home))
        assert await store.stream_rows(RunId("a")) == []
        assert await store.stream_rows(RunId("b")) == [(b"p1", b"of b")]
        await store.close()

    async def test_task_logs_are_bounded_and_go_with_their_run(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        await self.commit(store, created("a", home), created("b", home, RunSummary(Status.FAILED, False, None, 30)))
        piece = LOG_BYTES_PER_ATTEMPT // 4

        def row(run: str, task: int, first: int, size: int = piece) -> TaskLogRow:
            return TaskLogRow(RunId(run), task, 1, 1, "step", first, 1, b"x" * size)

        await store.write_task_logs([row("a", 1, first) for first in range(1, 8)] + [row("missing", 1, 1)])
        await store.write_task_logs([row("b", 1, 1, 10), row("a", 2, 1, 10)])
        kept = await store.task_logs(RunId("a"))

        assert [(entry.task, entry.first_line) for entry in kept] == [(1, 4), (1, 5), (1, 6), (1, 7), (2, 1)]
        assert await store.task_logs(RunId("a"), kept[-2].position) == kept[-1:]
        for task in range(3, 3 + 2 * LOG_BYTES_PER_RUN // LOG_BYTES_PER_ATTEMPT):
            await store.write_task_logs([row("a", task, first) for first in range(1, 5)])
        whole = await store.task_logs(RunId("a"))
        assert sum(len(entry.body) for entry in whole) == LOG_BYTES_PER_RUN
        assert whole[-1].task == 2 + 2 * LOG_BYTES_PER_RUN // LOG_BYTES_PER_ATTEMPT
        assert await store.remove([RunId("b")]) == ["b"]
        assert await store.task_logs(RunId("b")) == []
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
            (RunFilter(behind=(30, RunId("z"))), ["a.1", "b", "a"]),
            (RunFilter(behind=(30, RunId("a.1"))), ["b", "a"]),
            (RunFilter(behind=(20, RunId("a")), name="x"), ["a"]),
            (RunFilter(behind=(10, RunId("a"))), []),
        )
        for filter, expected in filters:
            assert [row.id for row in await store.search(filter)] == expected, filter
        assert await store.find_by_prefix("a") == ["a"]
        assert await store.find_by_prefix("a.") == await store.find_by_prefix("a.…1") == ["a.1"]
        assert await store.find_by_prefix("a*") == await store.find_by_prefix("a…2") == []
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
        assert [entry.message.body for entry in await store.messages(RunId("a"))] == [b"a word"]
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

    async def test_others_hear_of_messages_to_their_runs(self, tmp_path: Path) -> None:
        entry, two = self.open(tmp_path), self.open(tmp_path)
        first, second = await entry.claim(), await two.claim()
        await self.commit(two, created("b", second))
        await self.settled(two.changed)
        await self.commit(entry, created("a", first, messages=[Message(RunId("b"), 5, b"from a")]))
        await self.heard(two.changed)

        assert [entry.message.body for entry in await two.inbox([second], 10)] == [b"from a"]
        await entry.close()
        await two.close()

    async def settled(self, changed: Callable[[], bool]) -> None:
        """Until nothing is new any more, as far as one is told at once."""
        for _ in range(100):
            if not changed():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("there is news without end")

    async def heard(self, changed: Callable[[], bool]) -> None:
        for _ in range(6_000):
            if changed():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("nobody was told")
