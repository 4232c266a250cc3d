"""What every store must do with the catalog and with what runs remember; a part of `StoreSuite`."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from perdure.kernel.documents.lookups import CachedValue, ResourceKey
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.tasks.permits import resource_scope
from perdure.stores.commit_types import Committed, RequestedPermit, Transition
from perdure.stores.protocol import CatalogConflict, ResourceRemoval, ResourceRow, ResourceWrite, Store
from perdure.testing.transitions import created, granted


class CatalogSuite(ABC):
    now: Instant = 1_000

    @abstractmethod
    def open(self, folder: Path) -> Store: ...

    @abstractmethod
    async def commit(self, store: Store, *batch: Transition) -> Committed: ...

    def entry(self, name: str, seen: int = 0, generation: int = 1, **more: Any) -> ResourceWrite:
        key = ResourceKey(more.pop("kind", "Engram"), more.pop("namespace", "default"), name)
        body = more.pop("body", b'{"spec": {}}')
        return ResourceWrite(
            key,
            more.pop("uid", name),
            generation,
            body,
            b"source",
            more.pop("labels", {}),
            more.pop("status", None),
            seen,
            more.pop("from_api", None),
        )

    async def written(self, store: Store, change: ResourceWrite) -> ResourceRow:
        assert await store.write_catalog([change]) is None
        return (await store.resources([change.key]))[change.key]

    async def test_an_entry_keeps_every_generation_of_what_it_said(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        first = await self.written(store, self.entry("a", body=b"1", labels={"team": "blue"}))
        self.now += 5
        second = await self.written(store, self.entry("a", first.version, 2, body=b"2"))
        third = await self.written(store, self.entry("a", second.version, 2, body=b"2", status=b"{}"))

        assert (first.uid, first.generation, first.body, first.source) == ("a", 1, b"1", b"source")
        assert (first.labels, first.status, first.created_at) == ({"team": "blue"}, None, self.now - 5)
        assert first.version < second.version < third.version
        assert (third.generation, third.status, third.labels) == (2, b"{}", {})
        assert (third.created_at, third.updated_at) == (first.created_at, self.now)
        other = await self.written(store, self.entry("b"))
        of_all = await store.list_editions(first.key.kind, first.key.namespace)
        of_one = await store.list_editions(first.key.kind, first.key.namespace, "a")
        assert [(row.key, row.uid, row.generation) for row in of_all] == [
            (first.key, "a", 1),
            (first.key, "a", 2),
            (other.key, "b", 1),
        ]
        assert of_one == of_all[:2]
        assert [(row.size, row.created_at, row.from_api) for row in of_one] == [
            (1, self.now - 5, False),
            (1, self.now, False),
        ]
        assert await store.list_editions(first.key.kind, "elsewhere") == []
        editions = [await store.edition(first.key, number) for number in (1, 2, 3)]
        assert [edition and edition.body for edition in editions] == [b"1", b"2", None]
        await store.close()

    async def test_an_entry_stays_from_the_api_until_somebody_says_otherwise(self, tmp_path: Path) -> None:
        """A change of its status does not make it the operator's."""
        store = self.open(tmp_path)
        own = await self.written(store, self.entry("own"))
        first = await self.written(store, self.entry("a", from_api=True))
        second = await self.written(store, self.entry("a", first.version, status=b"{}"))
        third = await self.written(store, self.entry("a", second.version, from_api=False))

        assert [row.from_api for row in (own, first, second, third)] == [False, True, True, False]
        await store.close()

    async def test_an_entry_is_written_only_over_the_version_its_writer_has_seen(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        first = await self.written(store, self.entry("a"))
        again = await store.write_catalog([self.entry("b"), self.entry("a")])
        await self.written(store, self.entry("a", first.version, body=b"mine"))
        late = await store.write_catalog([ResourceRemoval(first.key, first.version)])
        (now,) = await store.list_resources("Engram")

        assert again == late == CatalogConflict([first.key])
        assert now.body == b"mine"
        await store.close()

    async def test_an_entry_made_anew_is_never_mistaken_for_the_one_before(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        first = await self.written(store, self.entry("a"))
        assert await store.write_catalog([ResourceRemoval(first.key, first.version)]) is None
        assert await store.resources([first.key]) == {}
        assert await store.list_editions(first.key.kind, first.key.namespace) == []
        second = await self.written(store, self.entry("a", uid="other"))

        assert await store.write_catalog([self.entry("a", first.version)]) == CatalogConflict([first.key])
        assert second.version > first.version
        assert [row.uid for row in await store.list_editions(first.key.kind, first.key.namespace)] == ["other"]
        await store.close()

    async def test_entries_are_listed_by_kind_namespace_and_label(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        blue = {"app.io/team": "blue"}
        changes = [
            self.entry("b", labels=blue),
            self.entry("a"),
            self.entry("a", namespace="apart", uid="x", labels=blue),
            self.entry("a", kind="Story", uid="y", labels=blue),
        ]
        assert await store.write_catalog(changes) is None

        async def names(*what: Any) -> list[str]:
            rows = await store.list_resources(*what)
            sizes = [(row.key, len(row.body) + len(row.source) + len(row.status or b"")) for row in rows]
            assert await store.list_keys(*what) == sizes
            return [f"{row.key.namespace}/{row.key.name}" for row in rows]

        assert await names("Engram") == ["apart/a", "default/a", "default/b"]
        assert await names("Engram", "default") == ["default/a", "default/b"]
        assert await names("Engram", None, blue) == ["apart/a", "default/b"]
        assert await names("Engram", "default", {"app.io/team": "red"}) == []
        assert await names("Impulse") == []

        async def page(*behind: str) -> list[str]:
            rows = await store.list_resources("Engram", None, None, ((behind[0], behind[1]), 2))
            return [f"{row.key.namespace}/{row.key.name}" for row in rows]

        assert await page("", "") == ["apart/a", "default/a"]
        assert await page("default", "a") == ["default/b"] and await page("default", "b") == []
        assert await store.namespaces() == ["apart", "default"]
        await store.close()

    async def test_whoever_waits_for_an_entry_is_told_when_it_is_there(self, tmp_path: Path) -> None:
        """A request that comes too late to see it arrive is granted at once; one after its removal waits again."""
        store = self.open(tmp_path)
        home = await store.claim()
        scope = resource_scope("Engram", "default", "a")

        def waiter(run: str) -> Transition:
            return created(run, home, permits_asked=[RequestedPermit(scope, 1, 0, 0, 1)])

        await self.commit(store, waiter("early"), waiter("other"))
        await self.written(store, self.entry("unrelated"))
        assert await granted(store, home) == []

        row = await self.written(store, self.entry("a"))
        assert await granted(store, home) == ["early", "other"]
        await self.commit(store, waiter("late"))
        assert await granted(store, home) == ["early", "other", "late"]
        await store.write_catalog([ResourceRemoval(row.key, row.version)])
        await self.commit(store, waiter("after"))
        assert await granted(store, home) == ["early", "other", "late"]
        await store.close()

    async def test_what_runs_remember_is_found_until_it_expires(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        home = await store.claim()
        lasting, brief = CachedValue(b"1", self.now), CachedValue(b"2", self.now, self.now + 10)
        await self.commit(store, created("a", home, memories=[("lasting", lasting), ("brief", brief)]))

        assert await store.memories(["lasting", "brief", "never"]) == {"lasting": lasting, "brief": brief}
        self.now += 10
        assert await store.memories(["lasting", "brief"]) == {"lasting": lasting}
        newer = CachedValue(b"3", self.now)
        await self.commit(store, Transition(RunId("a"), home, 2, row=b"x", memories=[("lasting", newer)]))
        assert await store.memories(["lasting"]) == {"lasting": newer}
        await store.prune(self.now + 1, 10)
        assert await store.memories(["lasting"]) == {"lasting": newer}
        await store.close()
