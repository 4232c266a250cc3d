"""What a token may not see answers as what does not exist, on every route (SRV-009, SRV-022, SRV-080)."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.server.route_table import PATHS_OF_RUNS
from perdure.server.routes import ROUTES
from tests.server.serving import RETURNS, WAITS, Api, Reply, Server

PLANTED = "cobalt"  # in every name, label and value of the other namespace
STORY = {
    "apiVersion": "bubustack.io/v1alpha1",
    "kind": "Story",
    "metadata": {"name": f"{PLANTED}-story"},
    "spec": {"steps": [{"name": "ok", "type": "gate"}]},
}


PLAYBOOK = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": f"{PLANTED}-playbook", "path": f"{PLANTED}/playbook"},
    "workflow": [{"step": "start", "tool": {"kind": "noop"}}],
}


class Scene:
    """A server with a run, a Story, a Playbook, their runs, an entry and a token in each of two namespaces."""

    def __init__(self, server: Server) -> None:
        self.server, self.admin = server, server.admin
        self.runs = {
            name: self.admin.start({**WAITS, "name": f"{word}-flow"}, namespace=name, labels={"team": word})
            for name, word in (("red", "scarlet"), ("blue", PLANTED))
        }
        for name, word in (("red", "scarlet"), ("blue", PLANTED)):
            story = {**STORY, "metadata": {"name": f"{word}-story"}}
            applied = self.admin("POST", "/api/v1/resources:apply", {"documents": [story], "namespace": name})
            assert applied.status == 200, applied.text
            started = self.admin("POST", "/api/v1/runs", {"name": f"{word}-story", "namespace": name})
            assert started.status == 202, started.text
            self.runs[f"{name} story"] = started.json["id"]
            metadata = {"name": f"{word}-playbook", "path": f"{word}/playbook"}
            document = {"documents": [{**PLAYBOOK, "metadata": metadata}], "namespace": name}
            assert self.admin("POST", "/api/v1/resources:apply", document).status == 200
            started = self.admin("POST", "/api/v1/runs", {"name": f"{word}/playbook", "namespace": name})
            self.runs[f"{name} playbook"] = started.json["id"]
            self.admin.result(started.json["id"])
        self.red = {role: self.token(f"red-{role}", role, "red") for role in ("viewer", "operator", "author", "admin")}
        self.blue = self.token(f"{PLANTED}-token", "admin", "blue")
        assert self.blue("POST", "/api/credentials", {"name": PLANTED, "data": {"token": "env:X"}}).status == 200

    def token(self, name: str, role: str, *namespaces: str) -> Api:
        made = self.admin("POST", "/api/v1/tokens", {"name": name, "role": role, "namespaces": list(namespaces)})
        assert made.status == 201, made.text
        return Api(self.server.url, made.json["token"])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder: Path = tmp_path_factory.mktemp("namespaces")
    running = Server.start(folder)
    try:
        yield Scene(running)
        running.stop()
    finally:
        running.commands.end_all()


Attack = Callable[[Scene, Api], list[Reply]]
BODIES: dict[str, Any] = {
    "signals/{name}": {"value": 1},
    "gates/{step}": {"state": "Approved"},
    "patch": {"ctx": {"a": 1}},
    "effects/{key}/settle": {"done": True},
    "ctx": {"ctx": {"a": 1}},
    "": {"variables": {"a": 1}},
}


def _on_runs(method: str, path: str) -> Attack:
    """The same request about each run of the other namespace, by its id and by the beginning of it."""
    beginning = next(beginning for beginning in PATHS_OF_RUNS if path.startswith(beginning))
    below = path.removeprefix(beginning).removeprefix("/")
    segments = {"{name}": "go", "{step}": "ok", "{key}": "k", "{digest}": "00" * 32}

    def attack(scene: Scene, api: Api) -> list[Reply]:
        place = below
        for name, value in segments.items():
            place = place.replace(name, value)
        body = BODIES.get(below, {}) if method in ("POST", "PATCH") else None
        if beginning == PATHS_OF_RUNS[0]:
            runs = [scene.runs["blue"], scene.runs["blue"][:12], scene.runs["blue story"], f"{PLANTED}-story"]
        else:
            runs = [scene.runs["blue playbook"], scene.runs["blue playbook"][:12]]
        return [api(method, f"{beginning.replace('{id}', run)}/{place}".rstrip("/"), body) for run in runs]

    return attack


def _request(method: str, path: str, *bodies: Any) -> Attack:
    return lambda scene, api: [api(method, path, body) for body in bodies or (None,)]


POOLED = {"drill": 1, "name": "pooled", "steps": [{"call": "far-away", "pool": "far", "save": "x"}, {"return": "$x"}]}
BLUE_STORY = {**STORY, "metadata": {"name": "other", "namespace": "blue"}}
NO_PLAN = {"language": "drill", "name": "returns", "to": "00", "document": json.dumps(RETURNS), "moves": []}
RESOURCE = "/api/v1/resources/story/blue"
OF_ALL_NAMESPACES = ("/metrics", "/api/v1/overview", "/api/v1/audit:head", "/api/v1/audit:verify", "/api/v1/retention")
HIDDEN: dict[tuple[str, str], Attack] = {
    ("POST", "/api/v1/runs"): _request(
        "POST",
        "/api/v1/runs",
        {"document": RETURNS, "namespace": "blue"},
        {"name": f"{PLANTED}-story", "namespace": "blue"},
        {"name": f"{PLANTED}-story"},
        {"name": f"blue/{PLANTED}-story"},
        {"document": BLUE_STORY},
        {"document": RETURNS, "apply": [BLUE_STORY]},
    ),
    ("POST", "/api/v1/runs:batch"): _request(
        "POST", "/api/v1/runs:batch", {"verb": "cancel", "filter": {"namespace": "blue"}}
    ),
    ("POST", "/api/v1/check"): _request(
        "POST", "/api/v1/check", {"document": BLUE_STORY}, {"document": RETURNS, "namespace": "blue"}
    ),
    ("POST", "/api/v1/impact"): _request(
        "POST",
        "/api/v1/impact",
        {"document": BLUE_STORY},
        {"document": RETURNS, "namespace": "blue"},
    ),
    ("POST", "/api/v1/migrations"): lambda scene, api: [
        api("POST", "/api/v1/migrations", {"plan": {**NO_PLAN, "namespace": "blue"}}),
        api("POST", "/api/v1/migrations", {"undo": [scene.runs["blue"]]}),
    ],
    ("POST", "/api/v1/resources:apply"): _request(
        "POST", "/api/v1/resources:apply", {"documents": [BLUE_STORY]}, {"documents": [STORY], "namespace": "blue"}
    ),
    ("GET", "/api/v1/runs:resolve"): lambda scene, api: [
        api("GET", f"/api/v1/runs:resolve?name={name}")
        for name in (scene.runs["blue"], scene.runs["blue"][:12], f"{PLANTED}-story", "@latest&namespace=blue")
    ],
    ("GET", "/api/v1/resources:listing"): _request("GET", "/api/v1/resources:listing?what=stories&namespace=blue"),
    ("GET", "/api/v1/resources:description"): _request(
        "GET", f"/api/v1/resources:description?what=story&what={PLANTED}-story&namespace=blue"
    ),
    ("GET", "/api/v1/resources/{kind}/{namespace}/{name}/source"): _request(
        "GET", f"{RESOURCE}/{PLANTED}-story/source"
    ),
    ("GET", "/api/v1/forecast"): _request("GET", f"/api/v1/forecast?name={PLANTED}-story&namespace=blue"),
    ("GET", "/api/v1/schedules"): _request("GET", "/api/v1/schedules?namespace=blue"),
    **{
        ("POST", f"/api/v1/schedules:{verb}"): _request(
            "POST", f"/api/v1/schedules:{verb}", {"name": PLANTED, "namespace": "blue", **more}
        )
        for verb, more in (("pause", {}), ("unpause", {}), ("backfill", {"from": "2026-05-01", "to": "2026-05-02"}))
    },
    ("POST", "/api/v1/triggers"): _request(
        "POST",
        "/api/v1/triggers",
        {"story": f"{PLANTED}-story", "namespace": "blue"},
        {"story": f"blue/{PLANTED}-story"},
        {"story": f"{PLANTED}-story"},
    ),
    ("GET", "/api/v1/references"): lambda scene, api: [
        api("GET", f"/api/v1/references?ref={ref}")
        for ref in (scene.runs["blue story"], f"blue/{scene.runs['blue story']}/steps/ok/x.json")
    ],
    ("GET", "/api/v1/resources/{kind}/{namespace}"): _request("GET", RESOURCE),
    ("GET", "/api/v1/resources/{kind}/{namespace}/{name}"): lambda scene, api: [
        api("GET", f"{RESOURCE}/{PLANTED}-story"),
        api("GET", f"/api/v1/resources/storyrun/red/{scene.runs['blue story']}"),
        api("GET", f"/api/v1/resources/storyrun/blue/{scene.runs['blue story']}"),
    ],
    ("GET", "/api/v1/resources/{kind}/{namespace}/{name}/versions"): _request(
        "GET", f"{RESOURCE}/{PLANTED}-story/versions"
    ),
    ("GET", "/api/v1/resources/{kind}/{namespace}/{name}/versions/{version}"): _request(
        "GET", f"{RESOURCE}/{PLANTED}-story/versions/1"
    ),
    **{
        ("GET", f"/api/v1/resources/{{kind}}/{{namespace}}/{{name}}/{part}"): _request(
            "GET", f"{RESOURCE}/{PLANTED}-story/{part}"
        )
        for part in ("source", "graph", "schema", "schedule")
    },
    ("POST", "/api/v1/tools:called"): lambda scene, api: [
        api("POST", "/api/v1/tools:called", {"tool": "t", "run": scene.runs["blue"]})
    ],
    ("POST", "/api/v1/simulations"): _request(
        "POST", "/api/v1/simulations", {"files": {"blue.yaml": json.dumps(BLUE_STORY)}, "document": "blue.yaml"}
    ),
    ("POST", "/api/v1/tests"): _request(
        "POST", "/api/v1/tests", {"files": {"blue.yaml": json.dumps(BLUE_STORY)}, "places": ["blue.yaml"]}
    ),
    ("POST", "/api/v1/sandbox"): _request("POST", "/api/v1/sandbox", {"document": RETURNS, "namespace": "blue"}),
    ("PUT", "/api/v1/resources/{kind}/{namespace}/{name}"): _request("PUT", f"{RESOURCE}/other", BLUE_STORY),
    ("DELETE", "/api/v1/resources/{kind}/{namespace}/{name}"): lambda scene, api: [
        api("DELETE", f"{RESOURCE}/{PLANTED}-story"),
        api("DELETE", f"/api/v1/resources/storyrun/red/{scene.runs['blue story']}"),
    ],
    ("POST", "/api/v1/impulses/{namespace}/{name}"): _request("POST", f"/api/v1/impulses/blue/{PLANTED}", {}),
    ("DELETE", "/api/v1/tokens/{name}"): _request("DELETE", f"/api/v1/tokens/{PLANTED}-token"),
    ("POST", "/api/catalog/resource"): _request("POST", "/api/catalog/resource", {"path": f"{PLANTED}/playbook"}),
    ("GET", "/api/catalog/{path+}/ui_schema"): _request("GET", f"/api/catalog/{PLANTED}/playbook/ui_schema"),
    ("GET", "/api/catalog/playbook/content"): _request(
        "GET", f"/api/catalog/playbook/content?playbook_id={PLANTED}%2Fplaybook"
    ),
    ("PUT", "/api/catalog/playbook/content"): _request(
        "PUT",
        f"/api/catalog/playbook/content?playbook_id={PLANTED}%2Fplaybook",
        {"content": "x"},
    ),
    ("POST", "/api/execute"): lambda scene, api: [
        api("POST", "/api/execute", {"path": f"{PLANTED}/playbook"}),
        api("POST", "/api/execute", {"path": "scarlet/playbook", "parent_execution_id": scene.runs["blue playbook"]}),
    ],
    ("GET", "/api/replay/state"): lambda scene, api: [
        api("GET", f"/api/replay/state?execution_id={scene.runs['blue playbook']}")
    ],
    ("GET", "/api/result/resolve"): lambda scene, api: [
        api("GET", f"/api/result/resolve?ref={ref}")
        for ref in (scene.runs["blue playbook"], f"noetl://execution/{scene.runs['blue playbook']}/ctx")
    ],
    ("GET", "/api/credentials/{name}"): _request("GET", f"/api/credentials/{PLANTED}"),
    ("DELETE", "/api/credentials/{name}"): _request("DELETE", f"/api/credentials/{PLANTED}"),
    ("POST", "/api/v1/tokens"): _request(
        "POST", "/api/v1/tokens", {"name": "t", "role": "viewer", "namespaces": ["blue", "red"]}
    ),
}
"""Requests that name something of the other namespace: it is not there."""


def _counts(scene: Scene, api: Api) -> list[Reply]:
    """A run of the other namespace changes no count."""
    assert api("GET", "/api/v1/stats?namespace=blue").status == 404
    before = api("GET", "/api/v1/stats?every=1h").json["totals"]
    blue = scene.admin.start(RETURNS, namespace="blue")
    scene.admin.result(blue)
    reply = api("GET", "/api/v1/stats?every=1h")
    scene.admin("DELETE", f"/api/v1/runs/{blue}")
    assert reply.json["totals"] == before
    return [reply]


RED_PLAYBOOK = {**PLAYBOOK, "metadata": {"name": "scarlet", "path": "scarlet/again"}}


def _tools(scene: Scene, api: Api) -> list[Reply]:
    """What a language model may ask for, about each run of the other namespace and about everything."""

    def ask(method: str, **params: Any) -> Reply:
        return api("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})

    replies = [
        ask("tools/call", name=tool, arguments={"run": run})
        for tool in ("show_run", "explain_run", "read_history")
        for run in (scene.runs["blue"], scene.runs["blue story"])
    ]
    assert all(reply.json["result"]["isError"] and b"RUN-NOT-FOUND" in reply.text for reply in replies), replies
    replies += [ask("tools/call", name="list_definitions", arguments={"kind": kind}) for kind in ("stories", "flows")]
    return [*replies, ask("tools/call", name="list_runs", arguments={"limit": 100}), ask("tools/list")]


FILTERED: dict[tuple[str, str], Attack] = {
    ("GET", "/api/v1/runs"): lambda scene, api: [
        api("GET", path)
        for path in (
            "/api/v1/runs",
            f"/api/v1/runs?q={scene.runs['blue'][:6]}&limit=1000",
            f"/api/v1/runs?label=team%3D{PLANTED}",
            "/api/v1/runs?status=waiting&limit=1",
        )
    ],
    ("GET", "/api/v1/tools"): _request("GET", "/api/v1/tools"),
    ("POST", "/mcp"): _tools,
    ("GET", "/api/v1/stats"): _counts,
    ("GET", "/api/v1/runs:listing"): _request("GET", "/api/v1/runs:listing?explain=true"),
    ("GET", "/api/v1/resources/{kind}"): lambda scene, api: [
        api("GET", f"/api/v1/resources/{kind}") for kind in ("story", "flow", "storyrun", "steprun")
    ],
    ("GET", "/api/v1/changes"): lambda scene, api: _changes(scene, api),
    ("GET", "/api/v1/events"): lambda scene, api: _changes(scene, api, is_live=True),
    ("POST", "/api/catalog/list"): _request("POST", "/api/catalog/list", {}, {"path": f"{PLANTED}/playbook"}),
    ("POST", "/api/catalog/agents/list"): _request("POST", "/api/catalog/agents/list", {}),
    ("POST", "/api/catalog/playbooks/validate"): _request(
        "POST", "/api/catalog/playbooks/validate", {"content": json.dumps(RED_PLAYBOOK)}
    ),
    ("GET", "/api/catalog/list/{type}"): _request("GET", "/api/catalog/list/Playbook"),
    ("POST", "/api/catalog/register"): _request("POST", "/api/catalog/register", {"content": json.dumps(RED_PLAYBOOK)}),
    ("POST", "/api/catalog/register/batch"): _request(
        "POST", "/api/catalog/register/batch", {"items": [{"content": json.dumps(RED_PLAYBOOK)}]}
    ),
    ("POST", "/api/execute/batch"): _request("POST", "/api/execute/batch", {"executions": [{"path": "no"}]}),
    ("GET", "/api/executions"): _request("GET", "/api/executions?page_size=1000"),
    ("GET", "/api/ehdb/executions"): _request("GET", "/api/ehdb/executions?limit=1000"),
    ("POST", "/api/executions/cleanup"): _request("POST", "/api/executions/cleanup", {"older_than_minutes": 0}),
    ("POST", "/api/credentials"): _request("POST", "/api/credentials", {"name": "scarlet"}),
    ("GET", "/api/credentials"): _request("GET", "/api/credentials"),
    ("GET", "/api/dashboard/stats"): _request("GET", "/api/dashboard/stats"),
    ("GET", "/api/worker/pools"): _request("GET", "/api/worker/pools"),
    ("GET", "/api/v1/tokens"): _request("GET", "/api/v1/tokens"),
    ("GET", "/api/v1/whoami"): _request("GET", "/api/v1/whoami"),
}
"""Lists: what is of the other namespace is not in them."""

OF_NO_NAMESPACE = {
    "/",
    "/assets/{file}",  # of the console, the same for everybody
    "/session",
    "/livez",
    "/readyz",
    "/health",
    "/api/health",
    "/errors/{code}",
    "/version",
    "/openapi.json",
    "/api/v1/providers",
    "/api/v1/schemas/{language}",
    "/api/v1/servers",
    "/api/v1/resources",
}
"""They tell of the process and of what it knows, never of runs, entries or tokens."""


def _changes(scene: Scene, api: Api, *, is_live: bool = False) -> list[Reply]:
    """A run of each namespace ends: only that of its own namespace is told."""
    begun = api("GET", "/api/v1/changes").json["next"]
    labels = {"team": PLANTED}
    blue = scene.admin.start(RETURNS, namespace="blue", labels=labels)
    scene.admin.result(blue)
    red = scene.admin.start(RETURNS, namespace="red")
    scene.admin.result(red)
    assert api("GET", "/api/v1/changes?namespace=blue").status == 404
    assert api("GET", "/api/v1/events?namespace=blue", Accept="text/event-stream").status == 404
    try:
        if not is_live:
            page = api("GET", f"/api/v1/changes?after={begun}")
            assert [change["id"] for change in page.json["items"]][-1] == red
            return [page]
        stream = api.follow(f"/api/v1/events?after={begun}")
        events = stream.events()
        received = [next(events)]
        while received[-1].get("event") != "status":
            received.append(next(events))
        stream.close()
        return [Reply(200, {}, json.dumps(received).encode())]
    finally:
        scene.admin("DELETE", f"/api/v1/runs/{blue}")


AUDIT = ("GET", "/api/v1/audit")


def _rules() -> list[tuple[str, str]]:
    """Routes that answer or change something; what is not offered tells nothing of anybody."""
    return [(route.method, route.path) for route in ROUTES if route.path not in OF_NO_NAMESPACE and route.status < 400]


@pytest.mark.parametrize(("method", "path"), _rules(), ids=str)
def test_a_route_shows_and_changes_nothing_of_another_namespace(scene: Scene, method: str, path: str) -> None:
    """A route that is new has to say here what a token of another namespace gets of it."""
    admin = scene.red["admin"]
    if path.startswith(PATHS_OF_RUNS):
        attack, is_hidden = _on_runs(method, path), True
    elif (method, path) in HIDDEN:
        attack, is_hidden = HIDDEN[method, path], True
    elif path.startswith("/api/v1/worker/"):
        _attack_leases(scene, admin, method, path)
        return
    elif path.startswith("/api/v1/pools"):
        scene.admin.start({**POOLED, "steps": [{"call": "far-away", "pool": PLANTED}]}, namespace="blue")
        assert PLANTED.encode() not in admin("GET", "/api/v1/pools").text
        assert admin("GET", f"/api/v1/pools/{PLANTED}").status == 404
        return
    elif path == "/api/v1/workers" or path.startswith("/api/v1/hooks"):
        assert admin(method, path.replace("{hook}", "h")).status == 403
        return
    elif path in OF_ALL_NAMESPACES:
        assert {api("GET", path).status for api in scene.red.values()} == {403}
        return
    elif (method, path) == AUDIT:
        assert admin("GET", "/api/v1/audit").status == 403
        attack, is_hidden = _request("GET", f"/api/v1/audit?run={scene.runs['blue']}"), True
    else:
        assert (method, path) in FILTERED, f"{method} {path} has no rule for namespaces"
        attack, is_hidden = FILTERED[method, path], False
    before = _seen(scene)
    replies = attack(scene, admin)
    if is_hidden:
        assert {reply.status for reply in replies} == {404}, [reply.text for reply in replies]
        as_viewer = {reply.status for reply in attack(scene, scene.red["viewer"])}
        assert as_viewer <= {403, 404} and 200 not in as_viewer
        if "{id}" in path or "/impulses/" in path or path.endswith(":batch"):
            assert as_viewer == {404}, "the namespace is judged before the role"
    else:
        assert all(reply.status == 200 for reply in replies), [reply.text for reply in replies]
        assert not any(PLANTED.encode() in reply.text or b"blue" in reply.text for reply in replies)
    assert _seen(scene) == before


def _attack_leases(scene: Scene, admin: Api, method: str, path: str) -> None:
    """A task of the other namespace is not leased to a token of this one, and its lease opens nothing for it."""
    run = scene.admin.start(POOLED, namespace="blue")
    asked = {"worker": "w", "pools": ["far"]}
    assert admin("POST", "/api/v1/worker/lease", asked).json == {"tasks": []}
    (task,) = scene.admin("POST", "/api/v1/worker/lease", asked).json["tasks"]
    assert (task["run"], task["namespace"]) == (run, "blue")
    bodies: dict[str, Any] = {
        "/api/v1/worker/lease": asked,
        "/api/v1/worker/heartbeat": {"worker": "w", "leases": [{"lease": task["lease"]}]},
        "/api/v1/worker/answers": {"answers": [{"lease": task["lease"], "output": 1}]},
        "/api/v1/worker/leave": asked,
        "/api/v1/worker/tasks/{lease}/fail": {"code": "No"},
        "/api/v1/worker/tasks/{lease}/log": {"message": "x"},
        "/api/v1/worker/tasks/{lease}/secrets": {"names": ["x"]},
    }
    place = path.replace("{lease}", task["lease"]).replace("{key}", "k").replace("{name}", "go")
    reply = admin(method, place.replace("{digest}", "00" * 32), None if method == "GET" else bodies.get(path, {}))
    if "{lease}" in path and not path.endswith("/begin"):
        assert reply.problem == (410, "LEASE-GONE")
    elif path.endswith("/heartbeat"):
        assert reply.json["lost"] == [task["lease"]]
    elif path.endswith("/answers"):
        assert reply.json["results"][0]["status"] == 410
    done = scene.admin("POST", f"/api/v1/worker/tasks/{task['lease']}/complete", {"output": 1})
    assert done.status == 200 and scene.admin.result(run)["value"] == 1


def _seen(scene: Scene) -> Any:
    """All that the other namespace has, without times."""
    runs = scene.blue("GET", "/api/v1/runs").json["items"]
    stories = scene.blue("GET", "/api/v1/resources/story").json["items"]
    logs = [scene.blue("GET", f"/api/v1/runs/{run['id']}/events?raw=true").json for run in runs]
    return json.dumps(
        [runs, stories, logs, [token["name"] for token in scene.blue("GET", "/api/v1/tokens").json["items"]]]
    )


def test_lists_over_all_namespaces_are_of_those_that_the_token_has(scene: Scene) -> None:
    for path in ("resources:listing?what=stories,storyruns,flows&all_namespaces=true", "schedules?all_namespaces=true"):
        seen = scene.red["viewer"]("GET", f"/api/v1/{path}")
        assert seen.status == 200 and PLANTED.encode() not in seen.text and b"blue" not in seen.text


def test_a_run_is_not_compared_with_one_of_another_namespace(scene: Scene) -> None:
    path = f"/api/v1/runs/{scene.runs['red']}/diff?other="
    for name in (scene.runs["blue"], scene.runs["blue"][:12], f"{PLANTED}-story"):
        refused = scene.red["viewer"]("GET", path + name)
        assert refused.status == 404, refused.text
    assert scene.admin("GET", path + scene.runs["blue"]).status == 200


def test_a_batch_steers_only_what_its_token_sees(scene: Scene) -> None:
    """SRV-080: everything is everything of the token's namespaces."""
    planned = scene.red["operator"](
        "POST", "/api/v1/runs:batch", {"verb": "cancel", "filter": {"all": True}, "dry_run": True}
    ).json
    red, blue = ({run for name, run in scene.runs.items() if name.startswith(space)} for space in ("red", "blue"))
    assert {scene.runs["red"], scene.runs["red story"]} <= set(planned["ids"]) and not blue & set(planned["ids"])
    named = {"verb": "cancel", "filter": {"namespace": "red", "name": "scarlet-flow"}, "dry_run": True}
    assert scene.red["operator"]("POST", "/api/v1/runs:batch", named).json["ids"] == [scene.runs["red"]]
    everywhere = {"verb": "cancel", "filter": {"namespace": "blue"}, "dry_run": True}
    planned = scene.admin("POST", "/api/v1/runs:batch", everywhere).json
    assert {scene.runs["blue"], scene.runs["blue story"]} <= set(planned["ids"]) and not red & set(planned["ids"])


