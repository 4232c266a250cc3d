"""Stories on the real engine: a store that dies at every commit, limits over many runs, resources that come later."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.story import Story
from perdure.engine.settings import Settings
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import RunNotFound
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Failed, Succeeded
from perdure.stores.protocol import Store
from perdure.testing.crashing import CrashingStore
from perdure.testing.world import RunInWorld, World
from tests.dialects.story.world import CORE, engram, story, template
from tests.sampling import Sample

pytestmark = pytest.mark.every_store

ECHO = "engram:echo@1.0.0"
CHILD = story("steps: [{name: nap, type: sleep, with: {duration: 20s}}]\noutput: {n: '{{ inputs.n }}'}", "child")
MAIN = story(
    """
policy: {concurrency: 2, timeouts: {story: 10m}}
steps:
- {name: first, ref: {name: echo}, with: {n: 1}}
- {name: all, type: parallel, needs: [first], with: {steps: [
    {name: x, ref: {name: echo}, with: {n: "{{ steps.first.output.n }}"}},
    {name: y, ref: {name: shaky}, with: {n: 2}}]}}
- {name: call, type: executeStory, with: {storyRef: {name: child}, with: {n: "{{ steps.first.output.n }}"}}}
- {name: ok, type: wait, with: {until: "{{ eq steps.call.output.n 1 }}", timeout: 5m}}
- {name: last, ref: {name: echo}, needs: [all, ok], with: {sum: "{{ steps.x.output.n }}{{ steps.y.output.n }}"}}
- {name: bad, ref: {name: broken}, needs: [last], allowFailure: true}
finally: [{name: tidy, ref: {name: echo}}]
output: {sum: "{{ steps.last.output.sum }}"}
""",
    "main",
)
OTHERS = [CHILD, *(engram(name) for name in ("echo", "shaky", "broken"))]
OTHERS += [template(name) for name in ("echo", "shaky", "broken")]


def applied(*resources: Any) -> list[AppliedDocument]:
    return [AppliedDocument(f"{n}.json", jsontext.encode(resource).decode()) for n, resource in enumerate(resources)]


class Shaky:
    """Fails the first time in each world."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, arguments: Any, input: Any) -> Any:
        self.calls += 1
        return arguments["inputs"]


def works(shaky: Shaky) -> dict[str, Any]:
    def broken(arguments: Any, input: Any) -> Any:
        raise RuntimeError("not today")

    return {
        ECHO: lambda arguments, input: arguments["inputs"],
        "engram:shaky@1.0.0": shaky,
        "engram:broken@1.0.0": broken,
    }


async def start(
    world: World, document: Any = MAIN, others: Any = OTHERS, *, input: Any = None, settles: bool = True, **rest: Any
) -> RunInWorld:
    assert world.engine is not None
    handle = await world.engine.start(jsontext.encode(document), input, applied=applied(*others), **rest)
    if settles:
        await world.settle()
    return RunInWorld(world, handle.id)


def essence(shown: Any) -> Any:
    status = shown["status"]
    states = {name: (state["phase"], state["message"]) for name, state in status["stepStates"].items()}
    counted = {name: status[name] for name in ("phase", "message", "output", "allowedFailures", "stepsComplete")}
    return states, counted, {name: step_run["status"].get("retries") for name, step_run in shown["stepRuns"].items()}


async def test_a_crash_at_any_commit_changes_nothing_about_the_end(tmp_path: Path, sample: Sample) -> None:
    """STY-179 STY-180 STY-107 STY-192."""
    (tmp_path / "calm").mkdir()
    counted: list[CrashingStore] = []

    def count(store: Store) -> Any:
        counted.append(CrashingStore(store, 10_000, after=False))
        return counted[-1]

    async with World(tmp_path / "calm", functions=works(Shaky()), wrap=count) as world:
        run = await start(world)
        await world.advance(300)
        expected = essence(await run.show())
    assert expected[1]["phase"] == "Succeeded" and expected[1]["output"] == {"sum": "12"}
    assert expected[1]["allowedFailures"] == ["bad"]
    assert counted[0].commits > 10

    for commit in sample.take(range(2, counted[0].commits)):
        for after in (False, True):
            folder = tmp_path / f"{commit}-{after}"
            folder.mkdir()
            stores: list[CrashingStore] = []

            def dying(store: Store, commit: int = commit, after: bool = after, stores: Any = stores) -> Any:
                stores.append(CrashingStore(store, commit if not stores else 10_000, after=after))
                return stores[-1]

            async with World(folder, functions=works(Shaky()), wrap=dying) as world:
                run = await start(world, settles=False)
                going = asyncio.ensure_future(world.advance(300))
                dead = asyncio.ensure_future(stores[0].crashed.wait())
                await asyncio.wait({going, dead}, return_when=asyncio.FIRST_COMPLETED)
                going.cancel()
                await asyncio.gather(going, return_exceptions=True)
                await world.crash()
                await world.boot()
                await world.advance(300)

                assert essence(await run.show()) == expected, (commit, after)


