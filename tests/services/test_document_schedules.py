"""Impulses and schedules that start Flows and Playbooks: overlap, catch-up, pause, backfill, alerts, crashes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.engine.resources.catalog import ResourceNotFound
from perdure.engine.resources.catalog_changes import Rejected
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import Conflict, PerdureError
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Failed, Succeeded
from perdure.services.failure_alerts import WATCH, FailureAlerts
from perdure.services.schedules import cron_scheduler
from perdure.services.schedules.cron_scheduler import CronScheduler
from perdure.services.schedules.firings import FIRING
from perdure.services.story.triggers.impulse_schedules import ImpulseSchedules
from perdure.stores.protocol import RunFilter, RunRow
from perdure.testing.clock import FakeClock
from perdure.testing.world import World
from perdure.wiring import Engine, schedules
from tests.dialects.story.world import CORE
from tests.services.story_engine import DyingStore, engine_of, impulse_template
from tests.services.test_cron import at

FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "work",
    "steps": {
        "work": {
            "action": "Call",
            "call": {"provider": "mwl:provider.call/perdure/echo/v1", "with": {"value": 1}},
            "next": "end",
        },
        "end": {"action": "Return", "value": "{{ frame.input }}"},
    },
}
ALERT = {**FLOW, "entrypoint": "end", "steps": {"end": FLOW["steps"]["end"]}}  # type: ignore[index]
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: nightly, path: etl/nightly}
workflow:
- {step: start, tool: {kind: noop}}
"""
EVERY = {"name": "five", "cron": "*/5 * * * *", "inputs": {"n": 1}}
WORKS_ON = "echo"


def impulse(*entries: Any, document: Any = None, on_failure: Any = None, **members: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "templateRef": {"name": "cron"},
        "documentRef": document or {"language": "flow", "name": "ping"},
        "with": {"schedules": list(entries) or [EVERY], **members},
    }
    if on_failure:
        spec["onFailure"] = on_failure
    return {"apiVersion": CORE, "kind": "Impulse", "metadata": {"name": "tick"}, "spec": spec}


def documents(*impulses: Any) -> list[AppliedDocument]:
    texts = {"ping.json": FLOW, "alert.json": ALERT} | {f"i{n}.json": impulse for n, impulse in enumerate(impulses)}
    applied = [AppliedDocument(file, jsontext.encode(text).decode()) for file, text in texts.items()]
    return [*applied, AppliedDocument("nightly.yaml", PLAYBOOK)]


class Ticking:
    """A world whose clock begins at 10:02, with Impulses that were applied just then, and a server's schedules."""

    def __init__(self, folder: Path, *impulses: Any, held: bool = False, wrap: Any = None) -> None:
        work: dict[str, Any] = {WORKS_ON: lambda arguments, input: arguments}
        self.world = World(folder, functions=None if held else work, held={WORKS_ON} if held else None, wrap=wrap)
        self.world.clock = FakeClock(at("2027-01-15T10:02:00"))
        self._impulses = impulses

    async def __aenter__(self) -> "Ticking":
        await self.world.boot()
        await self.engine.apply(documents(*self._impulses))
        await self.keep()
        return self

    async def __aexit__(self, *exit: object) -> None:
        await self.keeper.close()
        await self.world.__aexit__()

    @property
    def engine(self) -> Engine:
        return engine_of(self.world)

    async def keep(self) -> None:
        self.keeper = CronScheduler(self.engine, ImpulseSchedules(self.engine))
        await self.look()

    async def look(self) -> None:
        """What a server does from time to time."""
        await self.engine.settle_requests()
        await self.keeper.refresh()
        await self.calm()

    async def calm(self) -> None:
        """Until the keeper starts nothing: it writes to a real store, which takes time that the clock does not see."""
        quiet = 0
        while quiet < 8:
            await asyncio.sleep(0.004)
            await self.world.settle()
            quiet = 0 if hasattr(self, "keeper") and self.keeper.is_busy else quiet + 1

    async def until(self, text: str) -> None:
        target = at(text)
        while (due := self.world.clock.next_alarm()) is not None and due <= target:
            self.world.clock.move_to(due)
            await self.calm()
        self.world.clock.move_to(target)
        await self.calm()

    async def runs(self, name: str = "ping") -> list[RunRow]:
        return list(reversed(await self.engine.search(RunFilter(name=name))))

    async def times(self) -> list[str]:
        return sorted(row.labels["perdure.dev/scheduled-at"][11:16] for row in await self.runs())

    async def firings(self) -> list[str]:
        return [row.key.name[-20:] for row in await self.engine.store.list_resources(FIRING)]

    async def release(self, outcome: Any) -> None:
        self.world.hands.release(outcome)
        await self.calm()


