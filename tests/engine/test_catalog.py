"""The catalog: what was applied, what it becomes, who hears of it; and what runs remember for each other."""

from pathlib import Path
from typing import Any

import pytest

from perdure.engine.resources.catalog import ResourceNotFound, UnknownKind, key_of
from perdure.engine.resources.catalog_changes import Rejected
from perdure.kernel.documents.problems import Problem, Severity
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.documents.validation import AppliedDocument, DeclaredResource, Validated, ValidationContext
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.large_values import INLINE_BYTES
from perdure.testing import World
from perdure.testing.drill import Drill

pytestmark = pytest.mark.every_store

BOX, SEAL = (
    ResourceKind("Box", "boxes", "things.io", ("bx",), has_namespace=True),
    ResourceKind("Seal", "seals", "things.io"),
)


class Things(Drill):
    """A language for tests, whose documents are resources: a box may need a seal."""

    name = "things"
    kinds = (BOX, SEAL, ResourceKind("BoxRun", "boxruns", "things.io", of_runs=True))

    def __init__(self) -> None:
        super().__init__()
        self.judgements = 0

    def recognizes(self, text: bytes) -> bool:
        return b"things.io" in text

    def declares(self, text: bytes, file: str = "") -> list[DeclaredResource]:
        return [
            DeclaredResource(
                resource["kind"], resource["metadata"].get("namespace", ""), resource["metadata"]["name"], resource
            )
            for resource in jsontext.decode(text)
        ]

    def parse(self, text: bytes, around: ValidationContext | None = None) -> Validated:
        assert around is not None
        self.judgements += 1
        problems = []
        for resource in jsontext.decode(text):
            spec = resource["spec"]
            if "seal" in spec and around.find("Seal", "", spec["seal"]) is None:
                problems.append(Problem("THINGS", f"there is no seal {spec['seal']!r}"))
            if "old" in spec:
                problems.append(Problem("THINGS", "'old' is old", severity=Severity.WARNING))
        return Validated(None, problems)


def thing(kind: str, name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "things.io/v1", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec or {}}


def file(name: str, *things: dict[str, Any]) -> AppliedDocument:
    return AppliedDocument(name, jsontext.encode(list(things)).decode())


PLAYBOOK = """\
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: Sums, path: math/sums}
workflow:
- step: start
  tool: {kind: noop}
"""


class Universe(World):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.things = Things()
        self._languages = {"things": self.things, **self._languages}

    async def apply(self, *files: AppliedDocument, namespace: str = "") -> list[tuple[str, str, int]]:
        assert self.engine is not None
        changes, self.findings = await self.engine.apply(files, namespace)
        await self.settle()
        return [(change.kind.title(change.key.name), change.outcome.value, change.generation) for change in changes]

    async def get(self, kind: ResourceKind, name: str, namespace: str = "") -> dict[str, Any]:
        assert self.engine is not None
        return await self.engine.catalog.get(kind, name, namespace)


async def test_an_entry_is_created_configured_or_unchanged(tmp_path: Path) -> None:
    """A change of the spec raises the generation; a change of labels does not; nothing changed is nothing written."""
    async with Universe(tmp_path) as world:
        first = await world.apply(file("a", thing("Box", "red")))
        created = await world.get(BOX, "red")
        labelled = await world.apply(file("a", thing("Box", "red", labels={"team": "blue"})))
        changed = await world.apply(file("a", thing("Box", "red", {"size": 2}, labels={"team": "blue"})))
        before = world.things.judgements
        same = await world.apply(file("a", thing("Box", "red", {"size": 2}, labels={"team": "blue"})))
        resource = await world.get(BOX, "red")

        assert first == [("box.things.io/red", "created", 1)]
        assert labelled == [("box.things.io/red", "configured", 1)]
        assert changed == [("box.things.io/red", "configured", 2)]
        assert same == [("box.things.io/red", "unchanged", 2)]
        assert world.things.judgements == before  # STY-020: what did not change is not judged again
        assert resource["spec"] == {"size": 2}
        assert resource["metadata"]["namespace"] == "default"
        assert resource["metadata"]["uid"] == created["metadata"]["uid"]
        assert resource["metadata"]["creationTimestamp"].endswith("Z")


async def test_what_was_read_can_be_applied_again_and_a_stale_copy_is_a_conflict(tmp_path: Path) -> None:
    async with Universe(tmp_path) as world:
        await world.apply(file("a", thing("Box", "red")))
        copy = await world.get(BOX, "red")

        assert await world.apply(file("a", copy)) == [("box.things.io/red", "unchanged", 1)]
        await world.apply(file("a", thing("Box", "red", {"size": 2})))
        with pytest.raises(Conflict, match="changed meanwhile"):
            await world.apply(file("a", {**copy, "spec": {"size": 3}}))


