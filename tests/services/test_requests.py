"""Durable requests to start Stories: decided once, whatever crashes and however many ask."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.story import Story
from perdure.dialects.story.triggers.requests import Delivery, compose_trigger
from perdure.engine.resources.catalog_changes import Outcome, Rejected
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.errors import Conflict, InvalidDocument, ReferenceNotAvailable
from perdure.kernel.json_values import jsontext
from perdure.services.story.triggers.requests import TRIGGER, Requests
from perdure.stores.protocol import ResourceWrite, RunFilter, Store
from perdure.testing.world import World
from perdure.wiring import Engine
from tests.dialects.story.world import story
from tests.services.story_engine import NEEDED, ORDERS, SAY, WORK, DyingStore, engine_of, runs, story_run, texts

TOKEN = "storyrun.bubustack.io/trigger-token"
HASH = "storyrun.bubustack.io/trigger-input-hash"
REQUEST = "storyrun.bubustack.io/trigger-request-"


async def applied(world: World, *resources: Any) -> None:
    await engine_of(world).apply(texts(*NEEDED, *resources))


async def test_a_token_is_told_apart_by_namespace_and_story_not_by_how_inputs_are_written(tmp_path: Path) -> None:
    """STY-144 STY-146 STY-153"""
    other = story(SAY, "orders", "shop")
    async with World(tmp_path, functions=WORK) as world:
        engine = engine_of(world)
        started = [
            await engine.start(document, {"n": 1, "m": 2.0}, token="T", applied=texts(*NEEDED[1:]))
            for document in (ORDERS, other)
        ]
        again = await engine.start(ORDERS, {"m": 2, "n": 1.0}, token="T", applied=texts(*NEEDED[1:]))

        assert started[0].id == again.id != started[1].id
        assert [run["metadata"]["namespace"] for run in await runs(engine)] == ["shop", "default"]
        with pytest.raises(Conflict):
            await engine.start(ORDERS, {"n": 2}, token="T", applied=texts(*NEEDED[1:]))
        assert len(await runs(engine)) == 2


async def test_none_and_no_inputs_are_the_same_start(tmp_path: Path) -> None:
    """STY-145 STY-153"""
    async with World(tmp_path, functions=WORK) as world:
        first = await engine_of(world).start(ORDERS, None, token="T", applied=texts(*NEEDED[1:]))
        again = await engine_of(world).start(ORDERS, {}, token="T", applied=texts(*NEEDED[1:]))
        assert first.id == again.id


async def test_a_run_that_is_applied_begins_once_and_only_changes_to_be_cancelled(tmp_path: Path) -> None:
    """STY-047 STY-049"""
    async with World(tmp_path, held={"engram:echo@1.0.0"}) as world:
        engine = engine_of(world)
        await applied(world)
        notes = {"labels": {"team": "blue"}, "annotations": {"why": "by hand"}}
        asked = story_run("mine", inputs={"n": 1}, metadata=notes)
        ((created,), _), ((again,), _) = [await engine.apply(texts(asked)) for _ in range(2)]
        await world.settle()
        assert (created.outcome, again.outcome) == (Outcome.CREATED, Outcome.UNCHANGED)
        (shown,) = await runs(engine)
        assert shown["metadata"]["name"] == "mine" and shown["status"]["phase"] == "Running"
        assert shown["metadata"]["labels"]["team"] == "blue" and shown["metadata"]["annotations"]["why"] == "by hand"
        assert shown["spec"] == {"storyRef": {"name": "orders"}, "inputs": {"n": 1}}

        for changed in (
            story_run("mine", inputs={"n": 2}),
            story_run("mine", inputs={"n": 1}, impulseRef={"name": "x"}),
        ):
            with pytest.raises(Rejected, match="immutable"):
                await engine.apply(texts(changed))

        ((cancelled,), _) = await engine.apply(texts(story_run("mine", inputs={"n": 1}, cancelRequested=True)))
        assert cancelled.outcome is Outcome.CONFIGURED
        ((twice,), _) = await engine.apply(texts(story_run("mine", inputs={"n": 1}, cancelRequested=True)))
        assert twice.outcome is Outcome.UNCHANGED


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (story_run("a", storyRef={"name": "gone"}), "referenced story 'default/gone' not found"),
        (story_run("a", storyRef={"name": "orders", "version": "v2"}), "has version '', expected 'v2'"),
        (story_run("a", inputs={"n": "x"}), "StoryRun inputs failed schema validation"),
        (story_run("a", metadata={"annotations": {TOKEN: "T"}}), "metadata.name must be"),
    ],
)
async def test_a_run_that_admission_refuses_leaves_nothing(tmp_path: Path, asked: Any, message: str) -> None:
    """STY-047 STY-048"""
    async with World(tmp_path, functions=WORK) as world:
        await applied(world)
        with pytest.raises(Rejected, match=message):
            await engine_of(world).apply(texts(asked, story(SAY, "another")))
        assert await runs(engine_of(world)) == []
        assert await engine_of(world).catalog.find("another") is None


async def test_a_run_with_a_token_that_is_applied_is_the_run_of_that_token(tmp_path: Path) -> None:
    """STY-048 STY-144"""
    async with World(tmp_path, functions=WORK) as world:
        engine = engine_of(world)
        await applied(world)
        handle = await engine.start(ORDERS, {"n": 1}, token="T", applied=texts(*NEEDED[1:]))
        metadata = (await engine.show(handle.id))["metadata"]
        asked = story_run(metadata["name"], inputs={"n": 1}, metadata={"annotations": metadata["annotations"]})
        ((change,), _) = await engine.apply(texts(asked))
        assert change.outcome is Outcome.UNCHANGED
        assert len(await runs(engine)) == 1


async def test_the_end_of_a_name_may_be_left_to_the_engine(tmp_path: Path) -> None:
    """STY-047"""
    async with World(tmp_path, functions=WORK) as world:
        await applied(world)
        asked = story_run(metadata={"generateName": "orders-"})
        changes = [change for _ in range(2) for change in (await engine_of(world).apply(texts(asked)))[0]]
        names = {change.key.name for change in changes}
        assert len(names) == 2 and all(name.startswith("orders-") for name in names)
        assert {run["metadata"]["name"] for run in await runs(engine_of(world))} == names


async def test_a_trigger_creates_its_run_and_says_so(tmp_path: Path) -> None:
    """STY-147 STY-148 STY-149 STY-150"""
    async with World(tmp_path, functions=WORK) as world:
        await applied(world)
        decided = await engine_of(world).trigger("orders", {"n": 1}, key="github:pull_request:37")
        await world.settle()

        assert decided["metadata"]["name"] == "orders-trigger-21f52154fe18d782"
        status = decided["status"]
        assert (status["decision"], status["reason"]) == ("Created", "StoryRunCreated")
        assert status["acceptedAt"] <= status["completedAt"]
        assert status["conditions"][0]["status"] == "True"
        (run,) = await runs(engine_of(world))
        assert (
            run["metadata"]["name"] == status["storyRunRef"]["name"] == "orders-github-pull-request-37-21f52154fe18d782"
        )
        notes = run["metadata"]["annotations"]
        assert notes[f"{REQUEST}name"] == decided["metadata"]["name"]
        assert notes[f"{REQUEST}uid"] == decided["metadata"]["uid"]
        assert notes[TOKEN] == "github:pull_request:37"
        assert notes[HASH] == decided["spec"]["deliveryIdentity"]["inputHash"]
        assert run["status"]["phase"] == "Succeeded"
        assert await engine_of(world).store.list_resources("PendingStoryTrigger") == []


async def test_without_a_token_each_submission_is_another(tmp_path: Path) -> None:
    """STY-152 STY-150 STY-272: at least once, duplicates possible."""
    async with World(tmp_path, functions=WORK) as world:
        await applied(world)
        decided = [await engine_of(world).trigger("orders", {"n": 1}) for _ in range(3)]
        assert {answer["status"]["decision"] for answer in decided} == {"Created"}
        started = await runs(engine_of(world))
        assert len({run["metadata"]["name"] for run in started}) == 3
        assert all(TOKEN not in run["metadata"]["annotations"] for run in started)
        assert all(f"{REQUEST}uid" in run["metadata"]["annotations"] for run in started)


async def test_with_a_token_the_same_request_converges_and_another_is_refused(tmp_path: Path) -> None:
    """STY-153 STY-149 STY-272: another impulseRef is no conflict, the stored one stays."""
    async with World(tmp_path, functions=WORK) as world:
        await applied(world)
        requests = Requests(engine_of(world))
        first = await requests.trigger("orders", {"n": 1}, token="T", impulse={"name": "one"})
        again = await requests.trigger("orders", {"n": 1.0}, token="T", impulse={"name": "two"})
        assert first == again and again["spec"]["impulseRef"] == {"name": "one"}
        with pytest.raises(Conflict):
            await requests.trigger("orders", {"n": 2}, token="T")
        assert len(await runs(engine_of(world))) == 1


async def test_a_run_that_began_otherwise_is_reused_or_in_the_way(tmp_path: Path) -> None:
    """STY-148"""
    async with World(tmp_path, functions=WORK) as world:
        engine = engine_of(world)
        await applied(world)
        for token in ("same", "other"):
            await engine.start(ORDERS, {"n": 1}, token=token, applied=texts(*NEEDED[1:]))
        reused = await engine.trigger("orders", {"n": 1}, token="same")
        refused = await engine.trigger("orders", {"n": 2}, token="other")
        assert (reused["status"]["decision"], reused["status"]["reason"]) == ("Reused", "StoryRunReused")
        assert (refused["status"]["decision"], refused["status"]["reason"]) == ("Rejected", "StoryRunConflict")
        assert "storyRunRef" not in refused["status"] and refused["status"]["conditions"][0]["status"] == "False"
        assert len(await runs(engine)) == 2


@pytest.mark.parametrize(
    ("inputs", "afterwards", "reason"),
    [
        ({"n": 1}, None, "StoryNotFound"),
        ({"n": 1}, story(f"version: v2\n{SAY}", "orders"), "StoryVersionMismatch"),
        ({"n": "x"}, ORDERS, "ValidationFailed"),
    ],
)
async def test_what_changed_between_request_and_decision_is_told(
    tmp_path: Path, inputs: Any, afterwards: Any, reason: str
) -> None:
    """STY-148 STY-149 STY-051: the decision is final, even when its cause goes away."""
    pinned = {**ORDERS, "spec": {**ORDERS["spec"], "version": "v1"}}
    reference = {"name": "orders", "version": "v1"} if reason == "StoryVersionMismatch" else {"name": "orders"}
    async with World(tmp_path, functions=WORK) as world:
        engine = engine_of(world)
        await engine.apply(texts(pinned, *NEEDED[1:]))
        request = await _request_only(world, reference, inputs)
        await engine.catalog.delete([ResourceKey("Story", "default", "orders")])
        if afterwards is not None:
            await engine.apply(texts(afterwards))
        (decided,) = await Requests(engine).settle_pending()
        assert (decided["status"]["decision"], decided["status"]["reason"]) == ("Rejected", reason)
        await engine.apply(texts(pinned))
        assert await Requests(engine).settle(request) == decided
        assert await runs(engine) == []


async def _request_only(world: World, reference: Any, inputs: Any) -> ResourceKey:
    """A request as it is on disk when the process dies before it was decided."""
    from perdure.dialects.story.triggers.requests import Delivery, compose_trigger

    trigger = compose_trigger(Delivery(reference, inputs, "s1", "token", "T"), "default")
    ((change,), _) = await engine_of(world).catalog.apply(texts(trigger))
    return change.key


async def test_admission_refuses_a_trigger_that_can_never_start_anything(tmp_path: Path) -> None:
    """STY-051"""
    async with World(tmp_path, functions=WORK) as world:
        await applied(world)
        with pytest.raises(InvalidDocument, match="referenced story 'default/gone' not found"):
            await engine_of(world).trigger("gone", {}, token="T")
        request = await _request_only(world, {"name": "orders"}, {"n": 1})
        changed = await engine_of(world).catalog.get(engine_of(world).catalog.kind("trig"), request.name)
        changed["spec"] = {**changed["spec"], "impulseRef": {"name": "x"}}
        with pytest.raises(Rejected, match="spec of a StoryTrigger is immutable"):
            await engine_of(world).apply(texts(changed))


async def test_inputs_above_the_inline_limit_go_to_storage_or_wait_for_one(tmp_path: Path) -> None:
    """STY-151 STY-146"""
    large = {"n": 1, "text": "x" * 5000}
    small = {"storyrun.max-inline-inputs-size": 1024}
    async with World(
        tmp_path, functions=WORK, spoken={"story": Story(settings={**small, "storage.drivers": []})}
    ) as world:
        await applied(world)
        waits = await engine_of(world).trigger("orders", large, token="T")
        assert (waits["status"]["decision"], waits["status"]["reason"]) == ("Pending", "StorageUnavailable")
        assert await runs(engine_of(world)) == []
    async with World(tmp_path, functions=WORK, spoken={"story": Story(settings=small)}) as world:
        (run,) = await runs(engine_of(world))
        await world.settle()
        assert (await engine_of(world).trigger("orders", large, token="T"))["status"]["decision"] == "Created"
        place = f"default/{run['metadata']['name']}/inputs/text.json"
        shown = {"n": 1, "text": {"$bubuStorageRef": place, "$bubuStorageContentType": "raw"}}
        assert run["spec"]["inputs"] == shown and run["status"]["phase"] == "Succeeded"
        uid = run["metadata"]["uid"]
        assert await engine_of(world).body(uid, place) == large["text"]
        with pytest.raises(ReferenceNotAvailable):
            await engine_of(world).body(uid, "default/another/inputs/text.json")
        named = ResourceKey("StoryTrigger", "default", waits["metadata"]["name"])
        for n, decision in ((1, "Reused"), (2, "Rejected")):  # what is not shown whole is told apart all the same
            await engine_of(world).catalog.delete([named])
            again = await engine_of(world).trigger("orders", {**large, "n": n}, token="T")
            assert again["status"]["decision"] == decision


async def test_a_crash_at_any_write_leaves_one_run_and_one_decision(tmp_path: Path) -> None:
    """STY-149 STY-153: request, run and decision are three writes; whoever opens the store next goes on."""
    for write in range(1, 9):
        for after in (False, True):
            folder = tmp_path / f"{write}-{after}"
            folder.mkdir()
            stores: list[DyingStore] = []

            def dying(store: Store, write: int = write, after: bool = after, stores: Any = stores) -> Any:
                stores.append(DyingStore(store, write if len(stores) == 1 else 10_000, after=after))
                return stores[-1]

            async with World(folder, functions=WORK, wrap=dying) as world:
                await applied(world)
                await world.crash()
                await world.boot()
                asking = asyncio.ensure_future(engine_of(world).trigger("orders", {"n": 1}, token="T"))
                dead = asyncio.ensure_future(stores[1].crashed.wait())
                await asyncio.wait({asking, dead}, return_when=asyncio.FIRST_COMPLETED)
                assert stores[1].crashed.is_set() or write > 3, "request, run and decision are writes of their own"
                for task in (asking, dead):
                    task.cancel()
                await asyncio.gather(asking, dead, return_exceptions=True)
                await world.crash()
                await world.boot()
                await world.settle()
                requests = await engine_of(world).store.list_resources("StoryTrigger")
                if (write, after) != (1, False):  # that one was never acknowledged
                    assert [b'"Created"' in (row.status or b"") for row in requests] == [True], (write, after)
                decided = await engine_of(world).trigger("orders", {"n": 1}, token="T")
                await world.settle()
                assert decided["status"]["decision"] == "Created"
                (run,) = await runs(engine_of(world))
                assert run["status"]["phase"] == "Succeeded"
                assert await engine_of(world).store.list_resources("PendingStoryTrigger") == []


async def test_a_hundred_requests_with_one_token_on_four_engines_give_one_run(tmp_path: Path) -> None:
    """STY-144 STY-149 STY-153"""
    url = f"sqlite:///{tmp_path / 'race.db'}"
    async with Engine(url) as first:
        await first.apply(texts(*NEEDED))
        others = [Engine(url) for _ in range(3)]
        for engine in others:
            await engine.__aenter__()
        engines = [first, *others]
        decided = await asyncio.gather(*(engines[n % 4].trigger("orders", {"n": 1}, token="T") for n in range(100)))
        assert {answer["status"]["decision"] for answer in decided} == {"Created"}
        assert len({answer["status"]["storyRunRef"]["uid"] for answer in decided}) == 1
        assert len(await first.search(RunFilter())) == 1
        for engine in others:
            await engine.__aexit__(None, None, None)


async def test_a_hundred_runs_with_one_token_on_four_engines_are_one(tmp_path: Path) -> None:
    """STY-144 STY-153: half of them with other inputs, which are refused."""
    url = f"sqlite:///{tmp_path / 'race.db'}"
    async with Engine(url) as first:
        await first.apply(texts(*NEEDED))
        others = [Engine(url) for _ in range(3)]
        for engine in others:
            await engine.__aenter__()
        engines = [first, *others]
        inputs = [{"n": 1 + n % 2} for n in range(100)]
        starts = (engines[n % 4].start(ORDERS, inputs[n], token="T", applied=texts(*NEEDED[1:])) for n in range(100))
        answers = await asyncio.gather(*starts, return_exceptions=True)
        won = [n for n, answer in enumerate(answers) if not isinstance(answer, BaseException)]
        assert len(won) == 50 and len({inputs[n]["n"] for n in won}) == 1
        assert all(isinstance(answer, Conflict) for n, answer in enumerate(answers) if n not in won)
        assert len(await first.search(RunFilter())) == 1
        for engine in others:
            await engine.__aexit__(None, None, None)


RACER = """
import asyncio, sys
from perdure.wiring import Engine