async def test_a_schedule_starts_a_flow_with_its_inputs(tmp_path: Path) -> None:
    """SRV-041 SRV-042"""
    async with Ticking(tmp_path, impulse(timezone="Europe/Oslo")) as scene:
        await scene.until("2027-01-15T10:11:00")
        first, second = await scene.runs()
        assert first.language == "flow" and first.status == "succeeded"
        assert first.labels["perdure.dev/impulse"] == "default/tick" and first.labels["perdure.dev/schedule"] == "five"
        firing = {"schedule": "five", "description": "*/5 * * * *", "triggeredAt": "2027-01-15T11:05:00+01:00"}
        assert await scene.engine.handle(first.id).result() == {"n": 1, "_cron": firing}
        assert second.labels["perdure.dev/scheduled-at"] == "2027-01-15T10:10:00Z"
        view = await schedules(scene.engine).find("tick", "default", 2)
        assert view.state.result == "Created" and view.state.run == second.id
        assert [at for at, _ in view.next] == [at("2027-01-15T10:15:00"), at("2027-01-15T10:20:00")]


async def test_a_schedule_starts_a_playbook_by_its_path(tmp_path: Path) -> None:
    """SRV-041"""
    entry = impulse(document={"language": "playbook", "name": "etl/nightly"})
    async with Ticking(tmp_path, entry) as scene:
        await scene.until("2027-01-15T10:06:00")
        (run,) = await scene.runs("nightly")
        assert run.language == "playbook"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"documentRef": {"language": "plabook", "name": "x"}},
            "'plabook' is not a language .*did you mean 'playbook'",
        ),
        ({"documentRef": {"name": "x"}}, "documentRef.language is required"),
        ({"documentRef": {"language": "flow"}}, "documentRef.name is required"),
        ({"storyRef": {"name": "x"}}, "exclude each other"),
        ({"documentRef": None}, "spec.storyRef.name is required"),
        ({"documentRef": {"language": "flow", "name": "ping", "version": "new"}}, "'new' is not a version"),
        ({"onFailure": {}}, "spec.onFailure.storyRef.name is required"),
        ({"onFailure": {"documentRef": {"language": "x", "name": "y"}}}, "'x' is not a language"),
        ({"with": {"schedules": [{**EVERY, "onFailure": {"document": 1}}]}}, "unknown field 'document'"),
        ({"with": {"schedules": [EVERY], "catchUpWindow": "1000h"}}, "catchUpWindow: at most 744h"),
        ({"with": {"schedules": [EVERY], "catchUpWindow": "soon"}}, "catchUpWindow"),
        ({"with": {"schedules": [EVERY], "concurrencyPolicy": "never"}}, "concurrencyPolicy"),
    ],
)
async def test_an_impulse_that_names_no_document_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    """SRV-041 SRV-042"""
    async with World(tmp_path) as world:
        wrong = impulse()
        wrong["spec"] = {name: value for name, value in {**wrong["spec"], **change}.items() if value is not None}
        with pytest.raises(Rejected, match=message):
            await engine_of(world).apply(documents(wrong))


async def test_a_document_that_is_missing_is_a_warning_and_a_rejected_time(tmp_path: Path) -> None:
    async with Ticking(tmp_path, impulse(document={"language": "flow", "name": "later"})) as scene:
        await scene.until("2027-01-15T10:06:00")
        view = await schedules(scene.engine).find("tick", "default")
        assert view.state.result == "Failed" and "flow.mwl.dev/later" in view.state.message
        assert await scene.firings() == []


@pytest.mark.parametrize(
    ("policy", "started", "waiting"),
    [("allow", 3, 0), ("skip", 1, 0), ("forbid", 1, 0), ("queue", 1, 2), ("cancelPrevious", 3, 0), ("replace", 3, 0)],
)
async def test_what_a_run_that_has_not_ended_means_for_the_next(
    tmp_path: Path, policy: str, started: int, waiting: int
) -> None:
    """SRV-042"""
    async with Ticking(tmp_path, impulse(concurrencyPolicy=policy), held=True) as scene:
        await scene.until("2027-01-15T10:15:30")
        runs = await scene.runs()
        assert len(runs) == started and len(await scene.firings()) == waiting
        is_replaced = policy in ("cancelPrevious", "replace")
        cancelled = [(await scene.engine.execution(row.id)).state.cancel_requested for row in runs]
        assert cancelled == [True, True, False][:started] if is_replaced else not any(cancelled)