def test_a_start_without_namespace_gets_the_token_s_only_one(scene: Scene) -> None:
    """SRV-009, SRV-082: with several, or all, it is `default`, unless the document says otherwise."""
    started = scene.red["author"]("POST", "/api/v1/runs", {"document": RETURNS, "token": "x"})
    assert (started.json["namespace"], started.json["started_by"]) == ("red", {"name": "red-author", "via": "token"})
    by_key = scene.red["author"]("POST", "/api/v1/runs", {"document": RETURNS}, Idempotency_Key="k").json["id"]
    assert scene.red["author"]("POST", "/api/v1/runs", {"document": RETURNS}, Idempotency_Key="k").json["id"] == by_key
    assert scene.admin("POST", "/api/v1/runs", {"document": RETURNS, "token": "x"}).json["namespace"] == "default"
    assert scene.admin("POST", "/api/v1/runs", {"document": BLUE_STORY}).json["namespace"] == "blue"
    both = scene.token("both", "author", "red", "green")
    assert both("POST", "/api/v1/runs", {"document": RETURNS}).problem == (404, "NAMESPACE-NOT-FOUND")
    assert both("POST", "/api/v1/runs", {"document": RETURNS, "namespace": "green"}).json["namespace"] == "green"
    assert {run["namespace"] for run in both("GET", "/api/v1/runs").json["items"]} == {"red", "green"}
    assert {run["namespace"] for run in both("GET", "/api/v1/runs?namespace=green").json["items"]} == {"green"}
    refused = scene.admin("POST", "/api/v1/runs", {"document": RETURNS, "namespace": "No_Label"})
    assert refused.problem == (400, "USAGE")


