"""A server that leaves runs to others: without an engine, or beside the owner of a SQLite file."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import as_url
from tests.server.serving import RETURNS, WAITS, Api, Server

STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: hello}
spec:
  steps: [{name: stop, type: stop, with: {phase: Succeeded}}]
"""
STORY_RUN = {
    "apiVersion": "runs.bubustack.io/v1alpha1",
    "kind": "StoryRun",
    "metadata": {"name": "once"},
    "spec": {"storyRef": {"name": "hello"}},
}
FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "go",
    "steps": {
        "go": {
            "action": "Call",
            "call": {"provider": "mwl:provider.call/perdure/train/v1", "with": {"size": "{{ call.input }}"}},
            "next": "done",
        },
        "done": {"action": "Return"},
    },
}


def until(true: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 120
    while not (outcome := true()):
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.1)
    return outcome


def _failing(api: Api) -> str:
    """A run of a Flow that has failed: it can be redriven and forked where it failed."""
    call = {"provider": "mwl:provider.call/perdure/http/v1", "with": {"url": "http://127.0.0.1:9/"}}
    flow = {
        "$schema": FLOW["$schema"],
        "entrypoint": "go",
        "steps": {"go": {"action": "Call", "call": call, "next": "done"}, "done": {"action": "Return"}},
    }
    run = api.start(flow)
    assert api.result(run)["status"] == "failed"
    return run


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_server_without_an_engine_leaves_runs_to_one_that_has_one(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    """SRV-002: a start, a fork and a redrive are taken up by another server, and refused while there is none."""
    words: tuple[str, ...] = ("--route", "train=gpu", "--data", str(tmp_path / "data"))
    if store == "postgres":
        words += ("--db", as_url(request.getfixturevalue("postgres_url")), "--lease", "3s")
    looks = Server.start(tmp_path, "--no-engine", *words)
    api = Api(looks.url, (tmp_path / "data" / "admin-token").read_text().strip())
    try:
        ready = looks.nobody("GET", "/readyz")
        assert (ready.status, ready.json["well"], ready.json["lease"]) == (200, True, False)
        assert api("POST", "/api/v1/runs", {"document": RETURNS}).problem == (503, "ENGINE-NONE")
        assert api("POST", "/api/v1/resources:apply", {"documents": [STORY]}).status == 200
        assert api("POST", "/api/v1/resources:apply", {"documents": [STORY_RUN]}).problem == (503, "ENGINE-NONE")
        assert api("GET", "/api/v1/runs").json["items"] == []

        drives = Server.start(tmp_path, *words)
        until(lambda: any(server["serves"] for server in api("GET", "/api/v1/servers").json["items"]))
        started = api("POST", "/api/v1/runs", {"document": RETURNS, "token": "once"})
        assert started.status == 202, started.text
        run = started.json["id"]
        assert api("GET", f"/api/v1/runs/{run}").status == 200
        assert api.result(run)["value"] == 17
        assert api("POST", "/api/v1/runs", {"document": RETURNS, "token": "once"}).json["id"] == run
        (operation,) = api("GET", f"/api/v1/runs/{run}/operations").json["items"]
        assert (operation["verb"], operation["who"]["name"]) == ("start_run", "admin")
        waiting = api.start(WAITS, input="x" * 100_000)
        assert api("POST", f"/api/v1/runs/{waiting}/signals/go", {"value": 1}).status == 200
        assert api.result(waiting)["value"] == 1
        fork = api("POST", f"/api/v1/runs/{waiting}/fork", {"at": 1})
        assert fork.status == 201, fork.text
        assert api("POST", f"/api/v1/runs/{fork.json['id']}/signals/go", {"value": 2}).status == 200
        assert api.result(fork.json["id"])["value"] == 2
        failed = _failing(api)
        assert api("POST", f"/api/v1/runs/{failed}/redrive", {}).status == 200
        assert api.result(failed)["status"] == "failed"
        again = api("POST", f"/api/v1/runs/{failed}/fork", {"at_failure": True})
        assert again.status == 201, again.text
        assert api.result(again.json["id"])["status"] == "failed"
        assert api("POST", "/api/v1/resources:apply", {"documents": [STORY_RUN]}).status == 200
        until(lambda: [run for run in api("GET", "/api/v1/runs?language=story").json["items"] if run["ended_at"]])

        pooled = api.start(FLOW, input=3)
        asked = {"worker": "w", "pools": ["gpu"], "providers": ["train"], "max": 1, "wait": 60}
        (task,) = api("POST", "/api/v1/worker/lease", asked).json["tasks"]
        assert api("POST", f"/api/v1/worker/tasks/{task['lease']}/complete", {"output": {"ok": 1}}).status == 200
        assert api.result(pooled)["value"] == {"ok": 1}

        drives.process.kill()
        refused = until(
            lambda: [answer for answer in [api("POST", f"/api/v1/runs/{failed}/redrive", {})] if answer.status == 503]
        )
        assert refused[0].problem == (503, "ENGINE-NONE")
        before = len(api("GET", "/api/v1/runs").json["items"])
        assert api("POST", "/api/v1/runs", {"document": RETURNS}).problem == (503, "ENGINE-NONE")
        assert api("POST", f"/api/v1/runs/{waiting}/fork", {"at": 1}).problem == (503, "ENGINE-NONE")
        assert len(api("GET", "/api/v1/runs").json["items"]) == before
        looks.stop()
    finally:
        looks.commands.end_all()


def test_a_second_server_on_a_file_answers_and_drives_when_the_first_has_ended(tmp_path: Path) -> None:
    """SRV-002: also after a kill; what is started through it meanwhile, the owner of the file goes on with."""
    first = Server.start(tmp_path)
    second = Server.start(tmp_path)
    try:
        api = Api(second.url, first.admin.token)
        assert second.nobody("GET", "/readyz").json["lease"] is False
        assert len(api("GET", "/api/v1/servers").json["items"]) == 1
        assert api.result(api.start(RETURNS))["value"] == 17
        waiting = api.start(WAITS)
        assert first.admin("GET", f"/api/v1/runs/{waiting}").status == 200
        first.process.kill()
        until(lambda: second.nobody("GET", "/readyz").json["lease"])
        assert api("POST", f"/api/v1/runs/{waiting}/signals/go", {"value": 2}).status == 200
        assert api.result(waiting)["value"] == 2
        assert api.result(api.start(RETURNS))["value"] == 17
        second.stop()
    finally:
        first.commands.end_all()
        second.commands.end_all()