async def test_documents_that_are_applied_together_see_each_other(tmp_path: Path) -> None:
    async with Universe(tmp_path) as world:
        box, seal = file("box", thing("Box", "red", {"seal": "wax"})), file("seal", thing("Seal", "wax"))

        assert [change[1] for change in await world.apply(box, seal)] == ["created", "created"]
        assert await world.apply(file("b", thing("Box", "blue", {"seal": "wax"}))) == [
            ("box.things.io/blue", "created", 1)
        ]


@pytest.mark.sqlite_inside
async def test_every_problem_is_told_at_once_and_nothing_is_stored(tmp_path: Path) -> None:
    async with Universe(tmp_path) as world:
        good = file("good", thing("Box", "fine", {"old": True}))
        bad = file("bad", thing("Box", "red", {"seal": "wax"}), thing("Box", "red"))
        run = file("run", thing("BoxRun", "r1"))
        with pytest.raises(Rejected) as rejected:
            await world.apply(good, bad, run, AppliedDocument("what", "what is this?"))

        rows = sorted(
            (finding.file, finding.problem.code, finding.problem.severity.value) for finding in rejected.value.findings
        )
        assert rows == [
            ("bad", "CATALOG-TWICE", "error"),
            ("bad", "THINGS", "error"),
            ("good", "THINGS", "warning"),
            ("run", "CATALOG-KIND", "error"),
            ("what", "DOC-LANGUAGE", "error"),
        ]
        (shown,) = [finding.problem for finding in rejected.value.findings if finding.problem.code == "CATALOG-KIND"]
        assert "a BoxRun cannot be applied, it shows a part of a run" in shown.message
        assert shown.hint.endswith("Remove it from the file, or start a run with `perdure run`.")
        with pytest.raises(ResourceNotFound, match=r"no box\.things\.io/fine in namespace 'default'"):
            await world.get(BOX, "fine")


async def test_a_warning_is_told_and_stops_nothing(tmp_path: Path) -> None:
    async with Universe(tmp_path) as world:
        await world.apply(file("a", thing("Box", "red", {"old": True})))

        assert [finding.problem.message for finding in world.findings] == ["'old' is old"]


async def test_a_namespace_is_filled_in_and_never_overruled(tmp_path: Path) -> None:
    async with Universe(tmp_path) as world:
        await world.apply(file("a", thing("Box", "red"), thing("Seal", "wax")), namespace="apart")

        assert (await world.get(BOX, "red", "apart"))["metadata"]["namespace"] == "apart"
        assert "namespace" not in (await world.get(SEAL, "wax"))["metadata"]
        with pytest.raises(Rejected, match="is in namespace 'here', not in 'apart' as asked"):
            await world.apply(file("a", thing("Box", "blue", namespace="here")), namespace="apart")


async def test_status_is_written_apart_and_survives_a_change_of_the_spec(tmp_path: Path) -> None:
    async with Universe(tmp_path) as world:
        assert world.engine is not None
        catalog = world.engine.catalog
        await world.apply(file("a", {**thing("Box", "red"), "status": {"ignored": True}}))
        seen = int((await world.get(BOX, "red"))["metadata"]["resourceVersion"])
        assert "status" not in await world.get(BOX, "red")
        await catalog.write_status(BOX, "red", "", {"open": True}, seen)
        await world.apply(file("a", thing("Box", "red", {"size": 2})))

        resource = await world.get(BOX, "red")
        assert (resource["status"], resource["metadata"]["generation"]) == ({"open": True}, 2)
        with pytest.raises(Conflict, match="changed meanwhile"):
            await catalog.write_status(BOX, "red", "", {"open": False}, seen)


async def test_an_entry_that_was_deleted_and_made_anew_is_another_one(tmp_path: Path) -> None:
    async with Universe(tmp_path) as world:
        assert world.engine is not None
        await world.apply(file("a", thing("Box", "red", {"size": 1}), thing("Box", "blue")))
        first = await world.get(BOX, "red")
        with pytest.raises(ResourceNotFound):
            await world.engine.catalog.row(BOX, "green")
        gone = await world.engine.catalog.delete([key_of(BOX, name) for name in ("red", "blue", "green")])
        assert sorted(key.name for key in gone) == ["blue", "red"]
        await world.apply(file("a", thing("Box", "red", {"size": 1})))

        second = await world.get(BOX, "red")
        assert first["metadata"]["uid"] != second["metadata"]["uid"]
        assert second["metadata"]["generation"] == 1