def test_an_admin_of_namespaces_makes_tokens_within_them_and_writes_nothing_for_all(scene: Scene) -> None:
    """SRV-022"""
    admin = scene.red["admin"]
    made = admin("POST", "/api/v1/tokens", {"name": "red-more", "role": "viewer", "namespaces": ["red"]})
    assert made.status == 201
    assert admin("POST", "/api/v1/tokens", {"name": "all", "role": "viewer"}).problem == (403, "ACCESS-DENIED")
    names = {token["name"] for token in admin("GET", "/api/v1/tokens").json["items"]}
    assert "red-more" in names and not names & {"admin", f"{PLANTED}-token", "both"}
    assert admin("DELETE", "/api/v1/tokens/admin").problem == (404, "TOKEN-NOT-FOUND")
    assert admin("DELETE", "/api/v1/tokens/red-more").status == 200
    transport = {
        "apiVersion": "transport.bubustack.io/v1alpha1",
        "kind": "Transport",
        "metadata": {"name": "wire"},
        "spec": {"provider": "p", "driver": "d", "supportedBinary": ["application/json"]},
    }
    assert admin("PUT", "/api/v1/resources/transport/-/wire", transport).problem == (403, "ACCESS-DENIED")
    assert admin("GET", "/api/v1/resources/transport").status == 200