@pytest.mark.every_store
async def test_queued_times_start_in_order_one_after_the_other(tmp_path: Path) -> None:
    """SRV-042"""
    async with Ticking(tmp_path, impulse(concurrencyPolicy="queue"), held=True) as scene:
        await scene.until("2027-01-15T10:15:30")
        for count in (2, 3):
            await scene.look()
            assert len(await scene.runs()) == count - 1
            await scene.release(Succeeded(b"1"))
            await scene.look()
            assert len(await scene.runs()) == count
        assert await scene.times() == ["10:05", "10:10", "10:15"]
        assert await scene.firings() == []


@pytest.mark.parametrize(
    ("window", "expected"),
    [("30m", ["10:05", "10:10", "10:15", "10:20"]), ("12m", ["10:15", "10:20"]), (None, [])],
)
async def test_after_downtime_every_time_within_the_catch_up_window_is_started_once(
    tmp_path: Path, window: str | None, expected: list[str]
) -> None:
    """SRV-042"""
    members = {} if window is None else {"catchUpWindow": window}
    async with Ticking(tmp_path, impulse(**members)) as scene:
        await scene.keeper.close()
        scene.world.clock.move_to(at("2027-01-15T10:24:00"))
        for _ in range(2):
            await scene.keep()
            assert await scene.times() == expected
            await scene.keeper.close()
        await scene.keep()