async def test_a_limit_holds_over_many_runs(tmp_path: Path) -> None:
    """STY-071: two runs of one Story share its places; what waits says so."""
    text = story("policy: {concurrency: 2}\nsteps: [{name: a, ref: {name: echo}}, {name: b, ref: {name: echo}}]")
    async with World(tmp_path, held={ECHO}) as world:
        first = await start(world, text)
        second = await start(world, text)
        assert len(world.hands.waiting) == 2
        queued = (await second.show())["status"]["stepStates"]["a"]
        assert queued["phase"] == "Pending"
        assert queued["message"] == "Queued due to story concurrency limit (2 running, limit 2)"

        world.hands.release(Succeeded(b"{}"))
        await world.settle()
        assert [assignment.run for assignment, *_ in world.hands.waiting.values()] == [first.id, second.id]
        while world.hands.waiting:
            world.hands.release(Succeeded(b"{}"))
            await world.settle()

        assert [(await handle.show())["status"]["phase"] for handle in (first, second)] == ["Succeeded", "Succeeded"]


SETTINGS = {"storyrun.queue.batch.concurrency": 1, "storyrun.queue.batch.priority-aging-seconds": 60}


@pytest.mark.parametrize(("waits", "first"), [(10, "high"), (300, "low")])
async def test_priority_comes_first_until_waiting_has_made_up_for_it(tmp_path: Path, waits: int, first: str) -> None:
    """STY-074 STY-075: no preemption; a minute in the queue is worth one step of priority."""
    from perdure.dialects.story import Story

    def told(name: str, priority: int) -> Any:
        policy = f"{{queue: batch, priority: {priority}, timeouts: {{step: 1h}}}}"
        return story(f"policy: {policy}\nsteps: [{{name: {name}, ref: {{name: echo}}}}]", name)

    async with World(tmp_path, held={ECHO}, spoken={"story": Story(settings=SETTINGS)}) as world:
        await start(world, told("holder", 0))
        await start(world, told("low", 0))
        await world.advance(waits)
        await start(world, told("high", 3))
        (held,) = world.hands.waiting
        assert world.hands.waiting[held][0].path == "holder"

        world.hands.release(Succeeded(b"{}"))
        await world.settle()

        assert [assignment.path for assignment, *_ in world.hands.waiting.values()] == [first]


async def test_a_blocked_step_goes_on_when_its_engram_is_applied_after_a_restart(tmp_path: Path) -> None:
    """STY-118 STY-009."""
    text = story("steps: [{name: a, ref: {name: late}, with: {n: 1}}]\noutput: {n: '{{ steps.a.output.n }}'}")
    async with World(tmp_path, functions=works(Shaky())) as world:
        run = await start(world, text, ())
        assert (await run.show())["status"]["stepStates"]["a"]["phase"] == "Blocked"
        await world.crash()
        await world.boot()
        assert world.engine is not None
        world.hands.functions["engram:mine@1.0.0"] = lambda arguments, input: arguments["inputs"]
        await world.engine.apply(applied(template("mine"), engram("late", template="mine")))
        await world.settle()

        assert await run.result() == {"n": 1}


