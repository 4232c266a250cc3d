"""Control messages and deadlines: what was acknowledged counts, was refused, or left a trace (invariants 1, 8, 26)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.client import Client
from perdure.kernel import inputs as i
from perdure.kernel.errors import Conflict
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, RunId
from perdure.kernel.outcomes import Succeeded
from perdure.stores.commit_types import Message
from perdure.stores.pool_tasks import LeaseRequest
from perdure.stores.protocol import RunFilter
from perdure.testing import RunInWorld, World
from perdure.wiring import languages
from tests.engine.documents import drill

pytestmark = pytest.mark.every_store

CORE = "bubustack.io/v1alpha1"


def story(*steps: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"apiVersion": CORE, "kind": "Story", "metadata": {"name": "s"}, "spec": {"steps": list(steps), **spec}}


def gate(**members: Any) -> dict[str, Any]:
    return {"name": "g", "type": "gate", "with": members}


def playbook(**completion: Any) -> dict[str, Any]:
    admit = {"admit": {"rules": [{"when": "{{ ctx.approved }}", "then": {"allow": True}}]}}
    step = {"step": "go", "spec": {"policy": admit}, "tool": {"kind": "noop"}}
    return {
        "apiVersion": "noetl.io/v10",
        "kind": "Playbook",
        "metadata": {"name": "p", "path": "tests/p"},
        "executor": {"spec": {"policy": {"completion": completion}}} if completion else {},
        "workflow": [step],
    }


@asynccontextmanager
async def elsewhere(world: World) -> AsyncIterator[Client]:
    """Another process that only looks and sends."""
    async with Client(world.open_store(), languages(), world.clock, None) as observer:
        yield observer


async def send(world: World, run: RunId, *words: i.Input) -> None:
    """Put them into the inbox, one second after the other, as if nobody had looked whether they count."""
    async with elsewhere(world) as observer:
        for word in words:
            world.clock.move_to(world.clock.now() + SECOND)
            await observer.store.send(Message(run, world.clock.now(), i.encode(word)))


def decision(state: str, by: str = "", step: str = "g", key: str = "") -> i.Steer:
    return i.Steer("gate", jsontext.encode({"step": step, "state": state, "by": by}), key, by)


def patch(key: str = "", **members: Any) -> i.Steer:
    return i.Steer("patch", jsontext.encode({"ctx": members}), key)


async def raw(run: RunInWorld) -> list[dict[str, Any]]:
    return await run.handle.history(raw=True)


async def declined(run: RunInWorld) -> list[dict[str, Any]]:
    return [event for event in await raw(run) if event["event"] == "InputDeclined"]


async def phase(run: RunInWorld, step: str = "g") -> str:
    return str((await run.show())["status"]["stepStates"][step]["phase"])


# Waits for a word.


@pytest.mark.parametrize("at", [2, 9], ids=["in time", "overdue"])
async def test_a_decision_counts_before_the_gate_times_out_on_whichever_side_it_came(tmp_path: Path, at: int) -> None:
    """Invariant 8, STY-103: the engine was dead when the deadline passed."""
    async with World(tmp_path) as world:
        run = await world.start(story(gate(timeout="4s")))
        await world.crash()
        world.clock.move_to(world.clock.now() + at * SECOND)
        await send(world, run.id, decision("Approved", "Ada"))
        world.clock.move_to(world.clock.now() + 60 * SECOND)
        await world.boot()

        assert await phase(run) == "Succeeded"
        assert await run.status() == "succeeded"


async def test_a_gate_that_nobody_decided_times_out_after_the_inbox_was_read(tmp_path: Path) -> None:
    """Invariant 8, STY-104."""
    async with World(tmp_path) as world:
        run = await world.start(story(gate(timeout="4s")))
        await world.crash()
        world.clock.move_to(world.clock.now() + 60 * SECOND)
        await world.boot()

        assert await phase(run) == "Timeout"


async def test_a_signal_counts_before_a_wait_times_out(tmp_path: Path) -> None:
    """Invariant 8, STY-098: the condition is looked at with everything that was said by then."""
    until = '{{ eq (index steps "w" "signals" "go") "yes" }}'
    waits = {"name": "w", "type": "wait", "with": {"until": until, "timeout": "4s"}}
    async with World(tmp_path) as world:
        run = await world.start(story(waits))
        await world.crash()
        world.clock.move_to(world.clock.now() + 9 * SECOND)
        await send(world, run.id, i.Signal("w.go", b'"yes"', "k"))
        await world.boot()

        assert await phase(run, "w") == "Succeeded"


async def test_a_patch_counts_before_a_playbook_has_waited_long_enough(tmp_path: Path) -> None:
    """Invariant 8: `wait_timeout_s` ends a wait for a word."""
    async with World(tmp_path) as world:
        run = await world.start(playbook(wait_timeout_s=4))
        assert (await run.show())["status"] == "waiting"
        await world.crash()
        world.clock.move_to(world.clock.now() + 9 * SECOND)
        await send(world, run.id, patch(approved=True))
        await world.boot()

        assert await run.status() == "succeeded"


async def test_a_playbook_that_nobody_patches_stops_waiting(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        run = await world.start(playbook(wait_timeout_s=4))
        await world.advance(5)

        assert await run.status() == "failed"


async def test_a_word_that_lies_in_the_store_counts_although_the_engine_has_not_looked(tmp_path: Path) -> None:
    """Invariant 8: the inbox is read after the due time, also by an engine that lives."""
    async with World(tmp_path) as world:
        run = await world.start(story(gate(timeout="4s")))
        assert world.engine is not None
        world.engine.store.changed = lambda: False  # type: ignore[method-assign]  # it does not look by itself
        world.clock._now += 9 * SECOND  # the alarm has not rung yet
        async with elsewhere(world) as observer:
            await observer.store.send(Message(run.id, world.clock.now(), i.encode(decision("Approved"))))
        world.clock.move_to(world.clock.now())
        await world.settle()

        assert await phase(run) == "Succeeded"


async def test_a_word_does_not_pass_a_bound_around_its_wait(tmp_path: Path) -> None:
    """Invariant 8: the story's own time was up before the decision came; it is declined with a trace (26)."""
    document = story(gate(timeout="1h"), policy={"timeouts": {"story": "4s"}})
    async with World(tmp_path) as world:
        run = await world.start(document)
        await world.crash()
        world.clock.move_to(world.clock.now() + 9 * SECOND)
        await send(world, run.id, decision("Approved", "Ada", key="late"))
        await world.boot()

        assert await phase(run) == "Canceled"
        (event,) = await declined(run)
        assert (event["kind"], event["key"], event["by"]) == ("steer", "late", "Ada")
        assert "the run has already timed out" in event["reason"]


