"""One suite over the embedded engine and over the client of a server (SRV-051)."""

import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.runs.effects import EffectNotFound
from perdure.kernel.errors import Conflict, InvalidDocument, RunNotFound
from perdure.server.api_client.remote_engine import RemoteEngine
from perdure.testing.drill import Drill
from perdure.views.api_errors import NotAuthenticated
from perdure.wiring import languages
from tests.server.serving import RETURNS, WAITS, Server

Opened = Callable[[], AbstractAsyncContextManager[Any]]


@pytest.fixture(params=["embedded", "server"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> "Opened":
    """Opens an engine: one of this process, or one behind a server."""
    if request.param == "embedded":
        return lambda: perdure.Engine(f"sqlite:///{tmp_path}/runs.db", spoken={**languages(), "drill": Drill()})
    server: Server = request.getfixturevalue("server")
    return lambda: perdure.connect(server.url, server.admin.token)


async def test_a_run_is_started_and_gives_its_value(opened: Opened) -> None:
    """SRV-051: the same tests over the embedded engine and over the client of a server."""
    async with opened() as engine:
        handle = await engine.start(RETURNS, labels={"a": "b"})
        assert await handle.result() == 17
        assert (await handle.status()).value == "succeeded"
        assert (await handle.show())["status"] == "succeeded"


async def test_a_token_starts_one_run_and_other_content_is_a_conflict(opened: Opened) -> None:
    async with opened() as engine:
        first = await engine.start(RETURNS, 1, token="once")
        again = await engine.start(RETURNS, 1, token="once")
        assert first.id == again.id
        with pytest.raises(Conflict, match="used before"):
            await engine.start(RETURNS, 2, token="once")


async def test_a_run_is_signalled_followed_and_told(opened: Opened) -> None:
    async with opened() as engine:
        handle = await engine.start(WAITS)
        names = []
        async for event in handle.events(raw=True):
            names.append(event["event"])
            if event["event"] == "RunStarted":
                await handle.signal("go", {"n": 1})
        assert await handle.result() == {"n": 1}
        assert names == [event["event"] for event in await handle.history(raw=True)]
        assert names[-1] == "RunEnded"


async def test_a_cancelled_run_fails_its_result(opened: Opened) -> None:
    async with opened() as engine:
        handle = await engine.start(WAITS)
        await handle.pause("lunch")
        await handle.unpause()
        await handle.cancel("enough")
        with pytest.raises(perdure.RunFailed, match="enough"):
            await handle.result()


async def test_what_is_wrong_raises_the_same_errors(opened: Opened) -> None:
    async with opened() as engine:
        with pytest.raises(RunNotFound):
            await engine.handle("nobody").show()
        with pytest.raises(InvalidDocument):
            await engine.start({"drill": 1, "steps": "none"})


PLAYBOOK = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "two", "path": "two"},
    "workflow": [
        {"step": "start", "tool": {"kind": "noop"}, "next": {"arcs": [{"step": "other"}]}},
        {"step": "other", "tool": {"kind": "noop"}},
    ],
}
GATED = {
    "apiVersion": "bubustack.io/v1alpha1",
    "kind": "Story",
    "metadata": {"name": "gated"},
    "spec": {"steps": [{"name": "ok", "type": "gate"}]},
}


async def test_a_start_takes_options(opened: Opened) -> None:
    async with opened() as engine:
        handle = await engine.start(PLAYBOOK, options={"entry_step": "other"})
        await handle.result()
        steps = {event.get("step") for event in await handle.history()} - {None, ""}
        assert steps == {"other"}


async def test_gates_effects_and_redrives_are_steered_alike(opened: Opened) -> None:
    async with opened() as engine:
        handle = await engine.start(GATED)
        assert (await handle.approve("ok", "fine")).is_decided
        await handle.result()
        assert await handle.effects() == []
        with pytest.raises(EffectNotFound):
            await handle.settle_effect("nothing", done=False)
        failed = await engine.start({"drill": 1, "name": "fails", "steps": [{"signal": "go"}]})
        await failed.cancel("enough")
        with pytest.raises(perdure.RunFailed):
            await failed.result(timeout=60)
        assert (await failed.redrive()).is_decided
        assert (await failed.status()).value == "waiting"
        await failed.cancel()


async def test_resources_are_applied_listed_and_deleted(server: Server) -> None:
    async with perdure.connect(server.url, server.admin.token) as engine:
        applied = await engine.apply([GATED], "shop")
        assert [change["result"] for change in applied["changes"]] == ["created"]
        (resource,) = await engine.resources("story", "shop")
        assert resource["metadata"]["name"] == "gated"
        assert (await engine.resource("story", "gated", "shop"))["spec"] == GATED["spec"]
        started = await engine.start_named("gated", namespace="shop", labels={"a": "b"})
        assert (await started.status()).value in ("running", "waiting")
        await engine.delete_resource("story", "gated", "shop")
        assert await engine.resources("story", "shop") == []


async def test_who_has_no_token_hears_so(server: Server) -> None:
    async with perdure.connect(server.url) as stranger:
        with pytest.raises(NotAuthenticated):
            await stranger.start(RETURNS)


def test_programs_without_an_event_loop_wait_for_each_answer(server: Server) -> None:
    with perdure.connect_sync(server.url, server.admin.token) as engine:
        run = engine.start(WAITS)
        engine.signal(run, "go", 3)
        assert engine.result(run) == 3
        assert [event["seq"] for event in engine.events(run)] == [event["seq"] for event in engine.history(run)]


async def test_a_lost_connection_is_told_at_once_and_the_history_goes_on() -> None:
    """No other request comes first: each would be tried again for half a minute, in silence."""
    asked: list[str] = []
    lines: list[tuple[str, int]] = []

    class Breaks(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers.get("Last-Event-ID", "none"))
            if len(asked) == 2:
                return  # closes the connection, as a server that dies
            self.send_response(204 if len(asked) == 4 else 200)
            self.end_headers()
            if len(asked) < 4:
                self.wfile.write(b'data: {"seq": %d}\n\n' % len(asked))

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Breaks) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        engine = RemoteEngine(url, say=lambda text: lines.append((text, len(asked))))
        try:
            async with engine:
                events = [event["seq"] async for event in engine.follow("run")]
        finally:
            server.shutdown()
            thread.join()

    assert events == [1, 3]
    assert asked == ["none", "1", "1", "3"]
    (lost, after_two), (back, _) = lines
    assert "is lost" in lost and after_two == 2
    assert "answers again" in back
