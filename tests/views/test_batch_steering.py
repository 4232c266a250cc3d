"""Several runs are steered by one call: by name or by a filter, in pieces, each answered for itself."""

from pathlib import Path
from typing import Any

import pytest
from tests.engine.documents import drill
from tests.engine.scenes import make_world

from perdure.engine.client import Client
from perdure.engine.runs.message_sending import SendResult
from perdure.engine.runs.retention import delete_run
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.stores.protocol import RunFilter
from perdure.testing import World
from perdure.views.errors import BadRequest
from perdure.views.runs import batch_steering
from perdure.views.runs.batch_steering import Selection, Verb, plan, steer_named, steer_piece

pytestmark = pytest.mark.every_store

WAITING = drill({"signal": "go"}, {"return": 1})
RED = {"team": "red"}


async def started(world: World, count: int, **labels: str) -> list[RunId]:
    return [(await world.start(WAITING, labels=labels)).id for _ in range(count)]


async def cancel(client: Client, run: RunId) -> SendResult:
    return await client.cancel(run, "enough")


def engine(world: World) -> Client:
    assert world.engine is not None
    return world.engine


async def test_a_filter_is_worked_off_in_pieces_and_meets_no_run_twice(tmp_path: Path) -> None:
    """All were created at the same instant of the clock: the cursor tells them apart by their ids."""
    async with make_world(tmp_path) as world:
        red = await started(world, 5, team="red")
        blue = await started(world, 1, team="blue")
        calls: list[RunId] = []

        async def send(client: Client, run: RunId) -> SendResult:
            calls.append(run)
            return await client.signal(run, "noise")

        answers, cursor = [], ""
        while True:
            answer = await steer_piece(engine(world), Selection(labels=RED), Verb.SIGNAL, send, cursor=cursor, piece=2)
            answers.append(answer)
            if not (cursor := answer.next):
                break

        assert [len(answer.ids) for answer in answers] == [2, 2, 1]
        assert sorted(calls) == sorted(red)
        assert blue[0] not in calls