async def test_the_drill_waits_for_its_signal_like_the_languages_do(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        run = await world.start(drill({"signal": "go", "timeout": "4s", "save": "a"}, {"return": "$a"}))
        await world.crash()
        world.clock.move_to(world.clock.now() + 9 * SECOND)
        await send(world, run.id, i.Signal("go", b"1", "k"))
        await world.boot()

        assert await run.result() == 1


# Rows of words.


async def test_the_last_of_two_decisions_that_waited_together_wins_and_both_are_events(tmp_path: Path) -> None:
    """Invariant 1, STY-105: words that wait together are accepted before the next move."""
    async with World(tmp_path) as world:
        run = await world.start(story(gate()))
        await world.crash()
        await send(world, run.id, decision("Approved", "A"), decision("Rejected", "B"))
        await world.boot()

        assert await phase(run) == "Failed"
        decided = [event["payload"]["state"] for event in await run.handle.history() if "gate" in event["event_type"]]
        assert decided == ["Approved", "Rejected"]


async def test_patches_that_waited_together_are_all_applied_before_the_gate_opens(tmp_path: Path) -> None:
    """Invariant 1, PBK-153, PBK-156."""
    async with World(tmp_path) as world:
        run = await world.start(playbook())
        await world.crash()
        await send(world, run.id, patch(approved=True), patch(note="x"))
        await world.boot()

        assert await run.status() == "succeeded"
        assert (await run.show())["ctx"] == {"approved": True, "note": "x"}
        assert [event["event_type"] for event in await run.handle.history()].count("ctx.patched") == 2


async def test_an_approval_that_was_withdrawn_before_the_run_moved_does_not_count(tmp_path: Path) -> None:
    """Invariant 1: `Pending` is a decision too."""
    async with World(tmp_path) as world:
        run = await world.start(story(gate()))
        await world.crash()
        await send(world, run.id, decision("Approved"), decision("Pending"))
        await world.boot()

        assert await phase(run) == "Paused"


async def test_a_word_behind_a_row_that_is_refused_does_not_keep_the_run_from_moving(tmp_path: Path) -> None:
    """Invariant 1, 26: the moves are owed to the words before it."""
    async with World(tmp_path) as world:
        run = await world.start(story(gate()))
        await world.crash()
        await send(world, run.id, decision("Approved"), decision("Approved", step="nowhere", key="k"))
        await world.boot()

        assert await run.status() == "succeeded"
        assert [event["key"] for event in await declined(run)] == ["k"]


async def test_a_result_between_two_words_parts_them(tmp_path: Path) -> None:
    """Invariant 1: what arrived in between is decided in between, with the moves that follow from it."""
    document = drill({"signal": "go", "save": "a"}, {"call": "slow", "pool": "gpu", "save": "b"}, {"return": "$a"})
    async with World(tmp_path) as world:
        run = await world.start(document)
        await run.signal("go", 1)
        assert world.engine is not None
        (leased,) = await world.engine.store.lease(LeaseRequest(["gpu"], "w1", 1, world.clock.now() + 60 * SECOND))
        await world.crash()
        result = i.TaskResult(leased.task, 1, leased.delivery, Succeeded(b"2"))
        await send(world, run.id, i.Signal("x", b"1", "before"), result, i.Signal("x", b"2", "behind"))
        await world.boot()

        assert await run.result() == 1
        assert [event["key"] for event in await declined(run)] == ["behind"]


# Declined with a trace.


async def test_a_word_behind_the_end_leaves_a_trace_and_the_end_stands(tmp_path: Path) -> None:
    """Invariant 26: the event stands behind `RunEnded`; status and time of the end stay."""
    async with World(tmp_path) as world:
        run = await world.start(playbook())
        await world.crash()
        await send(world, run.id, i.Cancel("enough", "Ada"), patch(key="late", approved=True))
        await world.boot()

        names = [event["event"] for event in await raw(run)]
        assert names.index("RunEnded") < names.index("InputDeclined")
        assert await run.status() == "cancelled"
        row = await run.handle._engine.find(run.id)
        ended = next(event["at"] for event in await raw(run) if event["event"] == "RunEnded")
        assert row.ended_at == ended
        event = (await run.handle.history())[-1]
        assert event["event_type"] == "input.declined"
        assert "has already been cancelled (at " in event["payload"]["reason"]
        await world.crash()
        await world.boot()
        assert await run.status() == "cancelled"


async def test_a_word_to_a_run_that_has_ended_meanwhile_is_declined_in_the_commit_that_takes_it(
    tmp_path: Path,
) -> None:
    """Invariants 7, 26."""
    async with World(tmp_path) as world:
        run = await world.start(drill({"signal": "go"}))
        await run.signal("go")
        await send(world, run.id, i.Signal("go", b"1", "late", "Ada"), i.Cancel("no", "Bob"))
        assert world.engine is not None
        await world.engine.runtime.read_inbox()
        await world.settle()

        declined_inputs = [(event["kind"], event["key"], event["by"]) for event in await declined(run)]
        assert declined_inputs == [("signal", "late", "Ada"), ("cancel", "", "Bob")]
        assert all("already succeeded" in event["reason"] for event in await declined(run))
        assert await world.engine.store.inbox(world.engine.runtime.partitions, 10) == []


async def test_what_is_refused_to_the_face_repeated_or_stale_leaves_no_trace(tmp_path: Path) -> None:
    """Invariant 26: nobody was told that it would count."""
    async with World(tmp_path) as world:
        run = await world.start(drill({"signal": "a"}, {"signal": "b"}))
        await run.signal("a", 1, key="k")
        await send(world, run.id, i.Signal("a", b"1", "k"), i.TimerDue(77), i.Wake(), i.PermitGrant(5))
        with pytest.raises(Exception, match="used before"):
            await run.signal("a", 2, key="k")
        assert world.engine is not None
        await world.engine.runtime.read_inbox()
        await world.settle()

        assert await declined(run) == []


async def test_after_a_hundred_they_are_counted_not_listed(tmp_path: Path) -> None:
    """Invariant 26."""
    async with World(tmp_path) as world:
        run = await world.start(drill({"return": 1}))
        await send(world, run.id, *(i.Signal("go", b"1", f"k{number}") for number in range(103)))
        assert world.engine is not None
        await world.engine.runtime.read_inbox()
        await world.settle()

        assert len(await declined(run)) == 100
        counted = [event["total"] for event in await raw(run) if event["event"] == "MoreInputsDeclined"]
        assert counted == [101, 102, 103]


async def test_a_read_that_began_before_a_letter_was_decided_does_not_bring_it_back(tmp_path: Path) -> None:
    """Invariants 7, 26: a store with threads may answer late."""
    async with World(tmp_path) as world:
        run = await world.start(drill({"return": 1}))
        assert world.engine is not None
        store, runtime = world.engine.store, world.engine.runtime
        store.changed = lambda: False  # type: ignore[method-assign]  # it does not look by itself
        await send(world, run.id, *(i.Signal("go", b"1", f"k{number}") for number in range(103)))
        reached, answer = asyncio.Event(), asyncio.Event()
        inbox = store.inbox

        async def late(partitions: Any, limit: int) -> Any:
            letters = await inbox(partitions, limit)
            reached.set()
            await answer.wait()
            return letters

        store.inbox = late  # type: ignore[method-assign]
        reading = asyncio.create_task(runtime.read_inbox())
        await reached.wait()
        store.inbox = inbox  # type: ignore[method-assign]
        await runtime.read_inbox()
        await world.settle()
        answer.set()
        await reading
        await world.settle()

        counted = [event["total"] for event in await raw(run) if event["event"] == "MoreInputsDeclined"]
        assert counted == [101, 102, 103]


async def test_a_parents_cancel_of_a_child_that_has_ended_is_no_word(tmp_path: Path) -> None:
    """Invariant 26: runs cancel each other all the time."""
    async with World(tmp_path) as world:
        run = await world.start(drill({"return": 1}))
        await send(world, run.id, i.Cancel("the parent was cancelled", "parent"))
        assert world.engine is not None
        await world.engine.runtime.read_inbox()
        await world.settle()

        assert await declined(run) == []


# What senders are told, and what looks show.


async def test_of_two_words_about_one_gate_the_second_sender_hears_whom_it_overrides(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        run = await world.start(story(gate(timeout="4s")))
        await world.crash()
        world.clock.move_to(world.clock.now() + 9 * SECOND)
        async with elsewhere(world) as observer:
            first = await observer.steer(run.id, "gate", {"step": "g", "state": "Approved"}, by="A")
            second = await observer.steer(run.id, "gate", {"step": "g", "state": "Rejected"}, by="B")

            assert (first.is_decided, first.is_live, first.remarks) == (False, False, ())
            (remark,) = second.remarks
            assert remark.startswith("overrides gate 'g' approved by A, recorded at ")
            shown = await observer.show(run.id)
            assert shown["status"]["gates"]["g"]["state"] == "Rejected"
            assert [message["by"] for message in shown["pending"]] == ["A", "B"]
            assert all("takes effect when resumed" in message["text"] for message in shown["pending"])
            recorded = await observer.show(run.id, at=len(await observer.history(run.id)))
            assert "g" not in recorded["status"]["gates"] and "pending" not in recorded
            assert not any("gate" in event["event_type"] for event in await observer.history(run.id))
        await world.boot()
        assert await phase(run) == "Failed"
        assert "pending" not in await run.show()


async def test_a_word_behind_a_bound_that_has_passed_is_refused_and_told_which_and_since_when(tmp_path: Path) -> None:
    document = story(gate(timeout="1h"), policy={"timeouts": {"story": "4s"}})
    async with World(tmp_path) as world:
        run = await world.start(document)
        await world.crash()
        world.clock.move_to(world.clock.now() + 9 * SECOND)
        async with elsewhere(world) as observer:
            with pytest.raises(Conflict, match=r"exceeded timeout of 4s \(at .*Z\): gate 'g' has already ended"):
                await observer.steer(run.id, "gate", {"step": "g", "state": "Approved"})
            with pytest.raises(Conflict, match="exceeded timeout"):
                await observer.signal(run.id, "g.x", 1)
            await observer.cancel(run.id)  # a cancel can still come

            shown = await observer.show(run.id)
            assert shown["status"]["stepStates"]["g"]["phase"] == "Canceled"
            assert [message["kind"] for message in shown["pending"]] == ["deadline", "cancel"]
        await world.boot()
        assert await declined(run) == []


async def test_a_patch_of_an_execution_whose_time_is_up_is_refused(tmp_path: Path) -> None:
    document = playbook()
    document["executor"] = {"spec": {"policy": {"lifecycle": {"timeout_s": 4}}}}
    async with World(tmp_path) as world:
        run = await world.start(document)
        assert (await run.show())["status"] == "waiting"
        await world.crash()
        world.clock.move_to(world.clock.now() + 9 * SECOND)
        async with elsewhere(world) as observer:
            with pytest.raises(Conflict, match=r"the execution did not end in time \(at "):
                await observer.steer(run.id, "patch", {"ctx": {"approved": True}})


@pytest.mark.parametrize("language", ["story", "playbook"])
async def test_a_word_behind_a_cancel_that_waits_is_refused(tmp_path: Path, language: str) -> None:
    async with World(tmp_path) as world:
        run = await world.start(story(gate()) if language == "story" else playbook())
        await world.crash()
        verb, body = (
            ("gate", {"step": "g", "state": "Approved"}) if language == "story" else ("patch", {"ctx": {"a": 1}})
        )
        async with elsewhere(world) as observer:
            await observer.cancel(run.id, "enough", "Ada")
            again = await observer.cancel(run.id, "enough")
            with pytest.raises(Conflict, match=r"a cancel was requested at .*Z by Ada: "):
                await observer.steer(run.id, verb, body)

            assert not again.is_new and "waits already" in again.remarks[0]
            assert len(await observer.store.messages(run.id)) == 1
            shown = await observer.show(run.id)
            (pending,) = [message for message in shown["pending"] if message["kind"] == "cancel"]
            assert pending["text"].startswith("cancel requested at ")
            assert pending["text"].endswith("by Ada, takes effect when resumed")
            row, execution, _ = await observer.outlook(run.id)
            assert row.has_control_messages
            assert execution.dialect.awaits(execution) == [], "nobody is advised to say what would be refused"


async def test_a_gate_that_is_not_reached_takes_the_decision_for_later(tmp_path: Path) -> None:
    document = story({"name": "first", "type": "gate"}, {**gate(), "needs": ["first"]})
    async with World(tmp_path) as world:
        run = await world.start(document)
        await world.crash()
        async with elsewhere(world) as observer:
            answer = await observer.steer(run.id, "gate", {"step": "g", "state": "Approved"})

            assert answer.remarks == ("applies when gate 'g' is reached",)


async def test_a_step_that_has_ended_refuses_decisions_and_names_who_decided(tmp_path: Path) -> None:
    document = story(gate(), {"name": "more", "type": "gate", "needs": ["g"]})
    async with World(tmp_path) as world:
        run = await world.start(document)
        await run.handle._engine.steer(run.id, "gate", {"step": "g", "state": "Approved"}, by="Ada")
        await world.settle()
        await world.crash()
        async with elsewhere(world) as observer:
            with pytest.raises(Conflict, match=r"gate 'g' has already ended as Succeeded \(Approved by Ada\)"):
                await observer.steer(run.id, "gate", {"step": "g", "state": "Rejected"})
            await observer.signal(run.id, "g.note", "data of the step")


async def test_results_that_wait_before_a_word_are_decided_with_it(tmp_path: Path) -> None:
    document = drill({"call": "slow", "pool": "gpu", "save": "b"}, {"signal": "go"})
    async with World(tmp_path) as world:
        run = await world.start(document)
        assert world.engine is not None
        (leased,) = await world.engine.store.lease(LeaseRequest(["gpu"], "w1", 1, world.clock.now() + 60 * SECOND))
        await world.crash()
        await send(world, run.id, i.TaskResult(leased.task, 1, leased.delivery, Succeeded(b"2")))
        async with elsewhere(world) as observer:
            answer = await observer.signal(run.id, "go")

            assert answer.remarks == ("decided with what waits before it",)


async def test_a_sender_hears_what_a_live_owner_has_decided(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        run = await world.start(story(gate(), {"name": "more", "type": "gate", "needs": ["g"]}))
        async with elsewhere(world) as observer:
            answer = await observer.steer(run.id, "gate", {"step": "g", "state": "Approved"}, by="A")

            assert answer.is_decided and answer.is_live
            assert await phase(run) == "Succeeded"
            with pytest.raises(Conflict, match="already ended as Succeeded"):
                await observer.steer(run.id, "gate", {"step": "g", "state": "Rejected"}, by="B")
            assert (await observer.cancel(run.id)).is_decided


async def test_a_sender_whose_word_the_live_owner_declines_is_refused(tmp_path: Path) -> None:
    """The recorded state spoke for it, and then another word came first."""
    async with World(tmp_path) as world:
        run = await world.start(playbook())
        async with elsewhere(world) as observer:
            load = observer.store.load
            cancelled = False

            async def raced(runs: Any) -> Any:
                nonlocal cancelled
                stored = await load(runs)
                if not cancelled:  # between the look at the run and the letter somebody else is quicker
                    cancelled = True
                    await run.cancel("quicker")
                return stored

            observer.store.load = raced  # type: ignore[method-assign]
            with pytest.raises(Conflict, match="already been cancelled"):
                await observer.steer(run.id, "patch", {"ctx": {"approved": True}}, key="late")
        assert [event["key"] for event in await declined(run)] == ["late"]


async def test_an_owner_that_does_not_read_leaves_the_word_recorded(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        run = await world.start(story(gate()))
        assert world.engine is not None
        world.engine.store.changed = lambda: False  # type: ignore[method-assign]  # it does not look by itself
        async with elsewhere(world) as observer:
            observer.answer_timeout = 0.0
            answer = await observer.tell(run.id, decision("Approved"))

            assert (answer.is_decided, answer.is_live) == (False, True)


async def test_a_run_that_was_told_something_is_not_removed_before_that_is_decided(tmp_path: Path) -> None:
    """Invariant 26: prune and removal leave it alone; the sender's word is declined, and then it goes."""
    async with World(tmp_path) as world:
        run = await world.start(drill({"return": 1}))
        await world.crash()
        late = Message(run.id, world.clock.now(), i.encode(i.Signal("go", b"1", "late")), is_control=True)
        async with elsewhere(world) as observer:
            await observer.store.send(late)
            assert await observer.prune(world.clock.now() + SECOND) == 0
            assert [row.has_control_messages for row in await observer.search(RunFilter())] == [True]
        await world.boot()
        assert [event["key"] for event in await declined(run)] == ["late"]
        assert world.engine is not None
        assert await world.engine.prune(world.clock.now() + SECOND) == 1


async def test_a_disowned_run_decides_what_was_said_to_it_before_it_goes(tmp_path: Path) -> None:
    """Invariants 18, 26."""
    async with World(tmp_path) as world:
        run = await world.start(drill({"return": 1}))
        assert world.engine is not None
        names: list[str] = []
        world.engine.runtime.watch(
            lambda _, turns: names.extend(type(event).__name__ for _, some in turns for event in some)
        )
        async with elsewhere(world) as observer:
            word = i.encode(i.Signal("go", b"1", "late"))
            await observer.store.send(Message(run.id, world.clock.now(), i.encode(i.Disown())))
            await observer.store.send(Message(run.id, world.clock.now(), word, is_control=True))
            await world.engine.runtime.read_inbox()
            await world.settle()

            assert await observer.store.find(run.id) is None
        assert names == ["InputDeclined"]
