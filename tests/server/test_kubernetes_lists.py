"""What a page of a list costs, counted in runs that are folded and rows that are read (SRV-013, SRV-074)."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import perdure
from perdure.engine.resources.resource_views import MOST_KEPT, shortened
from perdure.engine.runs.retention import delete_run
from perdure.kernel import inputs as i
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.input_recording import why_refused
from perdure.kernel.json_values.values import SECOND, RunId
from perdure.server.kubernetes import event_objects
from perdure.server.kubernetes.catalog_objects import CatalogObjects
from perdure.server.kubernetes.feed_tail import FeedTail
from perdure.server.kubernetes.run_objects import RunObjects
from perdure.server.kubernetes.run_resources import RunViews, shown_objects
from perdure.server.kubernetes.selectors import ObjectQuery, ObjectSelection
from perdure.stores.protocol import RunFilter

RUNS, STORIES = 30, 12


class CountedStore:
    """A store, and how many rows it was asked for."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.rows: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if name not in ("search", "load", "list_resources", "resources", "count_programs"):
            return verb

        async def count(*arguments: Any) -> Any:
            rows = await verb(*arguments)
            self.rows[name] += len(rows)
            return rows

        return count


def document(group: str, kind: str, name: str, spec: dict[str, Any]) -> AppliedDocument:
    head = {"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": {"name": name}}
    return AppliedDocument(name, json.dumps({**head, "spec": spec}))


class Lists:
    """The lists of one server."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.store = engine.store = CountedStore(engine.store)
        self.views = RunViews()
        caller = SimpleNamespace(narrowed=lambda name: None if name is None else [name], sees=lambda name: True)
        self._call: Any = SimpleNamespace(engine=engine, caller=caller)

    def _resource(self, kind: str) -> Any:
        resource_kind: ResourceKind = self.engine.catalog.kind(kind)
        return SimpleNamespace(kind=resource_kind, title=resource_kind.name)

    async def runs(
        self, limit: int = 0, behind: Any = (), labels: str = "", kind: str = "StoryRun"
    ) -> tuple[list[str], Any]:
        objects = RunObjects(self._call, self._resource(kind), self.views)
        return await self._page(objects, limit, behind, labels)

    async def stories(self, limit: int = 0, behind: Any = ()) -> tuple[list[str], Any]:
        return await self._page(CatalogObjects(self._call, self._resource("Story")), limit, behind, "")

    async def events(self, limit: int = 0, behind: Any = ()) -> tuple[list[str], Any]:
        return await self._page(event_objects.EventObjects(self._call, self._resource("Story")), limit, behind, "")

    async def _page(self, objects: Any, limit: int, behind: Any, labels: str) -> tuple[list[str], Any]:
        self.store.rows.clear()
        self.views.folds = 0
        selection = ObjectSelection(ObjectQuery(label_selector=labels))
        items, last = await objects.page("default", selection, limit, behind)
        return [item["metadata"]["name"] for item in items], last


@asynccontextmanager
async def filled(tmp_path: Path) -> AsyncIterator[Lists]:
    steps = [{"name": "a", "type": "condition", "if": "{{ true }}"}]
    async with perdure.Engine(f"sqlite:///{tmp_path / 'lists.db'}") as engine:
        stories = [document("bubustack.io", "Story", f"s{number:02}", {"steps": steps}) for number in range(STORIES)]
        await engine.apply(stories, "default")
        spec = {"storyRef": {"name": "s00"}}
        runs = [document("runs.bubustack.io", "StoryRun", f"r{number:02}", spec) for number in range(RUNS)]
        await engine.apply(runs, "default")
        for row in await engine.search(RunFilter()):
            await engine.wait(row.id)
        yield Lists(engine)


async def test_a_page_reads_and_folds_what_it_shows(tmp_path: Path) -> None:
    async with filled(tmp_path) as lists:
        names, behind = await lists.runs(limit=5)
        assert len(names) == 5 and lists.views.folds == 6
        assert lists.store.rows == {"search": 6, "load": 6}
        more, _ = await lists.runs(limit=5, behind=behind)
        assert len({*names, *more}) == 10 and lists.store.rows["load"] == 7 and lists.views.folds == 5

        everything, behind = await lists.runs()
        assert len(everything) == RUNS and behind is None and lists.views.folds == RUNS - 11
        await lists.runs()
        assert lists.views.folds == 0


async def test_labels_of_runs_are_found_without_looking_at_the_others(tmp_path: Path) -> None:
    async with filled(tmp_path) as lists:
        run = (await lists.engine.search(RunFilter(labels={"bubustack.io/storyrun": "r07"})))[0].id
        await lists.runs()
        for labels in ({"given": "later", "gone": "soon"}, {"gone": None}):
            sent = await lists.engine.tell(run, i.Steer("metadata", json.dumps({"labels": labels}).encode()))
            assert sent.is_decided
        assert (await lists.runs(labels="given=later"))[0] == ["r07"]
        assert lists.store.rows["load"] == lists.views.folds == 1
        assert (await lists.runs(labels="gone=soon"))[0] == [] and lists.store.rows["load"] == 0
        assert (await lists.runs(labels="given,bubustack.io/story-name=s00"))[0] == ["r07"]
        assert (await lists.runs(labels="bubustack.io/storyrun=r07", kind="StepRun"))[0] == []
        assert lists.store.rows["load"] == 1


async def test_a_page_of_entries_reads_that_page(tmp_path: Path) -> None:
    """Also of who manages their fields; how many runs there are of each is counted by the store."""
    async with filled(tmp_path) as lists:
        names, behind = await lists.stories(limit=5)
        assert names == ["s00", "s01", "s02", "s03", "s04"]
        assert lists.store.rows == {"list_resources": 6, "count_programs": 1}
        names, behind = await lists.stories(limit=7, behind=behind)
        assert names[0] == "s05" and len(names) == 7 and behind is None


async def test_events_of_every_run_are_listed_page_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SRV-077: not only those of the latest runs; a page reads the runs whose events it shows."""
    monkeypatch.setattr(event_objects, "RUNS_AT_ONCE", 4)
    async with filled(tmp_path) as lists:
        everything, behind = await lists.events()
        assert len({name.rpartition(".")[0] for name in everything}) == RUNS and behind is None
        first, behind = await lists.events(limit=10)
        assert first == everything[:10] and lists.store.rows["search"] == 4
        pages = [first]
        while behind is not None:
            page, behind = await lists.events(limit=10, behind=behind)
            pages.append(page)
        assert [name for page in pages for name in page] == everything