KUBERNETES_KINDS = (
    ("/apis/bubustack.io/v1alpha1", "stories"),
    ("/apis/runs.bubustack.io/v1alpha1", "storyruns"),
    ("/apis/runs.bubustack.io/v1alpha1", "stepruns"),
    ("/api/v1", "configmaps"),
    ("/api/v1", "events"),
)


def test_the_kubernetes_api_shows_and_changes_nothing_of_another_namespace(scene: Scene) -> None:
    """Paths that name another namespace, and paths that name none, which do not mean `default` either."""
    stories = "/apis/bubustack.io/v1alpha1/namespaces/{}/stories"
    for namespace in ("default", "blue"):
        for path, body in (
            (stories.format(namespace), {"metadata": {"name": PLANTED}, "spec": STORY["spec"]}),
            (f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": PLANTED}, "data": {"a": PLANTED}}),
            (
                f"/apis/runs.bubustack.io/v1alpha1/namespaces/{namespace}/storyruns",
                {"metadata": {"name": PLANTED}, "spec": {"storyRef": {"name": PLANTED}}},
            ),
        ):
            assert scene.admin("POST", path, body).status == 201
    merge = "application/merge-patch+json"
    change = {"metadata": {"labels": {"changed": "yes"}}}
    for beginning, plural in KUBERNETES_KINDS:
        for place in ("", "/namespaces/blue", "/namespaces/default"):
            path = f"{beginning}{place}/{plural}"
            for api in (scene.red["admin"], scene.red["viewer"]):
                for name in (PLANTED, f"{PLANTED}.1", f"{PLANTED}/status"):
                    replies = [
                        api("GET", f"{path}/{name}"),
                        api("PUT", f"{path}/{name}", {"metadata": {"name": PLANTED, "resourceVersion": "1"}}),
                        api("PATCH", f"{path}/{name}", change, Content_Type=merge),
                        api("DELETE", f"{path}/{PLANTED}"),
                    ]
                    assert {reply.status for reply in replies} <= {403, 404, 405}, (path, name)
                assert api("POST", path, {"metadata": {"name": "new"}, "spec": STORY["spec"]}).status in (403, 404, 405)
                for method in ("GET", "DELETE"):
                    answer = api(method, path)
                    assert answer.status != 200 or (place == "" and PLANTED.encode() not in answer.text), (method, path)
    for namespace in ("default", "blue"):
        for beginning, plural in KUBERNETES_KINDS[:2]:
            there = scene.admin("GET", f"{beginning}/namespaces/{namespace}/{plural}/{PLANTED}").json
            assert "changed" not in there["metadata"].get("labels", {})
    assert b'"new"' not in scene.admin("GET", "/apis/bubustack.io/v1alpha1/stories").text


def test_a_document_that_names_no_namespace_tells_nothing_of_one_that_is_hidden(scene: Scene) -> None:
    """A token for several namespaces sees no `default`: whether something is there is not found by asking."""
    hidden = {**STORY, "metadata": {"name": f"{PLANTED}-hidden"}}
    assert scene.admin("POST", "/api/v1/resources:apply", {"documents": [hidden]}).status == 200
    author = scene.token("red-and-green", "author", "red", "green")

    def problems(name: str) -> str:
        step = {"name": "ask", "type": "executeStory", "with": {"storyRef": {"name": name}}}
        document = {**STORY, "metadata": {"name": "asking"}, "spec": {"steps": [step]}}
        checked = author("POST", "/api/v1/check", {"document": document})
        assert checked.status == 200
        return json.dumps(checked.json).replace(name, "NAME")

    assert problems(f"{PLANTED}-hidden") == problems(f"{PLANTED}-nowhere")
