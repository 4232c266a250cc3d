"""Changes of runs, live and by page (SRV-014, SRV-071)."""

import asyncio
import json
import re
import signal
import threading
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.stores.protocol import RunFilter
from perdure.views.runs.run_changes import MOST_UNREAD, ChangeFeed
from tests.postgres import as_url
from tests.server.serving import RETURNS, WAITS, Api, Server, Stream

CHILDREN = {"drill": 1, "name": "many", "steps": [{"return": 1}]}


def changes(stream: Stream, until: str) -> list[dict[str, Any]]:
    """Changes as they come, up to the end of this run."""
    changes_seen = []
    for event in stream.events():
        if event.get("event") == "status":
            change = json.loads(event["data"])
            assert str(change["position"]) == event["id"]
            changes_seen.append(change)
            if change["id"] == until and change["status"] == "succeeded":
                return changes_seen
    raise AssertionError(f"the stream ended before run {until} did; {changes_seen}")


def follow(api: Api, path: str, **headers: str) -> tuple[Stream, int]:
    """A stream that has begun, and the position from which it tells."""
    stream = api.follow(path, **headers)
    assert stream.response.status == 200, stream.response.read()
    assert stream.response.getheader("Content-Type") == "text/event-stream"
    for line in stream.response:
        if line.startswith(b"id: "):
            return stream, int(line[4:])
    raise AssertionError("the stream has no position")


def test_a_follower_is_told_each_change_of_status_once_and_in_order(server: Server) -> None:
    """SRV-071: of the runs that match its filter; the id continues it, on the stream and by page."""
    admin = server.admin
    everything, begun = follow(admin, "/api/v1/events")
    failed, _ = follow(admin, "/api/v1/events?status=waiting&label=team%3Dred")
    waits = admin.start(WAITS, labels={"team": "red"})
    other = admin.start(WAITS)
    for run in (other, waits):
        assert admin("POST", f"/api/v1/runs/{run}/signals/go", {"value": 1}).status == 200
    received = changes(everything, waits)
    positions = [change["position"] for change in received]
    assert positions == sorted(set(positions)) and positions[0] > begun
    mine = [change for change in received if change["id"] == waits]
    assert [change["status"] for change in mine][-2:] == ["waiting", "succeeded"]
    assert mine[-1]["labels"] == {"team": "red"} and mine[-1]["name"] == "waits" and mine[-1]["ended_at"]
    assert (
        mine[-1]["events"] == admin("GET", f"/api/v1/runs/{waits}/events?raw=true&limit=1000").json["items"][-1]["seq"]
    )
    event = json.loads(next(failed.events())["data"])
    assert (event["id"], event["status"]) == (waits, "waiting")

    page = admin("GET", f"/api/v1/changes?after={begun}&limit=1000").json
    assert page["items"] == received and page["next"] == positions[-1]
    middle = received[1]["position"]
    again, _ = follow(admin, "/api/v1/events?after=1", Last_Event_ID=str(middle))
    assert changes(again, waits) == received[2:]
    assert admin("GET", "/api/v1/changes").json == {"items": [], "next": positions[-1]}
    for stream in (everything, failed, again):
        stream.close()


def test_what_is_gone_is_said(server: Server) -> None:
    """SRV-014, SRV-071: `reset` on a stream, 410 on a page; what is no position of this feed is gone too."""
    admin = server.admin
    for position in ("1", str(2**62)):
        assert admin("GET", f"/api/v1/changes?after={position}").problem == (410, "POSITION-EXPIRED")
        stream = admin.follow("/api/v1/events", Last_Event_ID=position)
        reset = next(stream.events())
        assert reset["event"] == "reset" and json.loads(reset["data"]) == {"position": int(reset["id"])}
        run = admin.start(RETURNS)
        assert changes(stream, run)[-1]["id"] == run
        stream.close()
    assert admin("GET", "/api/v1/events").json["kind"] == "EventList"  # of the Kubernetes API (SRV-070)
    assert admin("GET", "/api/v1/changes?status=never").problem == (400, "USAGE")
    assert admin("GET", "/api/v1/changes?cursor=x").problem == (400, "UNKNOWN-MEMBER")
    assert admin("GET", "/api/v1/events", Accept="text/event-stream", Last_Event_ID="x").problem == (400, "USAGE")
    assert server.nobody("GET", "/api/v1/events", Accept="text/event-stream").status == 401


