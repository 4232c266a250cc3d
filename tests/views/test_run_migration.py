"""Open runs and another version of their document: judged, moved by an event, folded with both, undone (ANA-032)."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.engine.client import Client
from perdure.engine.runs import run_views
from perdure.engine.runs.fork_points import ForkChanges
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values.values import RunId
from perdure.stores.protocol import Store
from perdure.testing import World
from perdure.testing.crashing import CrashingStore
from perdure.testing.world import RunInWorld
from perdure.views.errors import BadRequest
from perdure.views.runs.run_migration import MigrationPlan, impact, migrate, read_new_document, read_plan, undo
from perdure.views.runs.run_provenance import explain_value


def _echo(inputs: Any = None, value: Any = None) -> Any:
    """As a provider, or as an Engram."""
    return value if inputs is None else inputs


ECHO = "mwl:provider.call/perdure/echo/v1"


def _call(value: Any, next: str, **more: Any) -> dict[str, Any]:
    return {"action": "Call", "call": {"provider": ECHO, "with": {"value": value}}, "next": next, **more}


def _flow(nap: dict[str, Any] | None = None, **steps: Any) -> bytes:
    """first, a sleep of an hour, and what follows."""
    document = {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "first",
        "steps": {
            "first": _call("one", "nap"),
            "nap": nap or {"action": "Sleep", "for": "PT1H", "next": "last"},
            "last": {"action": "Return", "value": "old"},
            **steps,
        },
    }
    return json.dumps(document).encode()


def _story(*steps: str, gate: str = "{name: gate, type: gate, needs: [first]}") -> bytes:
    lines = steps or ("{name: last, ref: echo, needs: [gate], with: {value: old}}",)
    return "\n".join(
        [
            "apiVersion: bubustack.io/v1alpha1",
            "kind: Story",
            "metadata: {name: orders}",
            "spec:",
            "  steps:",
            "  - {name: first, ref: echo, with: {value: one}}",
            f"  - {gate}",
            *(f"  - {step}" for step in lines),
            '  output: {value: "{{ steps.last.output.value }}"}',
        ]
    ).encode()


def _playbook(*steps: str, first: str = "first", target: str = "gate") -> bytes:
    gate = "spec: {policy: {admit: {rules: [{when: '{{ ctx.go is defined }}', then: {allow: true}}]}}}"
    lines = steps or (
        f"{{step: gate, {gate}, next: {{arcs: [{{step: last}}]}}}}",
        "{step: last, tool: {kind: noop, result: old}}",
    )
    return "\n".join(
        [
            "apiVersion: noetl.io/v10",
            "kind: Playbook",
            "metadata: {name: orders, path: orders}",
            "workflow:",
            f"  - {{step: {first}, tool: {{kind: noop, result: one}}, next: {{arcs: [{{step: {target}}}]}}}}",
            *(f"  - {step}" for step in lines),
        ]
    ).encode()


GATE = "spec: {policy: {admit: {rules: [{when: '{{ ctx.go is defined }}', then: {allow: true}}]}}}"


class Case(msgspec.Struct):
    """A document whose runs wait in the middle, a later version of it, and how they go on."""

    old: bytes
    new: bytes  # one more step behind the wait, and another last one
    go_on: Callable[[World, RunInWorld], Any]

    async def result(self, world: World, run: RunInWorld) -> Any:
        await self.go_on(world, run)
        result = await run.result()
        return result["value"] if isinstance(result, dict) and "value" in result else _own(result)


def _own(result: Any) -> Any:
    """What a Playbook answers: the result of its last step."""
    return result["result"] if isinstance(result, dict) and "result" in result else result


async def _sleep(world: World, run: RunInWorld) -> None:
    await world.advance(3600)


async def _approve(world: World, run: RunInWorld) -> None:
    await run.approve("gate")


async def _patch(world: World, run: RunInWorld) -> None:
    await run.patch({"go": 1})


CASES = {
    "flow": Case(
        _flow(),
        _flow(
            {"action": "Sleep", "for": "PT1H", "next": "more"},
            more=_call("between", "last"),
            last={"action": "Return", "value": "new"},
        ),
        _sleep,
    ),
    "story": Case(
        _story(),
        _story(
            "{name: more, ref: echo, needs: [gate], with: {value: between}}",
            "{name: last, ref: echo, needs: [more], with: {value: new}}",
        ),
        _approve,
    ),
    "playbook": Case(
        _playbook(),
        _playbook(
            f"{{step: gate, {GATE}, next: {{arcs: [{{step: more}}]}}}}",
            "{step: more, tool: {kind: noop, result: between}, next: {arcs: [{step: last}]}}",
            "{step: last, tool: {kind: noop, result: new}}",
        ),
        _patch,
    ),
}
LANGUAGES = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


async def _started(world: World, document: bytes) -> RunInWorld:
    return await world.start(document, name="orders")


async def _judged(world: World, document: bytes, mapping: dict[str, str | None] | None = None) -> dict[str, Any]:
    assert world.engine is not None
    new = await read_new_document(world.engine, "new", document, (), "", "orders")
    return await impact(world.engine, new, mapping)


async def _acting(world: World) -> Callable[[RunId], Any]:
    async def client(run: RunId) -> Client:
        assert world.engine is not None
        return world.engine

    return client


async def _moved(world: World, judged: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
    assert world.engine is not None
    plan = msgspec.convert(judged["plan"], MigrationPlan)
    answer = await migrate(world.engine, plan, await _acting(world), dry_run=dry_run, by="ada")
    await world.settle()
    return answer


async def _undone(world: World, run: RunInWorld, *, dry_run: bool = False) -> dict[str, Any]:
    assert world.engine is not None
    answer = await undo(world.engine, [run.id], await _acting(world), dry_run=dry_run, by="ada")
    await world.settle()
    (run_answer,) = answer["runs"]
    return dict(run_answer)


def _why(judged: dict[str, Any]) -> str:
    return "; ".join(f"{item['place']}: {item['reason']}" for run in judged["runs"] for item in run["obstacles"])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, mocks={"echo": _echo})


@LANGUAGES
@pytest.mark.every_store
async def test_a_run_that_waits_goes_on_with_the_new_document(case: Case, world: World) -> None:
    async with world:
        run, other = await _started(world, case.old), await _started(world, case.old)
        judged = await _judged(world, case.new)
        assert judged["counts"] == {"safe": 2, "needs mapping": 0, "blocked": 0, "current": 0}
        judged["plan"]["moves"][0]["runs"] = [run.id]
        assert (await _moved(world, judged, dry_run=True))["counts"]["safe"] == 1
        before = await run.handle.history(raw=True)

        assert (await _moved(world, judged))["counts"] == {"moved": 1, "recorded": 0, "current": 0, "refused": 0}
        assert (await _moved(world, judged))["counts"]["current"] == 1, "the same once more changes nothing"
        after = await run.handle.history(raw=True)
        assert after[: len(before)] == before and after[len(before)]["event"] == "RunMigrated"
        assert [event["event"] for event in after].count("RunMigrated") == 1
        assert (await _judged(world, case.new))["counts"] == {
            "safe": 1, "needs mapping": 0, "blocked": 0, "current": 1,
        }  # fmt: skip
        results = [await case.result(world, each) for each in (run, other)]

    assert results == ["new", "old"]


@LANGUAGES
@pytest.mark.every_store
async def test_a_moved_run_is_folded_with_both_documents(case: Case, world: World) -> None:
    """After a restart, from its first event, at any event, as a fork from before and behind the move."""
    async with world:
        run = await _started(world, case.old)
        before = len(await run.handle.history())
        shown = await run.handle.show()
        await _moved(world, await _judged(world, case.new))
        await world.crash()
        await world.boot()
        assert world.engine is not None
        engine = world.engine
        live = await engine.execution(run.id)
        row = await engine.find(run.id)
        (stored,) = await engine.store.load([run.id])
        bare = type(stored)(stored.row, None, await engine.store.history(run.id))
        program = await run_views.program_of(engine.store, live.dialect, row)
        folded = await run_views.fold_stored(engine.store, bare, live.dialect, program)
        assert run_views.checksum(folded) == run_views.checksum(live)
        assert (await engine.show(run.id, before)).keys() == shown.keys()
        early, late = await engine.fork(run.id, before), await engine.fork(run.id)
        results = [await case.result(world, RunInWorld(world, each.id)) for each in (early, late)]
        assert await case.result(world, run) == "new"
        for at in range(1, len(await run.handle.history()) + 1):
            await engine.show(run.id, at)

    assert results == ["old", "new"]


@LANGUAGES
async def test_a_move_is_undone_until_the_run_has_done_something_new(case: Case, world: World) -> None:
    async with world:
        run, other = await _started(world, case.old), await _started(world, case.old)
        await _moved(world, await _judged(world, case.new))
        assert (await _undone(world, run, dry_run=True))["outcome"] == "safe"
        assert (await _undone(world, run))["outcome"] == "moved"
        assert (await _undone(world, run))["reason"] == "it was not moved to another document, or that was undone"
        await world.crash()
        await world.boot()
        assert await case.result(world, run) == "old"
        if case is not CASES["flow"]:  # there an hour has passed for both
            await case.go_on(world, other)
        assert await other.status() == "succeeded"
        assert "has already succeeded" in (await _undone(world, other))["reason"]


HELD = _call("between", "last")


async def test_what_only_the_new_document_knows_is_not_undone(world: World) -> None:
    again = {"action": "Sleep", "for": "PT1H", "next": "last"}
    new = _flow({"action": "Sleep", "for": "PT1H", "next": "more"}, more=_call("x", "again"), again=again)
    async with world:
        run = await _started(world, _flow(again=again))
        await _moved(world, await _judged(world, new))
        await world.advance(3600)
        answer = await _undone(world, run)

    assert answer["outcome"] == "refused"
    assert "step 'more': it was entered since the move" in answer["reason"]


STORY_WITH_TWO_GATES = (
    "{name: more, ref: echo, needs: [gate], with: {value: between}}",
    "{name: second, type: gate, needs: [gate]}",
    "{name: last, ref: echo, needs: [second], with: {value: old}}",
)
PLAYBOOK_WITH_TWO_GATES = (
    f"{{step: gate, {GATE}, next: {{arcs: [{{step: more}}]}}}}",
    "{step: more, tool: {kind: noop, result: between}, next: {arcs: [{step: second}]}}",
    f"{{step: second, {GATE.replace('ctx.go', 'ctx.second')}, next: {{arcs: [{{step: last}}]}}}}",
    "{step: last, tool: {kind: noop, result: old}}",
)


@pytest.mark.parametrize(
    ("old", "new", "go_on"),
    [
        (_story(*STORY_WITH_TWO_GATES[1:]), _story(*STORY_WITH_TWO_GATES), _approve),
        (
            _playbook(PLAYBOOK_WITH_TWO_GATES[0].replace("more", "second"), *PLAYBOOK_WITH_TWO_GATES[2:]),
            _playbook(*PLAYBOOK_WITH_TWO_GATES),
            _patch,
        ),
    ],
    ids=["story", "playbook"],
)
async def test_a_step_that_the_former_document_lacks_keeps_a_move_from_being_undone(
    old: bytes, new: bytes, go_on: Callable[[World, RunInWorld], Any], world: World
) -> None:
    async with world:
        run = await _started(world, old)
        await _moved(world, await _judged(world, new))
        await go_on(world, run)
        answer = await _undone(world, run)

    assert answer["outcome"] == "refused" and "'more'" in answer["reason"]


@pytest.mark.parametrize(
    ("before", "after", "ends_at"),
    [(60, 3600, 3600), (3600, 60, 60), (60, None, None), (None, 60, 60)],
    ids=["later", "earlier", "none-any-more", "a-new-one"],
)
async def test_the_deadline_of_a_token_is_that_of_the_new_document(
    before: int | None, after: int | None, ends_at: int | None, world: World
) -> None:
    """PBK-193: counted from the token, as before."""

    def document(limit: int | None) -> bytes:
        gate = GATE if limit is None else GATE.replace("admit:", f"lifecycle: {{deadline_s: {limit}}}, admit:")
        return _playbook(f"{{step: gate, {gate}, tool: {{kind: noop}}}}")

    async with world:
        run = await _started(world, document(before))
        await world.advance(30)
        await _moved(world, await _judged(world, document(after)))
        await world.advance((ends_at or 7200) - 31)
        assert await run.status() == "waiting"
        await world.advance(2)
        status = await run.status()

    assert status == ("waiting" if ends_at is None else "failed")


async def test_a_token_that_a_join_holds_has_the_later_deadline_of_the_new_document(world: World) -> None:
    """PBK-193 PBK-130."""

    def document(limit: int) -> bytes:
        lifecycle = f"policy: {{lifecycle: {{deadline_s: {limit}}}}}"
        return _playbook(
            "{step: fork, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: gate}]}}",
            "{step: a, next: {arcs: [{step: last}]}}",
            f"{{step: gate, {GATE}, next: {{arcs: [{{step: last}}]}}}}",
            f"{{step: last, spec: {{join: {{from: [a, gate]}}, {lifecycle}}}, tool: {{kind: noop, result: joined}}}}",
            target="fork",
        )

    async with world:
        run = await _started(world, document(60))
        await _moved(world, await _judged(world, document(3600)))
        await world.advance(3590)
        assert await run.status() == "waiting"
        await run.patch({"go": 1})
        await world.settle()
        assert (await run.show())["result"] == "joined"


# What is safe, what needs a mapping, what is blocked.

SAFE = {
    "flow: another last step": (_flow(), _flow(last={"action": "Return", "value": 1})),
    "flow: the next step of the one it is in": (
        _flow(),
        _flow({"action": "Sleep", "for": "PT1H", "next": "other"}, other={"action": "Return", "value": "x"}),
    ),
    "flow: a step less": (_flow(never=_call(1, "last")), _flow()),
    "flow: another first step, which it has left": (_flow(), _flow(first=_call("two", "nap"))),
    "story: other text, retry and timeout of a later step": (
        _story(),
        _story(
            "{name: last, ref: echo, needs: [gate], with: {value: x}, execution: {timeout: 5m, retry: {maxRetries: 3}}}"
        ),
    ),
    "story: a step less": (
        _story("{name: last, ref: echo, needs: [gate]}", "{name: never, ref: echo, needs: [last]}"),
        _story("{name: last, ref: echo, needs: [gate]}"),
    ),
    "story: other text of a step that has ended": (_story(), _story().replace(b"value: one", b"value: two")),
    "playbook: another gate": (
        _playbook(),
        _playbook(
            f"{{step: gate, {GATE.replace('ctx.go', 'ctx.other')}, next: {{arcs: [{{step: last}}]}}}}",
            "{step: last, tool: {kind: noop, result: old}}",
        ),
    ),
    "playbook: another retry of a later step": (
        _playbook(),
        _playbook(
            f"{{step: gate, {GATE}, next: {{arcs: [{{step: last}}]}}}}",
            "{step: last, tool: {kind: noop, result: x, spec: {policy: {rules: [{else: {then: {do: fail}}}]}}}}",
        ),
    ),
}


@pytest.mark.parametrize(("old", "new"), SAFE.values(), ids=SAFE)
async def test_what_has_not_begun_may_differ(old: bytes, new: bytes, world: World) -> None:
    async with world:
        run = await _started(world, old)
        judged = await _judged(world, new)
        assert judged["counts"]["safe"] == 1, _why(judged)
        assert (await _moved(world, judged))["counts"]["moved"] == 1
        assert await run.status() in ("waiting", "running")


RENAMED = {
    "flow": (_flow(), _flow(rest={"action": "Sleep", "for": "PT1H", "next": "last"}), "nap", "rest", _sleep, "old"),
    "story": (_story(), _story().replace(b"first", b"begin"), "first", "begin", _approve, "old"),
    "story, the gate": (
        _story(),
        _story("{name: last, ref: echo, needs: [ok], with: {value: x}}", gate="{name: ok, type: gate, needs: [first]}"),
        "gate",
        "ok",
        None,
        "x",
    ),
    "playbook": (_playbook(), _playbook(first="begin"), "first", "begin", _patch, "old"),
}


@pytest.mark.parametrize("renamed", RENAMED.values(), ids=RENAMED)
async def test_a_step_with_another_name_needs_a_mapping(renamed: tuple[Any, ...], world: World) -> None:
    old, new, step, name, go_on, expected = renamed
    if step == "nap":
        new = new.replace(b'"nap": {"action": "Sleep", "for": "PT1H", "next": "last"}, ', b"").replace(
            b'"nap"', b'"rest"'
        )
    async with world:
        run = await _started(world, old)
        judged = await _judged(world, new)
        assert judged["runs"][0]["verdict"] == "needs mapping", _why(judged)
        assert judged["plan"]["moves"][0]["mapping"] == {step: "?"}
        with pytest.raises(BadRequest, match=f"which step of the new document '{step}' is"):
            await _moved(world, judged)
        judged = await _judged(world, new, {step: name})
        assert judged["counts"]["safe"] == 1, _why(judged)
        assert (await _moved(world, judged))["counts"]["moved"] == 1
        await world.crash()
        await world.boot()
        if go_on is None:
            await run.approve(name)
        else:
            await go_on(world, run)
        result = await run.result()
        history = await run.handle.history()

    assert expected in (result, result.get("value", _own(result)) if isinstance(result, dict) else result)
    assert history


async def test_the_result_of_a_step_that_is_gone_may_be_dropped(world: World) -> None:
    new = (
        _story("{name: last, ref: echo, needs: [ok], with: {value: x}}")
        .replace(b"  - {name: first, ref: echo, with: {value: one}}\n", b"")
        .replace(b"needs: [first]", b"needs: []")
        .replace(b"[ok]", b"[gate]")
    )
    async with world:
        run = await _started(world, _story())
        assert (await _judged(world, new))["counts"]["needs mapping"] == 1
        assert (await _moved(world, await _judged(world, new, {"first": None})))["counts"]["moved"] == 1
        assert "forgotten 'first'" in (await _undone(world, run))["reason"]
        await run.approve("gate")
        assert (await run.result())["value"] == "x"


BLOCKED = {
    "flow: it sleeps, and for another time": (
        _flow(),
        _flow({"action": "Sleep", "for": "PT2H", "next": "last"}),
        "step 'nap': it has begun, and its 'for' differs",
    ),
    "story: its gate is open, and another": (
        _story(),
        _story(gate="{name: gate, type: gate, needs: [first], with: {timeout: 1h, onTimeout: skip}}"),
        "step 'gate': it is open, and it differs",
    ),
    "story: what has begun would wait for something new": (
        _story(),
        _story(
            "{name: check, ref: echo}",
            "{name: last, ref: echo, needs: [gate]}",
            gate="{name: gate, type: gate, needs: [first, check]}",
        ),
        "step 'gate': it has begun, and in the new document it waits for 'check'",
    ),
    "playbook: a keychain": (
        _playbook(),
        _playbook().replace(b"workflow:", b"keychain: [{name: k, kind: basic, username: a, password: b}]\nworkflow:"),
        "keychain: it differs",
    ),
}


@pytest.mark.parametrize(("old", "new", "why"), BLOCKED.values(), ids=BLOCKED)
async def test_what_the_run_is_inside_of_must_be_the_same(old: bytes, new: bytes, why: str, world: World) -> None:
    async with world:
        run = await _started(world, old)
        before = await run.handle.history()
        judged = await _judged(world, new)
        assert judged["counts"]["blocked"] == 1 and why in _why(judged)
        assert judged["plan"]["moves"] == []
        plan = {**judged["plan"], "moves": [{"from": judged["runs"][0]["document"], "runs": [run.id]}]}
        answer = await _moved(world, {"plan": plan})
        assert answer["runs"][0]["outcome"] == "refused" and why in answer["runs"][0]["reason"]
        assert await run.handle.history() == before


GATHER = {
    "action": "Gather",
    "over": "{{ [1, 2] }}",
    "call": {"flow": "each"},
    "next": "last",
}


def _gather(inner: Any, last: Any) -> bytes:
    each = {"entrypoint": "nap", "steps": {"nap": {"action": "Sleep", "for": "PT1H", "next": "end"}, "end": inner}}
    return json.dumps(
        {
            "$schema": "https://mwl.dev/v0.1/flow/schema.json",
            "entrypoint": "all",
            "flows": {"each": each},
            "steps": {"all": GATHER, "last": last},
        }
    ).encode()


async def test_inside_of_a_gather_its_flows_must_be_the_same(world: World) -> None:
    first, second = ({"action": "Return", "value": number} for number in (1, 2))
    async with world:
        run = await _started(world, _gather(first, first))
        assert "calls Flows side by side, and one of them differs" in _why(await _judged(world, _gather(second, first)))
        judged = await _judged(world, _gather(first, second))
        assert judged["counts"]["safe"] == 1, _why(judged)
        await _moved(world, judged)
        await world.advance(3600)
        assert await run.result() == 2


async def test_a_run_that_is_cancelled_or_has_another_document_is_not_moved(world: World) -> None:
    case = CASES["flow"]
    async with world:
        run = await _started(world, case.old)
        judged = await _judged(world, case.new)
        await _moved(world, await _judged(world, _flow(last={"action": "Return", "value": "third"})))
        answer = await _moved(world, judged)
        assert "it has another document now" in answer["runs"][0]["reason"]
        edited = {**judged["plan"], "document": _flow(last={"action": "Return", "value": 7}).decode()}
        with pytest.raises(Conflict, match="not the one that the plan was made for"):
            await _moved(world, {"plan": edited})
        await run.cancel("enough")
        assert (await _moved(world, judged))["counts"]["refused"] == 1


@LANGUAGES
async def test_a_run_without_a_live_owner_is_moved_when_it_is_resumed(case: Case, tmp_path: Path) -> None:
    """Another process sends it: the answer is that of a dry run, and the owner decides."""
    world = World(tmp_path, mocks={"echo": _echo})
    async with world:
        run = await _started(world, case.old)
        assert world.engine is not None
        languages = world.engine.languages
        await world.crash()
        async with Client(world.open_store(), languages, world.clock, None) as observer:
            new = await read_new_document(observer, "new", case.new, (), "", "orders")
            plan = msgspec.convert((await impact(observer, new))["plan"], MigrationPlan)

            async def acting(run: RunId) -> Client:
                return observer

            answer = await migrate(observer, plan, acting, by="ada")
            assert answer["runs"][0]["outcome"] == "recorded", answer
        await world.boot()
        assert await case.result(world, run) == "new"


@LANGUAGES
@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_at_any_commit_of_a_move_loses_nothing(case: Case, after: bool, tmp_path: Path) -> None:
    for commit in range(1, 8):
        stores: list[CrashingStore] = []

        def crashing(store: Store, commit: int = commit, stores: list[CrashingStore] = stores) -> Store:
            stores.append(CrashingStore(store, commit if len(stores) == 1 else 10_000, after=after))
            return stores[-1]

        folder = tmp_path / str(commit)
        folder.mkdir()
        world = World(folder, mocks={"echo": _echo}, wrap=crashing)
        async with world:
            run = await _started(world, case.old)
            judged = await _judged(world, case.new)
            await world.close()
            await world.boot()
            done = asyncio.ensure_future(_moved(world, judged))
            crashed = asyncio.ensure_future(stores[1].crashed.wait())
            await asyncio.wait((done, crashed), return_when=asyncio.FIRST_COMPLETED)
            if not crashed.done():
                crashed.cancel()
                break
            done.cancel()
            await world.crash()
            await world.boot()
            await _moved(world, judged)
            assert await case.result(world, run) == "new"
            names = [event["event"] for event in await run.handle.history(raw=True)]
            assert names.count("RunMigrated") == 1
    else:
        pytest.fail("a move takes more commits than expected")


async def test_a_moved_run_that_failed_is_redriven_and_forked_with_another_document(world: World) -> None:
    fails = {"action": "Raise", "result": {"code": "My.Code", "message": "no"}}
    async with world:
        run = await _started(world, _flow())
        await _moved(world, await _judged(world, _flow(last=fails)))
        await world.advance(3600)
        assert await run.status() == "failed"
        await run.redrive()
        assert await run.status() == "failed", "the same document"
        assert world.engine is not None
        fork = await world.engine.fork(run.id, at_failure=ForkChanges(_flow()))
        await world.settle()
        assert await fork.result() == "old"


def test_a_plan_may_be_yaml_and_says_what_is_wrong_with_it() -> None:
    text = (
        b"perdure: migration plan\nformat: 1\nlanguage: flow\nnamespace: default\nname: a\nto: '00'\ndocument: '{}'\n"
    )
    assert read_plan(text + b"moves: [{from: '01', mapping: {a: null}, runs: [x]}]").moves[0].mapping == {"a": None}
    with pytest.raises(BadRequest, match="missing required field `moves`"):
        read_plan(text)
    with pytest.raises(BadRequest, match="a newer Perdure"):
        read_plan(text.replace(b"format: 1", b"format: 2") + b"moves: []")


READS_FIRST: dict[str, tuple[bytes, bytes, dict[str, str | None] | None, tuple[str | None, str]]] = {
    "flow": (
        _flow(last={"action": "Return", "value": "{{ step.input }}"}),
        _flow(
            {"action": "Sleep", "for": "PT1H", "next": "more"},
            more=_call("{{ step.input }}", "last", output="{{ step.result.value }}"),
            last={"action": "Return", "value": {"value": "{{ step.input }}"}},
        ),
        None,
        ("more", "with.value"),
    ),
    "story": (
        _story().replace(b"value: one", b'value: "{{ inputs.n }}"'),
        _story(
            '{name: last, ref: echo, needs: [gate], with: {value: "{{ steps.begin.output.value }}"}}',
            gate="{name: gate, type: gate, needs: [begin]}",
        )
        .replace(b"name: first", b"name: begin")
        .replace(b"value: one", b'value: "{{ inputs.n }}"'),
        {"first": "begin"},
        ("last", "input.value"),
    ),
    "playbook": (
        _playbook(),
        _playbook(
            f"{{step: gate, {GATE}, next: {{arcs: [{{step: last}}]}}}}",
            "{step: last, tool: {kind: noop, result: '{{ steps.first.result }}'}}",
        ),
        None,
        (None, "result"),
    ),
}


@pytest.mark.parametrize("language", READS_FIRST)
async def test_a_value_is_explained_through_the_move_of_its_run(language: str, world: World) -> None:
    """Moved, undone and moved again: what was set before is told with each move that it was kept by (ANA-020)."""
    old, new, mapping, (step, field) = READS_FIRST[language]
    async with world:
        assert world.engine is not None
        run = await world.start(old, {"n": "one"}, name="orders")
        for is_last in (False, True):
            assert (await _moved(world, await _judged(world, new, mapping)))["counts"]["moved"] == 1
            assert is_last or (await _undone(world, run))["outcome"] == "moved"
        await CASES[language].go_on(world, run)
        await run.result()
        explanation = await explain_value(world.engine, run.id, step, field)
        raw = {event["seq"]: event["event"] for event in await run.handle.history(raw=True)}
        shown = {event["seq"] for event in await run.handle.history()}
    assert explanation["value"] == "one"
    texts = [link["text"] for link in explanation["chain"]]
    assert sum("was kept when the run was moved to another document by ada" in text for text in texts) == 2, texts
    assert sum("was kept when the run was moved back to its former document" in text for text in texts) == 1
    assert list(raw.values()).count("RunMigrated") == 3
    assert {link["seq"] for link in explanation["chain"]} <= shown
    if mapping:
        assert any("in which 'first' is 'begin'" in text for text in texts)