async def test_a_kind_is_known_by_name_plural_short_name_and_group(tmp_path: Path) -> None:
    async with Universe(tmp_path) as world:
        assert world.engine is not None
        catalog = world.engine.catalog

        for word in ("Box", "box", "boxes", "BX", "boxes.things.io"):
            assert catalog.kind(word) is BOX
        with pytest.raises(UnknownKind, match="did you mean 'boxes'"):
            catalog.kind("boxess")


async def test_a_playbook_is_kept_by_path_and_changed_content_is_the_next_version(tmp_path: Path) -> None:
    """PBK-210: integers n+1; identical content returns the existing version."""
    async with Universe(tmp_path) as world:
        assert world.engine is not None
        (kind,) = (kind for kind in world.engine.catalog.kinds if kind.name == "Playbook")
        first = await world.apply(AppliedDocument("sums.yaml", PLAYBOOK))
        same = await world.apply(AppliedDocument("sums.yaml", PLAYBOOK))
        changed = PLAYBOOK.replace("noop", "noop, spec: {}")
        with pytest.raises(Rejected):
            await world.apply(AppliedDocument("sums.yaml", PLAYBOOK.replace("workflow", "werkflow")))
        second = await world.apply(AppliedDocument("sums.yaml", changed))

        assert first == [("playbook.noetl.io/math/sums", "created", 1)]
        assert same == [("playbook.noetl.io/math/sums", "unchanged", 1)]
        assert second == [("playbook.noetl.io/math/sums", "configured", 2)]
        text = world.engine.catalog.text
        assert await text(kind, "math/sums") == await text(kind, "math/sums", generation=2) == changed.encode()
        assert await text(kind, "math/sums", generation=1) == PLAYBOOK.encode()
        with pytest.raises(ResourceNotFound, match="has no version 3; the latest is 2"):
            await text(kind, "math/sums", generation=3)


# What decisions ask.


async def test_a_decision_asks_the_catalog_and_records_what_it_found(tmp_path: Path) -> None:
    """Invariant 4."""
    async with Universe(tmp_path) as world:
        await world.apply(file("a", thing("Box", "red", {"size": 2})))
        run = await world.start({"drill": 1, "steps": [{"resource": "Box/default/red", "save": "result"}]})
        await world.apply(file("a", thing("Box", "red", {"size": 3})))

        assert (await run.result())["spec"] == {"size": 2}
        assert (await run.show())["variables"]["result"]["metadata"]["generation"] == 1


async def test_a_run_waits_for_an_entry_over_a_crash_and_is_woken_when_it_is_applied(tmp_path: Path) -> None:
    """Invariant 17: the wait is a permit of a scope without places; it is on disk, and nobody polls."""
    async with Universe(tmp_path) as world:
        steps = [{"resource": "Box/default/red", "save": "result"}]
        run = await world.start({"drill": 1, "steps": steps})
        other = await world.start({"drill": 1, "steps": [{"resource": "Box/apart/red"}]})
        assert (await run.show())["open"]["permits"] == ["resource:Box/default/red"]
        await world.crash()
        await world.boot()
        await world.advance(90 * 86_400)
        assert await run.status() == "waiting"
        await world.apply(file("a", thing("Box", "red", {"size": 2})))

        assert (await run.result())["spec"] == {"size": 2}
        assert await other.status() == "waiting"
        assert world.engine is not None
        late = await world.start({"drill": 1, "steps": steps})
        assert (await late.result())["spec"] == {"size": 2}
        await world.engine.catalog.delete([key_of(BOX, "red")])
        after = await world.start({"drill": 1, "steps": steps})
        assert await after.status() == "waiting"
        await world.apply(file("a", thing("Box", "red", {"size": 4})))
        assert (await after.result())["spec"] == {"size": 4}


async def test_a_value_is_remembered_for_other_runs_until_it_expires(tmp_path: Path) -> None:
    async with Universe(tmp_path) as world:
        large = "x" * (INLINE_BYTES + 1)
        keeps = [
            {"recall": "k", "save": "before"},
            {"set": {"large": large}},
            {"remember": "k", "value": "$large", "ttl": "1h"},
            {"recall": "k", "save": "after"},
            {"return": ["$before", "$after"]},
        ]
        recalls = {"drill": 1, "steps": [{"recall": "k", "save": "result"}]}
        first = await world.start({"drill": 1, "steps": keeps})

        assert await first.result() == [None, large]
        await world.crash()
        await world.boot()
        assert await (await world.start(recalls)).result() == large
        await world.advance(3_600)
        assert await (await world.start(recalls)).result() is None