@pytest.mark.parametrize("policy", ["allow", "queue"])
async def test_many_times_that_were_missed_are_claimed_some_at_a_time(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have their turn in between. A month of minutes took two seconds of the event loop."""
    monkeypatch.setattr(cron_scheduler, "CLAIMED_AT_ONCE", 3)
    async with Ticking(tmp_path, impulse(catchUpWindow="2h", concurrencyPolicy=policy)) as scene:
        await scene.keeper.close()
        scene.world.clock.move_to(at("2027-01-15T11:02:00"))
        written, write = list[int](), scene.engine.store.write_catalog

        async def observed(changes: Any) -> Any:
            written.append(sum(change.key.kind == FIRING for change in changes))
            return await write(changes)

        monkeypatch.setattr(scene.engine.store, "write_catalog", observed)
        await scene.keep()
        assert await scene.times() == [f"{10 + minute // 60}:{minute % 60:02}" for minute in range(5, 65, 5)]
        assert await scene.firings() == [] and max(written) == 3


async def test_a_paused_schedule_starts_nothing_and_makes_up_for_nothing(tmp_path: Path) -> None:
    """SRV-042"""
    async with Ticking(tmp_path, impulse(catchUpWindow="1h")) as scene:
        administration = schedules(scene.engine)
        await administration.pause("tick", "default", by="Ada", reason="moving")
        with pytest.raises(Conflict, match="paused already"):
            await administration.pause("tick/five", "default")
        await scene.until("2027-01-15T10:12:00")
        await scene.look()
        assert await scene.times() == []
        view = await administration.unpause("tick", "default")
        assert not view.state.is_paused
        with pytest.raises(Conflict, match="not paused"):
            await administration.unpause("tick", "default")
        await scene.look()
        await scene.until("2027-01-15T10:16:00")
        assert await scene.times() == ["10:15"]


@pytest.mark.every_store
async def test_backfill_starts_every_time_of_a_range_once(tmp_path: Path) -> None:
    """SRV-042: also those of a schedule that skips, one after the other, and none that has a run."""
    async with Ticking(tmp_path, impulse(concurrencyPolicy="skip")) as scene:
        administration = schedules(scene.engine)
        await scene.until("2027-01-15T10:06:00")
        begin, end = at("2027-01-15T09:00:00"), at("2027-01-15T10:05:00")
        dry = await administration.backfill("tick", "default", begin, end, is_dry_run=True)
        assert len(dry.times) == 14 and await scene.firings() == []
        assert await administration.backfill("tick", "default", begin, end) == dry
        again = await administration.backfill("tick", "default", begin, end)
        assert (len(again.times), len(again.waiting)) == (0, 14)
        for _ in range(16):
            await scene.look()
        assert await scene.firings() == [] and len(await scene.times()) == 14
        assert len(set(await scene.times())) == 14
        view = await administration.find("tick", "default")
        assert view.state.last_scheduled == "2027-01-15T10:05:00Z"


async def test_a_backfill_runs_also_while_the_schedule_is_paused(tmp_path: Path) -> None:
    async with Ticking(tmp_path, impulse()) as scene:
        administration = schedules(scene.engine)
        await administration.pause("tick", "default")
        await administration.backfill("tick", "default", at("2027-01-15T09:00:00"), at("2027-01-15T09:10:00"))
        await scene.look()
        assert await scene.times() == ["09:00", "09:05", "09:10"]


@pytest.mark.parametrize(
    ("begin", "end", "message"),
    [
        ("2027-01-15T10:00:00", "2027-01-15T09:00:00", "before it begins"),
        ("2027-01-15T10:00:00", "2027-01-15T11:00:00", "in the future"),
        ("2026-01-15T10:00:00", "2027-01-15T09:00:00", "more than 10,000"),
    ],
)
async def test_a_range_that_cannot_be_backfilled_changes_nothing(
    tmp_path: Path, begin: str, end: str, message: str
) -> None:
    async with Ticking(tmp_path, impulse()) as scene:
        with pytest.raises(PerdureError, match=message):
            await schedules(scene.engine).backfill("tick", "default", at(begin), at(end))
        assert await scene.firings() == []


async def test_schedules_are_found_by_unique_names(tmp_path: Path) -> None:
    async with Ticking(tmp_path, impulse(EVERY, {"name": "ten", "cron": "*/10 * * * *"})) as scene:
        administration = schedules(scene.engine)
        assert (await administration.find("ten", "default")).name == "tick/ten"
        with pytest.raises(ResourceNotFound, match="several schedules: tick/five, tick/ten"):
            await administration.find("tick", "default")
        with pytest.raises(ResourceNotFound, match="did you mean 'tick/ten'"):
            await administration.find("tick/tan", "default")
        assert [view.name for view in await administration.list()] == ["tick/five", "tick/ten"]


# Alerts.

HOOK = {"documentRef": {"language": "flow", "name": "alert"}, "inputs": {"channel": "ops"}}


async def alerted(scene: Ticking) -> list[dict[str, Any]]:
    alerts = FailureAlerts(scene.engine)
    await alerts.poll()
    await scene.calm()
    return [await scene.engine.handle(row.id).result() for row in await scene.runs("alert")]


@pytest.mark.every_store
async def test_a_failed_run_starts_its_alert_once_with_what_happened(tmp_path: Path) -> None:
    async with Ticking(tmp_path, impulse(on_failure=HOOK), held=True) as scene:
        await scene.until("2027-01-15T10:06:00")
        assert await alerted(scene) == []
        await scene.release(Failed("Provider.Call.Shop.Errors.Closed", "the shop is closed"))
        (message,) = await alerted(scene)
        (run,) = await scene.runs()
        failed = message["failedRun"]
        assert message["channel"] == "ops"
        assert (failed["id"], failed["status"], failed["language"], failed["name"]) == (
            run.id,
            "failed",
            "flow",
            "ping",
        )
        assert failed["error"]["code"].endswith("Closed") and failed["error"]["message"] == "the shop is closed"
        assert (failed["impulse"], failed["schedule"]) == ("tick", "five")
        assert failed["scheduledAt"] == "2027-01-15T10:05:00Z"
        assert len(await alerted(scene)) == 1 and await scene.engine.store.list_resources(WATCH) == []
        (alert,) = await scene.runs("alert")
        assert alert.labels["perdure.dev/alert-for"] == run.id


async def test_a_run_that_ends_well_or_is_cancelled_alerts_nobody(tmp_path: Path) -> None:
    async with Ticking(tmp_path, impulse(on_failure=HOOK), held=True) as scene:
        await scene.until("2027-01-15T10:06:00")
        await scene.release(Succeeded(b"1"))
        await scene.until("2027-01-15T10:11:00")
        await scene.engine.cancel((await scene.runs())[1].id)
        await scene.world.advance(60)
        assert [row.status for row in await scene.runs()][:2] == ["succeeded", "cancelled"]
        assert await alerted(scene) == []


async def test_an_alert_that_fails_starts_no_alert(tmp_path: Path) -> None:
    hook = {"documentRef": {"language": "flow", "name": "ping"}}
    async with Ticking(tmp_path, impulse(on_failure=hook), held=True) as scene:
        await scene.until("2027-01-15T10:06:00")
        await scene.release(Failed("Provider.Call.Shop.Errors.Closed", "the shop is closed"))
        await alerted(scene)
        assert len(await scene.runs()) == 2
        await scene.release(Failed("Provider.Call.Shop.Errors.Closed", "still closed"))
        await alerted(scene)
        assert len(await scene.runs()) == 2


async def test_a_schedule_may_have_an_alert_of_its_own(tmp_path: Path) -> None:
    own = {"documentRef": {"language": "playbook", "name": "etl/nightly"}}
    async with Ticking(tmp_path, impulse({**EVERY, "onFailure": own}, on_failure=HOOK), held=True) as scene:
        await scene.until("2027-01-15T10:06:00")
        await scene.release(Failed("Provider.Call.Shop.Errors.Closed", "the shop is closed"))
        assert await alerted(scene) == []
        assert len(await scene.runs("nightly")) == 1


async def test_a_time_whose_run_cannot_be_started_alerts_once(tmp_path: Path) -> None:
    missing = impulse(document={"language": "flow", "name": "later"}, on_failure=HOOK)
    async with Ticking(tmp_path, missing) as scene:
        await scene.until("2027-01-15T10:06:00")
        await scene.look()
        (alert,) = await alerted(scene)
        failed = alert["failedRun"]
        assert (failed["id"], failed["name"], failed["status"]) == (None, "later", "rejected")
        assert "flow.mwl.dev/later" in failed["error"]["message"] and failed["scheduledAt"] == "2027-01-15T10:05:00Z"


@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_at_any_write_alerts_once(tmp_path: Path, after: bool) -> None:
    write = 0
    while True:
        write += 1
        folder = tmp_path / str(write)
        folder.mkdir()
        stores: list[DyingStore] = []

        def dying(store: Any, stores: list[DyingStore] = stores) -> Any:
            stores.append(DyingStore(store, 0, after=after))
            return stores[-1]

        async with Ticking(folder, impulse(on_failure=HOOK), held=True, wrap=dying) as scene:
            await scene.until("2027-01-15T10:06:00")
            await scene.release(Failed("Provider.Call.Shop.Errors.Closed", "the shop is closed"))
            stores[0].die_at(stores[0].writes + write)
            looking = asyncio.ensure_future(FailureAlerts(scene.engine).poll())
            await _settle_or_die(scene, stores[0])
            if not stores[0].crashed.is_set():
                await looking
                assert len(await scene.runs("alert")) == 1
                break
            looking.cancel()
            await scene.keeper.close()
            await scene.world.crash()
            await scene.world.boot()
            await scene.keep()
            assert len(await alerted(scene)) == 1, write
            assert await scene.engine.store.list_resources(WATCH) == []
    assert write > 3


# Events.


async def test_an_event_starts_a_flow_under_the_delivery_policy_of_its_impulse(tmp_path: Path) -> None:
    """SRV-041 STY-013 STY-155: mapping, key and counters are the same for every language."""
    hook = impulse()
    hook["spec"] = {
        "templateRef": {"name": "webhook"},
        "documentRef": {"language": "flow", "name": "ping"},
        "mapping": {"pr": "{{ context.number }}"},
        "deliveryPolicy": {"dedupe": {"mode": "key", "keyTemplate": "{{ inputs.pr }}@{{ story.name }}"}},
        "throttle": {"maxInFlight": 2, "ratePerSecond": 5},
        "onFailure": HOOK,
    }
    async with Ticking(tmp_path) as scene:
        texts = [
            AppliedDocument(f"{n}.json", jsontext.encode(resource).decode())
            for n, resource in enumerate([impulse_template(), hook])
        ]
        await scene.engine.apply(texts)
        first = await scene.engine.trigger(impulse="tick", inputs={"number": 7})
        again = await scene.engine.trigger(impulse="tick", inputs={"number": 7, "more": 1})
        other = await scene.engine.trigger(impulse="tick", inputs={"number": 8})
        await scene.calm()
        assert first["status"]["decision"] == "Created" and first["spec"]["documentRef"]["name"] == "ping"
        assert again["status"]["runRef"] == first["status"]["runRef"] != other["status"]["runRef"]
        assert len(await scene.runs()) == 2
        assert await scene.engine.handle(first["status"]["runRef"]["id"]).result() == {"pr": 7}
        stored = await scene.engine.catalog.get(scene.engine.catalog.kind("impulse"), "tick")
        assert (stored["status"]["storiesLaunched"], stored["status"]["triggersReceived"]) == (2, 2)


async def test_an_event_may_mention_every_language(tmp_path: Path) -> None:
    """What a request contains does not decide which language it is written in."""
    texts = {"text": 'apiVersion: noetl.io/v2, mwl.dev/v0.1, bubustack.io/v1, "entrypoint" "steps" Playbook workflow'}
    async with Ticking(tmp_path) as scene:
        decided = await scene.engine.trigger(document={"language": "flow", "name": "ping"}, inputs=texts)
        await scene.calm()
        assert await scene.engine.handle(decided["status"]["runRef"]["id"]).result() == texts


async def test_a_request_for_a_document_is_decided_once(tmp_path: Path) -> None:
    """SRV-041 STY-153: the same token and input is the same run, other input is a conflict."""
    async with Ticking(tmp_path) as scene:
        ask = scene.engine.trigger
        ping = {"language": "flow", "name": "ping"}
        first = await ask(document=ping, inputs={"n": 1}, token="T")
        assert await ask(document=ping, inputs={"n": 1}, token="T") == first
        with pytest.raises(Conflict):
            await ask(document=ping, inputs={"n": 2}, token="T")
        with pytest.raises(Rejected, match=r"there is no flow\.mwl\.dev/ping in namespace 'other'"):
            await ask(document=ping, inputs={"n": 2}, token="T", namespace="other")
        await scene.engine.apply([document for document in documents() if document.file.startswith("ping")], "other")
        elsewhere = await ask(document=ping, inputs={"n": 2}, token="T", namespace="other")
        assert elsewhere["status"]["decision"] == "Created"
        assert elsewhere["status"]["runRef"]["id"] != first["status"]["runRef"]["id"]
        with pytest.raises(Rejected, match=r"there is no flow\.mwl\.dev/none"):
            await ask(document={"language": "flow", "name": "none"})
        with pytest.raises(PerdureError, match="a trigger names a Story, a document, or the Impulse"):
            await ask()


# Crashes and several servers.


@pytest.mark.every_store
async def test_two_servers_start_each_time_once(tmp_path: Path) -> None:
    """SRV-042"""
    async with Ticking(tmp_path, impulse(concurrencyPolicy="queue")) as scene:
        other = CronScheduler(scene.engine, ImpulseSchedules(scene.engine))
        await other.refresh()
        await scene.until("2027-01-15T10:31:00")
        for _ in range(3):
            await asyncio.gather(scene.look(), other.refresh())
        assert await scene.times() == ["10:05", "10:10", "10:15", "10:20", "10:25", "10:30"]
        await other.close()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("policy", ["allow", "queue"])
async def test_a_crash_at_any_write_loses_no_time_and_starts_none_twice(
    tmp_path: Path, after: bool, policy: str
) -> None:
    """SRV-042: between the claim, the decision, the request, the run and the record of each."""
    write, crashes = 0, 0
    while True:
        write += 1
        folder = tmp_path / str(write)
        folder.mkdir()
        stores: list[DyingStore] = []

        def dying(store: Any, stores: list[DyingStore] = stores) -> Any:
            stores.append(DyingStore(store, 0, after=after))
            return stores[-1]

        entry = impulse(catchUpWindow="1h", concurrencyPolicy=policy, on_failure=HOOK)
        async with Ticking(folder, entry, wrap=dying) as scene:
            stores[0].die_at(stores[0].writes + write)
            target = at("2027-01-15T10:11:00")
            while (
                (due := scene.world.clock.next_alarm()) is not None and due <= target and not stores[0].crashed.is_set()
            ):
                scene.world.clock.move_to(due)
                await _settle_or_die(scene, stores[0])
            if not stores[0].crashed.is_set():
                assert await scene.times() == ["10:05", "10:10"]
                break
            crashes += 1
            await scene.keeper.close()
            await scene.world.crash()
            scene.world.clock.move_to(target)
            await scene.world.boot()
            await scene.keep()
            await scene.look()
            await scene.look()
            assert await scene.times() == ["10:05", "10:10"], write
            assert await scene.firings() == []
    assert crashes >= 6


async def _settle_or_die(scene: Ticking, store: DyingStore) -> None:
    quiet = 0
    while quiet < 8 and not store.crashed.is_set():
        await asyncio.sleep(0.003)
        is_busy = scene.keeper.is_busy or not scene.engine.runtime.is_quiet
        quiet = 0 if is_busy else quiet + 1