def test_a_removal_tells_the_last_of_the_run(server: Server) -> None:
    admin = server.admin
    run = admin.start(RETURNS, labels={"team": "gone"})
    admin.result(run)
    position = admin("GET", "/api/v1/changes").json["next"]
    assert admin("DELETE", f"/api/v1/runs/{run}").status == 200
    (removed,) = admin("GET", f"/api/v1/changes?after={position}&label=team%3Dgone").json["items"]
    assert (removed["id"], removed["change"], removed["status"]) == (run, "removed", "succeeded")


def test_a_stream_of_changes_ends_with_its_token(server: Server) -> None:
    """SRV-014: the right to see is asked again every second."""
    made = server.admin("POST", "/api/v1/tokens", {"name": "short", "role": "viewer"}).json
    stream, _ = follow(Api(server.url, made["token"]), "/api/v1/events")
    assert server.admin("DELETE", "/api/v1/tokens/short").status == 200
    assert [event for event in stream.events() if "data" in event] == []


async def _read(stream: AsyncGenerator[bytes, None], ends: int) -> bytes:
    text = b""
    while text.count(b'"succeeded"') < ends:
        text += await anext(stream)
    return text


async def test_who_does_not_read_is_cut_off_and_nobody_waits_for_it(tmp_path: Path) -> None:
    """SRV-014: a mebibyte unread; the others are told everything, and who was cut off continues by its position."""
    flow = {"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "r", "steps": {"r": {"action": "Return"}}}
    labels = {f"label-{n}": "x" * 900 for n in range(60)}
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine, asyncio.timeout(120):
        feed = ChangeFeed(engine, lambda who: True)
        await feed.open()
        reading = asyncio.ensure_future(feed.run())
        slow, quick = (feed.follow(RunFilter(), None, name) for name in ("slow", "quick"))
        first = [await anext(stream) for stream in (slow, quick)]
        count = 30
        unread = asyncio.ensure_future(anext(slow))  # the first message, and then no more
        quickly = asyncio.ensure_future(_read(quick, count))
        while feed.followers < 2:
            await asyncio.sleep(0.01)
        for _ in range(count):
            await (await engine.start(flow, labels=labels)).result()
        body = await quickly
        received = await unread
        with pytest.raises(StopAsyncIteration):
            while True:
                received += await anext(slow)
        assert len(received) < MOST_UNREAD < len(body) and feed.followers == 1
        last = int(re.findall(rb"id: (\d+)", first[0] + received)[-1])
        again = feed.follow(RunFilter(), last, "slow")
        received += await _read(again, count - received.count(b'"succeeded"'))
        assert re.findall(rb"id: (\d+)\nevent", received) == re.findall(rb"id: (\d+)\nevent", body)
        for stream in (quick, again):
            await stream.aclose()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def _starts(api: Api, count: int, runs: list[str]) -> None:
    runs.extend(api.start(CHILDREN, token=f"{threading.get_ident()}-{n}") for n in range(count))


def test_servers_tell_the_same_feed_while_others_write_and_die(tmp_path: Path, postgres_url: str) -> None:
    """SRV-071: several writers, a killed server; every change once, in one order, on every server."""
    words = ("--db", as_url(postgres_url), "--lease", "3s", "--data", str(tmp_path / "state"))
    servers = [Server.start(tmp_path, *words) for _ in range(3)]
    try:
        token = (tmp_path / "state" / "admin-token").read_text().strip()
        apis = [Api(server.url, token) for server in servers]
        streams = [follow(api, "/api/v1/events?name=many")[0] for api in (apis[0], apis[1])]
        begun = apis[1]("GET", "/api/v1/changes").json["next"]
        runs: list[str] = []
        writers = [threading.Thread(target=_starts, args=(api, 30, runs)) for api in (apis[0], apis[1])]
        for writer in writers:
            writer.start()
        doomed: list[str] = []
        _starts(apis[2], 10, doomed)
        servers[2].process.send(signal.SIGKILL)
        for writer in writers:
            writer.join(120)
        last = apis[0].start(CHILDREN)
        for run in (*runs, *doomed, last):
            assert apis[0].result(run)["status"] == "succeeded"  # those of the dead one too
        final = apis[0].start({**CHILDREN, "name": "many"})
        first, second = (list(_told(changes(stream, final))) for stream in streams)
        assert first == second
        page = apis[1]("GET", f"/api/v1/changes?after={begun}&limit=1000&name=many").json["items"]
        assert list(_told(page))[: len(first)] == first
        ends = [run for _, run, status in first if status == "succeeded"]
        assert sorted(ends) == sorted([*runs, *doomed, last, final]), "each end once"
        for stream in streams:
            stream.close()
    finally:
        for server in servers:
            server.commands.end_all()


def _told(changes: list[dict[str, Any]]) -> Iterator[tuple[int, str, str]]:
    return ((change["position"], change["id"], change["status"]) for change in changes)