async def test_of_writers_who_saw_the_same_version_one_wins(tmp_path: Path) -> None:
    """SRV-075: the owner compares when it decides, not who sends."""
    async with filled(tmp_path) as lists:
        run = (await lists.engine.search(RunFilter(limit=1)))[0].id
        seen = (await lists.engine.execution(run)).state.seq
        changes = [
            i.Steer("metadata", json.dumps({"labels": {"n": str(number)}}).encode(), seen=seen) for number in range(5)
        ]
        answers = await asyncio.gather(*(lists.engine.tell(run, change) for change in changes), return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answers) == ["Conflict"] * 4 + ["SendResult"]
        now = await lists.engine.execution(run)
        assert why_refused(now, i.Cancel(seen=seen)) == "it has changed since its sender looked at it"


async def test_a_removal_tells_what_the_run_and_its_parts_showed_last(tmp_path: Path) -> None:
    """SRV-071, SRV-075: to who has never seen them, however they are removed; selectors have what they ask for."""
    async with filled(tmp_path) as lists:
        engine, store = lists.engine, lists.engine.store
        begun = await store.open_feed(engine.clock.now() + 60 * SECOND)
        first, *others = [row.id for row in await engine.search(RunFilter())]
        label = {"labels": {"team": "red"}, "annotations": {"note": "last"}}
        assert (await engine.tell(first, i.Steer("metadata", json.dumps(label).encode()))).is_decided
        shown = {run: await shown_objects(engine, await engine.execution(run)) for run in (first, *others)}
        await delete_run(engine, first)
        assert await engine.prune(engine.clock.now() + SECOND) == RUNS - 1

        removals = [change for change in (await store.read_feed(begun.last, 100)).changes if change.is_removed]
        assert removals[0].name == first and len(removals) == RUNS
        for change in removals:
            meaning = await FeedTail(engine, RunViews()).meaning(change)
            assert [changed.before for changed in meaning] == shown[RunId(change.name)]
            assert [changed.after for changed in meaning] == [None]
        assert shown[first][0]["metadata"]["labels"]["team"] == "red"


def test_what_a_large_run_showed_is_kept_in_part() -> None:
    """Metadata stay, by which it is selected."""
    head = {"apiVersion": "v1", "kind": "StoryRun", "metadata": {"name": "r"}, "status": {"phase": "Succeeded"}}
    part = {"apiVersion": "v1", "kind": "StepRun", "metadata": {"name": "s"}, "status": {"output": "x" * MOST_KEPT}}
    kept = json.loads(shortened([head, part, head]))
    assert kept == [head, {name: part[name] for name in ("apiVersion", "kind", "metadata")}, head]