async def test_the_latest_of_many_pieces_goes_on_although_runs_are_deleted_behind_it(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        runs = await started(world, 5)
        for run in runs:
            await world.run(run).signal("go")
        first = await steer_piece(engine(world), Selection(everything=True), Verb.DELETE, delete_run, piece=2)
        rest = await steer_piece(engine(world), Selection(everything=True), Verb.DELETE, delete_run, cursor=first.next)

        assert sorted([*first.ids, *rest.ids]) == sorted(runs)
        assert rest.next == "" and not (*first.failed, *rest.failed)
        assert await engine(world).search(RunFilter()) == []


async def test_a_key_steers_a_run_once_and_other_content_under_it_is_refused(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        runs = await started(world, 3, team="red")

        async def signal(client: Client, run: RunId, value: int = 1) -> SendResult:
            return await client.signal(run, "noise", value, key="ticket-17")

        async def other(client: Client, run: RunId) -> SendResult:
            return await signal(client, run, 2)

        for _ in range(2):
            answer = await steer_piece(engine(world), Selection(labels=RED), Verb.SIGNAL, signal)
            assert sorted(answer.ids) == sorted(runs)
        for run in runs:
            events = [event["event"] for event in await engine(world).history(run, raw=True)]
            assert events.count("SignalReceived") == 1
        refused = await steer_piece(engine(world), Selection(labels=RED), Verb.SIGNAL, other)
        assert refused.ids == [] and {each.error.code for each in refused.failed} == {"CONFLICT"}


async def test_an_answer_says_what_each_run_said(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        open_run, ended, also_open = await started(world, 3)
        await world.run(ended).signal("go")
        answer = (await steer_named(engine(world), [open_run, ended, "nobody", open_run, also_open], cancel)).plain()

        assert answer["ids"] == [open_run, also_open]
        assert [(each["id"], each["code"]) for each in answer["failed"]] == [
            ("nobody", "RUN-NOT-FOUND"),
            (ended, "CONFLICT"),
        ]
        assert answer["count"] == 4 and answer["dry_run"] is False and "next" not in answer


async def test_a_dry_run_counts_up_to_a_bound_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_world(tmp_path) as world:
        runs = await started(world, 5)
        whole = await plan(engine(world), Selection(everything=True), Verb.CANCEL)
        assert (whole.count, whole.more, sorted(whole.ids)) == (5, False, sorted(runs))

        monkeypatch.setattr(batch_steering, "PIECE", 2)
        monkeypatch.setattr(batch_steering, "COUNTED", 4)
        bounded = (await plan(engine(world), Selection(everything=True), Verb.CANCEL)).plain()
        assert (bounded["count"], bounded["more"], len(bounded["ids"])) == (4, True, 2)
        assert {row.status for row in await engine(world).search(RunFilter())} == {Status.WAITING}


async def test_an_empty_filter_and_a_wrong_cursor_are_refused(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        await started(world, 1)
        for selection in (Selection(), Selection(with_children=True), Selection(name="x", everything=True)):
            with pytest.raises(BadRequest):
                await steer_piece(engine(world), selection, Verb.CANCEL, cancel)
        with pytest.raises(BadRequest, match="is not a cursor"):
            await steer_piece(engine(world), Selection(everything=True), Verb.CANCEL, cancel, cursor="soon")


CASES: list[tuple[Verb, set[str]]] = [
    (Verb.CANCEL, {"waiting", "paused"}),
    (Verb.PAUSE, {"waiting"}),
    (Verb.UNPAUSE, {"paused"}),
    (Verb.REDRIVE, {"failed"}),
    (Verb.DELETE, {"failed", "succeeded"}),
]


@pytest.mark.parametrize(("verb", "concerned"), CASES)
async def test_without_a_status_the_runs_that_a_verb_concerns_are_meant(
    tmp_path: Path, verb: Verb, concerned: set[str]
) -> None:
    async with make_world(tmp_path) as world:
        ids: dict[str, Any] = {
            "waiting": (await world.start(WAITING)).id,
            "paused": (await world.start(WAITING)).id,
            "failed": (await world.start(drill({"fail": "Bad.Luck"}))).id,
            "succeeded": (await world.start(drill({"return": 1}))).id,
        }
        await engine(world).handle(ids["paused"]).pause()
        await world.settle()

        answer = await plan(engine(world), Selection(everything=True), verb)
        assert set(answer.ids) == {ids[status] for status in concerned}


async def test_what_is_pending_for_a_run_without_an_owner_counts(tmp_path: Path) -> None:
    """A pause that nobody has decided yet: the run is to be unpaused, and not to be paused again."""
    async with make_world(tmp_path) as world:
        (run,) = await started(world, 1)
        await world.close()
        client = Client(world.open_store(), world._languages, world.clock, None)
        async with client:
            await client.handle(run).pause()
            assert (await plan(client, Selection(everything=True), Verb.PAUSE)).ids == []
            assert (await plan(client, Selection(everything=True), Verb.UNPAUSE)).ids == [run]


async def test_children_are_left_to_their_parents_unless_they_are_asked_for(tmp_path: Path) -> None:
    async with make_world(tmp_path) as world:
        parent = await world.start(drill({"child": WAITING}, {"return": 1}))
        roots = await plan(engine(world), Selection(everything=True), Verb.CANCEL)
        every = await plan(engine(world), Selection(everything=True, with_children=True), Verb.CANCEL)

        assert roots.ids == [parent.id] and every.count == 2
        (child,) = set(every.ids) - {parent.id}
        await world.run(child).signal("go")
        assert await parent.status() == "succeeded"
        refused = await steer_named(engine(world), [child], delete_run)
        assert "is part of run" in str(refused.failed[0].error)
        assert (await steer_named(engine(world), [parent.id], delete_run)).ids == [parent.id]
        assert await engine(world).search(RunFilter()) == []