async def test_a_kept_output_is_reused_by_another_run(tmp_path: Path) -> None:
    """STY-226 STY-227."""
    text = story("steps: [{name: a, ref: {name: shaky}, execution: {cache: {ttlSeconds: 60}}, with: {n: 1}}]")
    shaky = Shaky()
    async with World(tmp_path, functions=works(shaky)) as world:
        first = await start(world, text)
        second = await start(world, text)
        await world.advance(61)
        third = await start(world, text)

        statuses = [
            (await run.show())["stepRuns"]["a"]["metadata"]["annotations"]["cache.bubustack.io/status"]
            for run in (first, second, third)
        ]
        assert statuses == ["stored", "hit", "stored"]
        assert shaky.calls == 2


async def test_namespaces_that_share_an_engram_share_no_kept_output(tmp_path: Path) -> None:
    """STY-226: whoever may use an Engram of another namespace reads, and replaces, nothing that its runs have kept."""
    step = "steps: [{name: a, ref: {name: shaky, namespace: default}, execution: {cache: {key: same}}, with: {n: WHO}}]"
    owner, guest = story(step.replace("WHO", "owner")), story(step.replace("WHO", "guest"), "theirs", "guests")
    shaky = Shaky()
    spoken = {"story": Story(settings={"references.cross-namespace-policy": "allow"})}
    async with World(tmp_path, functions=works(shaky), spoken=spoken) as world:
        runs = [await start(world, stories) for stories in (guest, owner, guest)]
        outputs = [(await run.show())["stepRuns"]["a"]["status"]["output"] for run in runs]

    assert outputs == [{"n": "guest"}, {"n": "owner"}, {"n": "guest"}]
    assert shaky.calls == 2


async def test_a_retry_waits_out_a_restart(tmp_path: Path) -> None:
    """STY-128: what is left of the wait is honoured, not begun anew."""
    text = story("steps: [{name: a, ref: {name: echo}, execution: {retry: {maxRetries: 1, delay: 60s}}}]")
    async with World(tmp_path, held={ECHO}) as world:
        run = await start(world, text)
        details = jsontext.encode({"exitClass": "retry"})
        world.hands.release(Failed("Engram.Failed", "no", None, details))
        await world.settle()
        state = (await run.show())["stepRuns"]["a"]["status"]
        assert state["phase"] == "Pending" and state["conditions"][0]["reason"] == "RetryScheduled"
        await world.advance(40)
        await world.crash()
        await world.boot()
        await world.advance(15)
        assert not world.hands.waiting
        await world.advance(10)
        assert len(world.hands.waiting) == 1
        world.hands.release(Succeeded(b"{}"))
        await world.settle()

        assert (await run.show())["status"]["phase"] == "Succeeded"


async def test_the_same_token_finds_the_same_run(tmp_path: Path) -> None:
    """STY-048 STY-144 STY-153: also when what the Story refers to has changed meanwhile."""
    from perdure.kernel.errors import Conflict

    text = story("steps: [{name: a, ref: {name: echo}}]", "orders")
    async with World(tmp_path, functions=works(Shaky())) as world:
        first = await start(world, text, input={"n": 1}, token="source-event-id-123")
        other = [engram("echo", mode="job"), template("echo")]
        again = await start(world, text, other, input={"n": 1}, token="source-event-id-123")
        assert first.id == again.id
        metadata = (await first.show())["metadata"]
        assert metadata["name"] == "orders-source-event-id-123-e65ebead00ce2db9"
        assert metadata["annotations"]["storyrun.bubustack.io/trigger-token"] == "source-event-id-123"

        with pytest.raises(Conflict):
            await start(world, text, input={"n": 2}, token="source-event-id-123")


async def test_a_hundred_steps_cost_a_few_rows_each(tmp_path: Path) -> None:
    """Invariant 25: one log row per result, whatever the width of the Story."""
    steps = [{"name": f"s{n}", "ref": {"name": "echo"}, "with": {"n": n}} for n in range(50)]
    steps += [
        {"name": f"t{n}", "ref": {"name": "echo"}, "needs": [f"s{n}"], "with": {"n": f"{{{{ steps.s{n}.output.n }}}}"}}
        for n in range(50)
    ]
    text = {"apiVersion": CORE, "kind": "Story", "metadata": {"name": "wide"}, "spec": {"steps": steps}}
    async with World(tmp_path, held={ECHO}) as world:
        run = await start(world, text)
        assert world.engine is not None
        while world.hands.waiting:
            world.hands.release(Succeeded(b'{"n": 1}'))
            await world.settle()
        rows = await world.engine.store.history(run.id)
        events = await world.engine.history(run.id)

    assert len(rows) <= 102
    assert len(events) < 100 * 8
    assert sum(len(body) for _, body in rows) < 100 * 1200