async def main():
    async with Engine(sys.argv[1]) as engine:
        for _ in range(10):
            decided = await engine.trigger("orders", {"n": 1}, token="T")
            print(decided["status"]["decision"], decided["status"]["storyRunRef"]["uid"])

asyncio.run(main())
"""


@pytest.mark.sampled(2)
async def test_ten_processes_with_one_token_give_one_run(tmp_path: Path) -> None:
    """STY-149 STY-153: real processes on one file, ten requests each."""
    url = f"sqlite:///{tmp_path / 'race.db'}"
    async with Engine(url) as engine:
        await engine.apply(texts(*NEEDED))
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", RACER, url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(10)
    ]
    ended = [await process.communicate() for process in started]
    assert [process.returncode for process in started] == [0] * 10, [err.decode()[-2000:] for _, err in ended]
    lines = [line for out, _ in ended for line in out.decode().splitlines()]
    assert len(lines) == 100 and len(set(lines)) == 1
    async with Engine(url) as engine:
        assert len(await engine.search(RunFilter())) == 1


BESIDE = "perdure.dev/inputs-beside"


@pytest.mark.parametrize("noted", ["not json", "[1]", '{"n": 2}', '{"n": {"$bubuSecretRef": "a:b"}}', "[" * 5000])
async def test_a_note_of_the_engine_s_that_somebody_else_wrote_is_refused(tmp_path: Path, noted: str) -> None:
    """It would be read when the request is decided, which happens whenever an engine opens the store."""
    async with World(tmp_path, functions=WORK) as world:
        engine = engine_of(world)
        await applied(world)
        asked = compose_trigger(Delivery({"name": "orders"}, {"n": 1}, "one"), "default")
        asked["metadata"]["annotations"] = {BESIDE: noted}

        for resource in (asked, story_run("mine", inputs={"n": 1}, metadata={"annotations": {BESIDE: noted}})):
            with pytest.raises(Rejected, match="is reserved for the engine"):
                await engine.apply(texts(resource))
        assert await runs(engine) == []


async def test_a_request_that_cannot_be_decided_holds_up_neither_others_nor_the_engine(tmp_path: Path) -> None:
    async with World(tmp_path, functions=WORK) as world:
        engine = engine_of(world)
        await applied(world)
        asked = [compose_trigger(Delivery({"name": "orders"}, {"n": n}, str(n)), "default") for n in (1, 2)]
        for request in asked:  # as by a program that is stopped before it answers
            await engine.catalog.apply(texts(request))
        row = await engine.catalog.row(TRIGGER, asked[0]["metadata"]["name"], "default")
        resource = jsontext.decode(row.body)
        resource["metadata"]["annotations"] = {BESIDE: "not json"}  # as an older program may have let it pass
        body = jsontext.encode(resource)
        write = ResourceWrite(row.key, row.uid, row.generation, body, row.source, row.labels, row.status, row.version)
        assert await engine.store.write_catalog([write]) is None
        await world.crash()
        await world.boot()
        await world.settle()

        assert [run["spec"]["inputs"] for run in await runs(engine_of(world))] == [{"n": 2}]