def calling(name: str, other: str, waits: bool) -> Any:
    """A Story that starts the other one, with an input that nobody has had."""
    members = 'with: {n: "{{ inputs.n }}x"}'
    waiting = f"waitForCompletion: {str(waits).lower()}"
    steps = f"steps: [{{name: go, type: executeStory, with: {{storyRef: {{name: {other}}}, {waiting}, {members}}}}}]"
    return story(steps, name)


@pytest.mark.parametrize("waits", [True, False])
async def test_two_stories_that_start_each_other_with_ever_new_inputs_end_by_the_depth(
    tmp_path: Path, waits: bool
) -> None:
    """STY-079, STY-090: the depth is handed on to those that nobody waits for as well."""
    ping, pong = calling("ping", "pong", waits), calling("pong", "ping", waits)
    async with World(tmp_path) as world:
        assert world.engine is not None
        await world.engine.apply(applied(ping, pong))
        first = await start(world, ping, [], input={"n": "1"})
        run_ids = [first.id]
        while await _is_there(world, RunId(f"{run_ids[-1]}.1")):
            run_ids.append(RunId(f"{run_ids[-1]}.1"))

        assert len(run_ids) == 17, "the first, and sixteen below it"
        assert await world.run(run_ids[-1]).status() == "failed"
        assert await first.status() == ("failed" if waits else "succeeded")
        options = [(await world.run(run_id).handle.history(raw=True))[0]["options"] for run_id in run_ids[1:]]
        assert [option["depth"] for option in options] == list(range(1, 17))


async def _is_there(world: World, run: RunId) -> bool:
    try:
        await world.run(run).status()
    except RunNotFound:
        return False
    return True


async def test_only_restarts_of_what_had_begun_are_counted(tmp_path: Path) -> None:
    """STY-284 STY-181: a step that waited for its turn when the process died was not restarted."""
    text = story("steps: [{name: a, ref: {name: echo}}, {name: b, ref: {name: echo}}, {name: c, ref: {name: echo}}]")
    async with World(tmp_path, held={ECHO}, settings=Settings(tasks_in_flight=1)) as world:
        run = await start(world, text)
        for _ in range(3):
            await world.crash()
            await world.boot()
        shown = await run.show()
        counts = {
            name: int(step_run["metadata"].get("annotations", {}).get("runs.bubustack.io/restart-count", 0))
            for name, step_run in shown["stepRuns"].items()
        }
        restarted = [event for event in await run.handle.history(raw=True) if "JobRestarted" in event.values()]

        assert sorted(counts.values()) == [1, 2, 2], "all might have begun at first; later one was begun at a time"
        assert len(restarted) == sum(counts.values())


async def test_a_killer_in_a_story_is_capped_by_charges(tmp_path: Path) -> None:
    """STY-182, invariant 27: an operator allowed one restart; deaths beside others are none of its doing."""
    from perdure.dialects.story import Story

    text = story("steps: [{name: a, ref: {name: echo}}]")
    language = Story(settings={"steprun.max-restarts": 1})
    async with World(tmp_path, held={ECHO}, spoken={"story": language}) as world:
        run, other = await start(world, text), await start(world, text)
        deaths = 0
        while (await run.show())["status"]["phase"] not in ("Failed", "Succeeded"):
            if any(assignment.run == run.id for assignment, *_ in world.hands.waiting.values()):
                deaths += 1
                await world.crash()
                await world.boot()
            else:
                world.hands.release(Succeeded(b"{}"))
                await world.settle()
            assert deaths < 10
        while world.hands.waiting:
            world.hands.release(Succeeded(b"{}"))
            await world.settle()

        assert (deaths, (await run.show())["status"]["phase"]) == (2 + 2, "Failed")
        assert (await other.show())["status"]["phase"] == "Succeeded"
