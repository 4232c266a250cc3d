"""The Kubernetes API as programs call it (SRV-061, SRV-070, SRV-074, SRV-075, SRV-077)."""

import base64
import json
import time
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from perdure.server.kubernetes.selectors import LabelSelector
from perdure.views.errors import BadRequest
from tests.server.serving import Api, Reply, Server

STORIES = "/apis/bubustack.io/v1alpha1/namespaces/default/stories"
RUNS = "/apis/runs.bubustack.io/v1alpha1/namespaces/default/storyruns"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"
GATE = {"name": "ok", "type": "gate"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    key = folder / "key"
    key.write_text(base64.b64encode(bytes(range(32))).decode())
    key.chmod(0o600)
    running = Server.start(folder, PERDURE_SECRETS_KEY_FILE=str(key))
    try:
        yield running
        running.stop()
    finally:
        running.commands.end_all()


@pytest.fixture(scope="module")
def api(server: Server) -> Api:
    return server.admin


def story(name: str, *steps: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": {"steps": list(steps) or [GATE]}}


def created(api: Api, path: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = api("POST", path, body)
    assert reply.status == 201, reply.text
    made: dict[str, Any] = reply.json
    return made


def refused(reply: Reply) -> tuple[int, str]:
    """Status and reason of a refusal, which is a Status."""
    body = reply.json
    assert body["kind"] == "Status" and body["status"] == "Failure" and body["code"] == reply.status, body
    return reply.status, body["reason"]


def patch(api: Api, path: str, body: Any, kind: str = "merge-patch", **more: Any) -> Reply:
    return api("PATCH", path, body, Content_Type=f"application/{kind}+json", **more)


def watch(api: Api, path: str) -> Generator[dict[str, Any], None, None]:
    connection = api.connect()
    connection.request("GET", path, headers={"Authorization": f"Bearer {api.token}"})
    response = connection.getresponse()
    assert response.status == 200
    try:
        for line in response:
            yield json.loads(line)
    finally:
        response.close()
        connection.close()


def test_refusals_are_statuses_with_reasons(server: Server, api: Api) -> None:
    """SRV-061, SRV-070: on every path of this surface, whatever is wrong; a trailing slash changes nothing."""
    assert refused(server.nobody("GET", STORIES)) == (401, "Unauthorized")
    viewer = server.role("viewer")
    assert refused(viewer("POST", STORIES, story("never"))) == (403, "Forbidden")
    assert refused(viewer("GET", f"{STORIES}/never")) == (404, "NotFound")
    assert refused(api("GET", "/apis/nothing.io/v1/things")) == (404, "NotFound")
    assert refused(api("POST", STORIES, {"metadata": {"name": "x"}, "spec": {}})) == (422, "Invalid")
    assert refused(api("POST", STORIES, story("x", finalizers=["a"]))) == (422, "Invalid")
    assert refused(api("POST", STORIES, raw=b"{")) == (400, "BadRequest")
    assert refused(api("GET", f"{STORIES}?fieldSelector=spec.x=1")) == (400, "BadRequest")
    assert refused(api("GET", f"{STORIES}?watch=true&sendInitialEvents=true")) == (422, "Invalid")
    assert refused(patch(api, f"{STORIES}/never", {}, "strategic-merge-patch")) == (415, "UnsupportedMediaType")
    steps = "/apis/runs.bubustack.io/v1alpha1/namespaces/default/stepruns"
    assert refused(api("POST", steps, {"metadata": {"name": "x"}})) == (405, "MethodNotAllowed")
    for path in ("/api/", "/apis/", "/version/", "/api/v1/"):
        assert api("GET", path).status == 200
    wrong = created(api, STORIES, story("wrong"))
    reply = api("PUT", f"{STORIES}/wrong", {**wrong, "spec": {"steps": [{"name": "A b"}]}})
    assert reply.status == 422
    assert "spec.steps[0].name" in {cause["field"] for cause in reply.json["details"]["causes"]}
    assert reply.json["details"]["kind"] == "Story" and reply.json["details"]["name"] == "wrong"


def test_discovery_in_the_plain_form(api: Api) -> None:
    """SRV-060: for clients that do not know the aggregated one."""
    groups = {group["name"] for group in api("GET", "/apis").json["groups"]}
    assert {"bubustack.io", "catalog.bubustack.io", "runs.bubustack.io", "authorization.k8s.io"} <= groups
    assert api("GET", "/apis/bubustack.io").json["preferredVersion"]["version"] == "v1alpha1"
    served = {item["name"]: item for item in api("GET", "/apis/runs.bubustack.io/v1alpha1").json["resources"]}
    assert served["storyruns"]["shortNames"] == ["srun"] and "watch" in served["storyruns"]["verbs"]
    assert served["stepruns"]["verbs"] == ["get", "list", "watch"] and "storyruns/status" in served
    reviews = api("GET", "/apis/authorization.k8s.io/v1").json
    assert [item["kind"] for item in reviews["resources"]] == ["SelfSubjectAccessReview", "SelfSubjectRulesReview"]
    assert api("GET", "/apis/authentication.k8s.io").json["name"] == "authentication.k8s.io"
    version = api("GET", "/version").json
    assert version["major"] == "1" and version["gitVersion"].startswith("v1.32") and version["version"]


def test_entries_have_versions_generations_and_conflicts(api: Api) -> None:
    """SRV-061, SRV-075, SRV-079: labels raise the version only; a dry run changes nothing."""
    made = created(api, STORIES, story("versions"))
    path, metadata = f"{STORIES}/versions", made["metadata"]
    assert refused(api("POST", STORIES, story("versions"))) == (409, "AlreadyExists")
    labelled = patch(api, path, {"metadata": {"labels": {"a": "b"}}}).json["metadata"]
    assert labelled["generation"] == 1 and int(labelled["resourceVersion"]) > int(metadata["resourceVersion"])
    assert refused(api("PUT", path, made)) == (409, "Conflict")
    assert refused(patch(api, path, {"metadata": {"resourceVersion": metadata["resourceVersion"]}})) == (
        409,
        "Conflict",
    )
    unversioned = {**made, "metadata": {"name": "versions"}}
    assert refused(api("PUT", path, unversioned)) == (422, "Invalid")
    dry = patch(api, f"{path}?dryRun=All", {"spec": {"version": "2"}}).json
    assert dry["metadata"]["generation"] == 2 and dry["spec"]["version"] == "2"
    assert api("GET", path).json["metadata"] == labelled
    operations = [{"op": "test", "path": "/spec/steps/0/name", "value": "ok"}]
    operations += [{"op": "add", "path": "/spec/version", "value": "3"}]
    changed = patch(api, path, operations, "json-patch").json
    assert changed["spec"]["version"] == "3" and changed["metadata"]["generation"] == 2
    operations[0]["value"] = "other"
    assert refused(patch(api, path, operations, "json-patch")) == (422, "Invalid")
    gone = {"preconditions": {"uid": "another"}}
    assert refused(api("DELETE", path, gone)) == (409, "Conflict")
    assert api("DELETE", f"{path}?dryRun=All").status == 200 and api("GET", path).status == 200
    assert api("DELETE", path, {"propagationPolicy": "Background"}).json["status"] == "Success"
    assert refused(api("GET", path)) == (404, "NotFound")


def test_lists_by_page_with_selectors(api: Api) -> None:
    names = [f"page-{number}" for number in range(5)]
    for name in names:
        created(api, STORIES, story(name, labels={"page": "yes", "odd": str(int(name[-1]) % 2)}))
    where, listed, more = f"{STORIES}?labelSelector=page%3Dyes", [], ""
    for _ in range(3):
        page = api("GET", f"{where}&limit=2{more}").json
        listed += [item["metadata"]["name"] for item in page["items"]]
        more = f"&continue={page['metadata'].get('continue')}"
    assert listed == names and "continue" not in page["metadata"]
    assert refused(api("GET", f"{STORIES}?continue=nonsense")) == (400, "BadRequest")
    odd = api("GET", f"{STORIES}?labelSelector=page,odd%20notin%20(0),!gone").json["items"]
    assert [item["metadata"]["name"] for item in odd] == ["page-1", "page-3"]
    table = api("GET", where, Accept="application/json;as=Table;v=v1;g=meta.k8s.io").json
    assert [column["name"] for column in table["columnDefinitions"]][:3] == ["Name", "Steps", "Status"]
    assert [row["cells"][:3] for row in table["rows"]] == [[name, 1, "valid"] for name in names]
    removed = api("DELETE", where).json["items"]
    assert len(removed) == 5 and api("GET", where).json["items"] == []


def test_runs_are_listed_by_page_and_a_page_shows_no_other_namespace(server: Server, api: Api) -> None:
    """Where a list goes on comes from the caller, who may have written anything into it."""
    created(api, STORIES, story("paged"))
    names = [f"paged-{number}" for number in range(5)]
    for name in names:
        created(api, RUNS, {"metadata": {"name": name}, "spec": {"storyRef": {"name": "paged"}}})
    listed, more = [], ""
    for _ in range(20):
        page = api("GET", f"{RUNS}?limit=2{more}").json
        listed += [item["metadata"]["name"] for item in page["items"]]
        if "continue" not in page["metadata"]:
            break
        more = f"&continue={page['metadata']['continue']}"
    assert [name for name in listed if name in names] == names[::-1] and len(set(listed)) == len(listed)

    token = api("POST", "/api/v1/tokens", {"name": "other", "role": "viewer", "namespaces": ["other"]}).json["token"]
    other, forged = Api(api.url, token), api("GET", f"{RUNS}?limit=1").json["metadata"]["continue"]
    position, created_at, run, _ = json.loads(base64.urlsafe_b64decode(forged + "=" * (-len(forged) % 4)))
    where = RUNS.replace("/default/", "/other/")
    for behind in ([created_at, run, 0], [created_at - 1, run, 0], [str(run)], ["x", run, 0], [1, 2, 3], [{}, [], 1]):
        text = base64.urlsafe_b64encode(json.dumps([position, *behind]).encode()).decode()
        reply = other("GET", f"{where}?continue={text}")
        assert reply.status == 400 or reply.json["items"] == [], reply.text
        assert api("GET", f"{STORIES}?continue={text}").status in (200, 400)
    for name in names:
        api("DELETE", f"{RUNS}/{name}")


def test_selectors_of_strangers_take_no_time(api: Api) -> None:
    """A regular expression took a second for a few thousand commas, and seconds for more."""
    hostile = ["," * 25_000, "(" * 12_000 + "," * 12_000, "a=1," * 6_000 + "(", "a>" + "9" * 20_000]
    for text in hostile:
        assert api("GET", f"{STORIES}?labelSelector={text}").status in (200, 400)
    begun = time.process_time()
    for text in hostile[:2]:
        with suppress(BadRequest):
            LabelSelector(text)
    assert time.process_time() - begun < 1
    for selector in (
        "labelSelector=" + ",".join(["a!=b"] * 101),
        "fieldSelector=" + ",".join(["metadata.name!=a"] * 101),
    ):
        assert "at most 100" in api("GET", f"{STORIES}?{selector}").json["message"]


def test_a_watch_tells_each_change_once_and_goes_on_from_a_version(api: Api) -> None:
    """SRV-075: what there is, then changes; with a version what came after; selectors; 410 for what is gone."""
    created(api, STORIES, story("watched", labels={"w": "1"}))
    with closing(watch(api, f"{STORIES}?watch=true&labelSelector=w%3D1")) as events:
        first = next(events)
        assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "watched")
        patch(api, f"{STORIES}/watched", {"spec": {"version": "2"}})
        second = next(events)
        assert (second["type"], second["object"]["spec"]["version"]) == ("MODIFIED", "2")
        assert second["object"]["status"]["conditions"][0]["type"] == "Ready"
        patch(api, f"{STORIES}/watched", {"metadata": {"labels": {"w": "2"}}})
        assert next(events)["type"] == "DELETED"
        patch(api, f"{STORIES}/watched", {"metadata": {"labels": {"w": "1"}}})
        again = next(events)
        assert again["type"] == "ADDED"
    seen = second["object"]["metadata"]["resourceVersion"]
    with closing(
        watch(api, f"{STORIES}?watch=true&resourceVersion={seen}&fieldSelector=metadata.name%3Dwatched")
    ) as events:
        labels = [next(events)["object"]["metadata"]["labels"]["w"] for _ in range(2)]
        assert labels == ["2", "1"]
        stale = {**second["object"], "spec": story("x")["spec"]}
        assert refused(api("PUT", f"{STORIES}/watched", stale)) == (409, "Conflict")
        fresh = {**again["object"], "spec": {**again["object"]["spec"], "version": "4"}}
        assert api("PUT", f"{STORIES}/watched", fresh).status == 200
        assert next(events)["object"]["spec"]["version"] == "4"
        api("DELETE", f"{STORIES}/watched")
        last = next(events)
        assert (last["type"], last["object"]["spec"]["version"]) == ("DELETED", "4")
    for version in ("999999", str(2**62)):
        expired = next(watch(api, f"{STORIES}?watch=true&resourceVersion={version}&timeoutSeconds=5"))
        assert (expired["type"], expired["object"]["code"], expired["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert list(watch(api, f"{STORIES}?watch=true&timeoutSeconds=1&labelSelector=none")) == []


def test_a_run_and_its_steps_are_watched(api: Api) -> None:
    """SRV-071, SRV-075: every change of a phase is seen, with a version of its own for each object."""
    created(
        api, STORIES, story("moves", GATE, {"name": "then", "type": "condition", "needs": ["ok"], "if": "{{ true }}"})
    )
    begin = api("GET", RUNS).json["metadata"]["resourceVersion"]
    run = created(api, RUNS, {"metadata": {"generateName": "moves-"}, "spec": {"storyRef": {"name": "moves"}}})
    name = run["metadata"]["name"]
    assert patch(api, f"{RUNS}/{name}/status", {"status": {"gates": {"ok": {"state": "Approved"}}}}).status == 200
    phases, versions = [], []
    with closing(watch(api, f"{RUNS}?watch=true&resourceVersion={begin}")) as events:
        for event in events:
            shown = event["object"]
            versions.append(int(shown["metadata"]["resourceVersion"]))
            phases.append((event["type"], shown["status"]["phase"]))
            if shown["status"]["phase"] == "Succeeded":
                break
    assert phases[0] == ("ADDED", "Running") and {kind for kind, _ in phases[1:]} == {"MODIFIED"}
    assert versions == sorted(set(versions))
    assert refused(patch(api, f"{RUNS}/{name}/status", {"status": {"phase": "Failed"}})) == (422, "Invalid")
    assert refused(patch(api, f"{RUNS}/{name}/status", {"status": {"gates": {"ok": {"state": "Rejected"}}}})) == (
        409,
        "Conflict",
    )
    assert patch(api, f"{RUNS}/{name}", {"status": {"phase": "Failed"}}).json["status"]["phase"] == "Succeeded"
    assert refused(patch(api, f"{RUNS}/{name}", {"spec": {"inputs": {"a": 1}}})) == (422, "Invalid")
    assert refused(patch(api, f"{RUNS}/{name}", {"metadata": {"labels": {"bubustack.io/x": "y"}}})) == (422, "Invalid")
    assert refused(api("POST", RUNS, {"metadata": {"name": name}, "spec": {"storyRef": {"name": "moves"}}})) == (
        409,
        "AlreadyExists",
    )
    assert api("DELETE", f"{RUNS}/{name}").status == 200 and api("GET", f"{RUNS}/{name}").status == 404


def test_a_watch_goes_on_from_the_version_of_an_object_that_was_read(api: Api) -> None:
    """SRV-074, SRV-075: of a run, its step or an entry; each later change once. A version is compared by the owner."""
    created(api, STORIES, story("read"))
    created(api, RUNS, {"metadata": {"name": "read-1"}, "spec": {"storyRef": {"name": "read"}}})
    created(api, RUNS, {"metadata": {"name": "read-2"}, "spec": {"storyRef": {"name": "read"}}})
    path, notes = f"{RUNS}/read-1", [{"metadata": {"labels": {"n": str(number)}}} for number in range(3)]
    before = patch(api, path, notes[0]).json["metadata"]["resourceVersion"]
    assert api("GET", path).json["metadata"]["resourceVersion"] == before
    for note in notes[1:]:
        assert patch(api, path, note).status == 200
    for where in (RUNS, f"{RUNS}?fieldSelector=metadata.name%3Dread-1"):
        more = "&" if "?" in where else "?"
        with closing(watch(api, f"{where}{more}watch=true&resourceVersion={before}")) as events:
            received = [next(events) for _ in range(2)]
        assert [event["object"]["metadata"]["labels"]["n"] for event in received] == ["1", "2"]
    entry = api("GET", f"{STORIES}/read").json["metadata"]["resourceVersion"]
    patch(api, f"{STORIES}/read", {"spec": {"version": "2"}})
    with closing(watch(api, f"{STORIES}?watch=true&resourceVersion={entry}")) as events:
        assert next(events)["object"]["spec"]["version"] == "2"

    stale = {"metadata": {"resourceVersion": before, "labels": {"n": "9"}}}
    assert refused(patch(api, path, stale)) == (409, "Conflict")
    current = api("GET", path).json["metadata"]["resourceVersion"]
    ending = {"metadata": {"resourceVersion": current}, "spec": {"cancelRequested": True}}
    assert refused(api("DELETE", path, {"preconditions": {"resourceVersion": before}})) == (409, "Conflict")
    assert patch(api, path, ending).status == 200
    shown = api("GET", f"/api/v1/runs/{api('GET', path).json['metadata']['uid']}").json
    assert shown["started_by"] == {"name": api("GET", "/api/v1/whoami").json["name"], "via": "token"}


def test_what_changes_nothing_that_is_shown_is_no_change(api: Api) -> None:
    """SRV-071, SRV-075: a run that looks at the clock commits, and is as it was: for watches and for writers."""
    polls = {"name": "late", "type": "wait", "with": {"until": "{{ gt now.Year 2999 }}", "pollInterval": "200ms"}}
    created(api, STORIES, story("polls", polls))
    begin = api("GET", RUNS).json["metadata"]["resourceVersion"]
    created(api, RUNS, {"metadata": {"name": "polls-1"}, "spec": {"storyRef": {"name": "polls"}}})
    path, read = f"{RUNS}/polls-1", set[str]()
    while len(read) < 2:
        read.add(api("GET", path).json["metadata"]["resourceVersion"])
    with closing(watch(api, f"{RUNS}?watch=true&resourceVersion={begin}")) as events:
        added = next(events)["object"]
        for number, version in enumerate([*sorted(read), added["metadata"]["resourceVersion"]]):
            change = {"metadata": {"resourceVersion": version, "labels": {"n": str(number)}}}
            assert patch(api, path, change).status == (200 if number == 0 else 409)
        fresh = api("GET", path).json
        fresh["metadata"]["labels"]["n"] = "put"
        assert api("PUT", path, fresh).status == 200
        for number in range(3):
            assert patch(api, path, {"metadata": {"labels": {"n": f"free-{number}"}}}).status == 200
        labels = [next(events)["object"]["metadata"]["labels"]["n"] for _ in range(5)]
    assert labels == ["0", "put", "free-0", "free-1", "free-2"], "each change once, and nothing else"
    assert api("DELETE", path).status in (200, 202)


def test_an_object_of_a_watch_is_written_with_the_version_that_it_has_there(api: Api) -> None:
    """SRV-075: of the list with which the watch began, or of a change; whatever else has changed meanwhile."""
    created(api, STORIES, story("cached"))
    created(api, RUNS, {"metadata": {"name": "cached-1"}, "spec": {"storyRef": {"name": "cached"}}})
    for where, name in ((STORIES, "cached"), (RUNS, "cached-1")):
        with closing(watch(api, f"{where}?watch=true&fieldSelector=metadata.name%3D{name}")) as events:
            cached = next(events)["object"]
            for number in range(3):
                created(api, STORIES, story(f"other-{name}-{number}"))
                cached["metadata"].setdefault("labels", {})["n"] = str(number)
                assert api("PUT", f"{where}/{name}", cached).status == 200, number
                stale, cached = cached, next(events)["object"]
                assert cached["metadata"]["labels"]["n"] == str(number)
            stale["metadata"]["labels"]["n"] = "stale"
            assert refused(api("PUT", f"{where}/{name}", stale)) == (409, "Conflict")
            assert refused(api("DELETE", f"{where}/{name}", {"preconditions": stale["metadata"]})) == (409, "Conflict")


def test_core_kinds_are_watched(api: Api) -> None:
    """SRV-075, SRV-077: each change once, as it is read; nothing of a value."""
    value = base64.b64encode(b"planted-watched-value").decode()
    for where, first, then in (
        (CONFIG_MAPS, {"data": {"a": "1"}}, {"data": {"a": "2"}}),
        (SECRETS, {"data": {"a": value}}, {"data": {"b": value}}),
        ("/api/v1/namespaces", {}, {"metadata": {"labels": {"a": "2"}}}),
    ):
        path = f"{where}/core-watched"
        begin = api("GET", where).json["metadata"]["resourceVersion"]
        with closing(watch(api, f"{where}?watch=true&resourceVersion={begin}")) as events:
            made = created(api, where, {"metadata": {"name": "core-watched"}, **first})
            changed = patch(api, path, then).json
            assert refused(api("DELETE", path, {"propagationPolicy": "Sideways"})) == (422, "Invalid")
            assert api("DELETE", path).status == 200
            for kind, item in (("ADDED", made), ("MODIFIED", changed), ("DELETED", changed)):
                event = next(events)
                for shown in (item, event["object"]):
                    assert shown["metadata"].pop("resourceVersion", None) or kind == "DELETED"
                assert (event["type"], event["object"]) == (kind, item) and value not in json.dumps(event)


def test_bookmarks_and_pages_that_expired(api: Api) -> None:
    """SRV-075: a watch ends with where the next one goes on, if that is asked for; an old `continue` is 410."""
    created(api, STORIES, story("marked"))
    last = list(watch(api, f"{STORIES}?watch=true&timeoutSeconds=1&allowWatchBookmarks=true"))[-1]
    assert last["type"] == "BOOKMARK" and last["object"]["kind"] == "Story"
    version = last["object"]["metadata"]["resourceVersion"]
    patch(api, f"{STORIES}/marked", {"spec": {"version": "2"}})
    with closing(watch(api, f"{STORIES}?watch=true&resourceVersion={version}")) as events:
        assert next(events)["object"]["spec"]["version"] == "2"
    for behind in (["default", "a"], []):
        old = base64.urlsafe_b64encode(json.dumps([7, *behind]).encode()).decode()
        assert refused(api("GET", f"{STORIES}?continue={old}")) == (410, "Expired")
    current = api("GET", STORIES).json["metadata"]["resourceVersion"]
    assert api("GET", f"{STORIES}?resourceVersionMatch=NotOlderThan&resourceVersion={version}").status == 200
    for match, version, reason in (
        ("Exact", "7", (410, "Expired")),
        ("NotOlderThan", str(int(current) * 2), (410, "Expired")),
        ("Newest", current, (422, "Invalid")),
        ("Exact", "", (422, "Invalid")),
        ("Exact", "x", (400, "BadRequest")),
    ):
        asked = f"{STORIES}?resourceVersionMatch={match}&resourceVersion={version}"
        assert refused(api("GET", asked)) == reason, asked


def test_an_open_run_that_is_deleted_is_cancelled_and_goes_when_it_has_ended(api: Api) -> None:
    """SRV-074."""
    created(api, STORIES, story("open"))
    created(api, RUNS, {"metadata": {"name": "open-1"}, "spec": {"storyRef": {"name": "open"}}})
    version = api("GET", RUNS).json["metadata"]["resourceVersion"]
    gone = api("DELETE", f"{RUNS}/open-1")
    assert gone.status in (200, 202)
    if gone.status == 202:
        metadata = gone.json["metadata"]
        assert metadata["deletionTimestamp"] >= metadata["creationTimestamp"][:19]
    with closing(watch(api, f"{RUNS}?watch=true&resourceVersion={version}")) as events:
        changes = []
        for event in events:
            if event["object"]["metadata"]["name"] == "open-1":
                changes.append((event["type"], event["object"]["status"]["phase"]))
                assert event["object"]["spec"]["storyRef"] == {"name": "open"}
                if changes[-1][0] == "DELETED":
                    break
    assert changes[-1] == ("DELETED", "Finished"), "its end is told, also when it is gone"
    assert {kind for kind, _ in changes[:-1]} <= {"MODIFIED"}, "a watch that comes late is told the last state alone"
    assert refused(api("GET", f"{RUNS}/open-1")) == (404, "NotFound")


def test_secrets_are_stored_encrypted_and_told_to_nobody(server: Server, api: Api) -> None:
    """SRV-077: an update keeps what it gives back empty; nothing of a value is in the store."""
    planted = [f"planted-{word}-value" for word in ("first", "second", "third")]
    texts = [base64.b64encode(value.encode()).decode() for value in planted]
    notes = {"kubectl.kubernetes.io/last-applied-configuration": planted[0]}
    body = {
        "metadata": {"name": "mail", "annotations": notes},
        "stringData": {"a": planted[0]},
        "data": {"b": texts[1]},
    }
    made = created(api, SECRETS, body)
    assert made["data"] == {"a": "", "b": ""} and made["metadata"]["annotations"] == {"perdure.dev/keys": "a,b"}
    changed = api("PUT", f"{SECRETS}/mail", {**made, "data": {"a": "", "c": texts[2]}}).json
    assert changed["data"] == {"a": "", "c": ""}
    same = api("PUT", f"{SECRETS}/mail", changed).json
    assert same["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]
    event = next(watch(api, f"{SECRETS}?watch=true&fieldSelector=metadata.name%3Dmail"))
    shown = [made, changed, event, api("GET", SECRETS).json, api("GET", "/api/v1/secrets").json]
    assert refused(api("POST", SECRETS, {"metadata": {"name": "x"}, "data": {"a": "no base64!"}})) == (422, "Invalid")
    folder = server.commands.folder
    stored = b"".join(path.read_bytes() for path in folder.glob("perdure.db*") if path.is_file())
    for value, text in zip(planted, texts, strict=True):
        for form in (value, text):
            assert form.encode() not in stored and form not in json.dumps(shown)
    assert api("DELETE", f"{SECRETS}/mail").status == 200


def test_config_maps_and_namespaces(server: Server, api: Api) -> None:
    """SRV-077: a namespace exists if it was created or something is in it; only an empty one goes."""
    made = created(api, CONFIG_MAPS, {"metadata": {"name": "limits"}, "data": {"most": "5"}})
    assert patch(api, f"{CONFIG_MAPS}/limits", {"data": {"least": "1"}}, "strategic-merge-patch").json["data"] == {
        "most": "5",
        "least": "1",
    }
    assert refused(patch(api, f"{CONFIG_MAPS}/limits", {"data": {"$patch": "x"}}, "strategic-merge-patch"))[0] == 422
    assert refused(api("POST", CONFIG_MAPS, {"metadata": {"name": "x"}, "data": {"n": 5}})) == (422, "Invalid")
    assert made["metadata"]["uid"] and api("DELETE", f"{CONFIG_MAPS}/limits").status == 200
    assert refused(api("GET", "/api/v1/namespaces/team-a")) == (404, "NotFound")
    created(api, STORIES.replace("default", "team-a"), story("inside"))
    assert api("GET", "/api/v1/namespaces/team-a").json["status"]["phase"] == "Active"
    assert "team-a" in {item["metadata"]["name"] for item in api("GET", "/api/v1/namespaces").json["items"]}
    assert refused(api("DELETE", "/api/v1/namespaces/team-a")) == (409, "Conflict")
    created(api, "/api/v1/namespaces", {"metadata": {"name": "team-b"}})
    assert api("DELETE", "/api/v1/namespaces/team-b").status == 200
    assert refused(api("POST", "/api/v1/namespaces", {"metadata": {"name": "Not_one"}})) == (422, "Invalid")


def applied_as(manager: str, api: Api, path: str, body: dict[str, Any], more: str = "") -> Reply:
    where = f"{path}?fieldManager={manager}{more}"
    return api("PATCH", where, {"metadata": {}, **body}, Content_Type="application/apply-patch+yaml")


def test_an_apply_without_a_field_changes_nothing_and_names_no_manager(api: Api) -> None:
    """SRV-079, SRV-011: it was answered 500."""
    where = f"{CONFIG_MAPS}/without-fields"
    made = created(api, CONFIG_MAPS, {"metadata": {"name": "without-fields"}, "data": {"a": "1"}})
    empty = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "without-fields"}}
    for body in (empty, {**empty, "data": {}}, {**empty, "metadata": {"labels": None}}):
        reply = api("PATCH", f"{where}?fieldManager=nobody", body, Content_Type="application/apply-patch+yaml")
        assert (reply.status, reply.json["metadata"]) == (200, made["metadata"]), reply.text


def owners_of(item: dict[str, Any]) -> dict[str, Any]:
    return {owner["manager"]: owner["fieldsV1"] for owner in item["metadata"]["managedFields"]}


def test_fields_of_core_kinds_have_managers(api: Api) -> None:
    """SRV-079: also of Secrets, of which only names are told; an apply that changes nothing writes nothing."""

    def applied(path: str, manager: str, body: dict[str, Any], more: str = "") -> Reply:
        return applied_as(manager, api, path, {"apiVersion": "v1", **body}, more)

    path = f"{CONFIG_MAPS}/owned"
    first = applied(path, "one", {"kind": "ConfigMap", "data": {"a": "1", "b": "1"}})
    assert first.status == 201 and first.json["metadata"]["managedFields"][0]["manager"] == "one", first.text
    again = applied(path, "one", {"kind": "ConfigMap", "data": {"a": "1", "b": "1"}}).json
    assert again["metadata"] == first.json["metadata"]
    conflict = applied(path, "two", {"kind": "ConfigMap", "data": {"a": "2"}})
    assert refused(conflict) == (409, "Conflict")
    assert conflict.json["details"]["causes"][0]["field"] == ".data.a"
    forced = applied(path, "two", {"kind": "ConfigMap", "data": {"a": "2"}}, "&force=true").json
    assert forced["data"] == {"a": "2", "b": "1"}
    assert applied(path, "one", {"kind": "ConfigMap", "data": {}}).json["data"] == {"a": "2"}
    changed = patch(api, f"{path}?fieldManager=three", {"data": {"c": "3"}}).json
    owners = owners_of(changed)
    assert owners["three"] == {"f:data": {"f:c": {}}} and owners["two"] == {"f:data": {"f:a": {}}}

    where, planted = f"{SECRETS}/owned", "planted-by-an-apply"
    secret = {"kind": "Secret", "stringData": {"k": planted}}
    made = applied(where, "one", secret)
    assert made.status == 201 and made.json["data"] == {"k": ""}
    assert applied(where, "one", secret).json["metadata"] == made.json["metadata"]
    assert refused(applied(where, "two", {"kind": "Secret", "stringData": {"k": "other"}})) == (409, "Conflict")
    shared = applied(where, "two", secret).json
    assert owners_of(shared)["two"] == owners_of(shared)["one"], "an equal value is no conflict"
    kept = applied(where, "three", {"kind": "Secret", "data": {"k": ""}}).json
    assert set(owners_of(kept)) == {"one", "two", "three"}, "what is given back empty is the value that is kept"
    assert planted not in json.dumps([made.json, shared, api("GET", SECRETS).json])

    place = "/api/v1/namespaces/owned"
    space: dict[str, Any] = {"kind": "Namespace", "metadata": {"labels": {"team": "one"}}}
    assert "one" in owners_of(applied(place, "one", space).json)
    space["metadata"]["labels"]["team"] = "two"
    assert refused(applied(place, "two", space)) == (409, "Conflict")
    forced = applied(place, "two", space, "&force=true").json
    assert forced["metadata"]["labels"] == {"team": "two", "kubernetes.io/metadata.name": "owned"}
    assert owners_of(forced) == {"two": {"f:metadata": {"f:labels": {"f:team": {}}}}}


def test_a_watch_of_namespaces_tells_of_those_that_the_token_sees(server: Server, api: Api) -> None:
    """From a version on, a watch told the names, labels and annotations of all others as they changed."""
    made = api("POST", "/api/v1/tokens", {"name": "seer", "role": "viewer", "namespaces": ["seen"]})
    viewer, place = Api(server.url, made.json["token"]), "/api/v1/namespaces"
    begin = viewer("GET", place).json["metadata"]["resourceVersion"]
    versions = {}
    for name in ("hidden", "seen"):
        body = {"metadata": {"name": name, "annotations": {"note": f"about {name}"}}}
        versions[name] = created(api, place, body)["metadata"]["resourceVersion"]
    assert api("DELETE", f"{place}/hidden").status == 200
    created(api, place, {"metadata": {"name": "hidden"}})
    with closing(watch(viewer, f"{place}?watch=true&resourceVersion={begin}&timeoutSeconds=1")) as events:
        assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("ADDED", "seen")]
    hidden = f"{place}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name=hidden&resourceVersion="
    for version in (begin, versions["hidden"], "0"):
        with closing(watch(viewer, f"{hidden}{version}")) as events:
            assert [event["object"].get("reason") for event in events] in ([], ["Expired"])


def test_an_idempotency_key_of_a_dry_run_is_not_one_of_the_act(api: Api) -> None:
    """The parameters of the address were not compared: the act was answered as done, and was not."""
    body = {"metadata": {"name": "tried"}, "data": {"k": "v"}}
    assert api("POST", f"{CONFIG_MAPS}?dryRun=All", body, Idempotency_Key="tried").status == 201
    assert refused(api("POST", CONFIG_MAPS, body, Idempotency_Key="tried")) == (409, "Conflict")
    assert api("POST", CONFIG_MAPS, body, Idempotency_Key="tried-2").status == 201


def test_every_write_of_an_entry_says_who_has_set_its_fields(server: Server, api: Api) -> None:
    """SRV-079: also one that does not come through this API; watches tell it as well; StoryTriggers have managers."""
    body = {"apiVersion": "bubustack.io/v1alpha1", "kind": "Story", **story("ours")}
    server.commands("apply", "-f", "-", stdin=json.dumps(body))
    seen = api("GET", f"{STORIES}/ours").json
    assert owners_of(seen) == {"perdure": {"f:spec": {"f:steps": {}}}}
    assert seen["metadata"]["managedFields"][0]["operation"] == "Update"
    theirs = {**body, "spec": {"steps": [{**GATE, "with": {"timeout": "1h"}}]}}
    refusal = applied_as("theirs", api, f"{STORIES}/ours", theirs)
    assert refused(refusal) == (409, "Conflict") and 'conflicts with "perdure"' in refusal.json["message"]
    with closing(watch(api, f"{STORIES}?watch=true&fieldSelector=metadata.name=ours&timeoutSeconds=20")) as events:
        assert next(events)["type"] == "ADDED"
        taken = applied_as("theirs", api, f"{STORIES}/ours", theirs, "&force=true").json
        shown = next(events)["object"]
    assert owners_of(taken) == owners_of(shown) == {"theirs": {"f:spec": {"f:steps": {}}}}
    server.commands("apply", "-f", "-", stdin=json.dumps(body))
    assert set(owners_of(api("GET", f"{STORIES}/ours").json)) == {"perdure"}

    triggers = "/apis/runs.bubustack.io/v1alpha1/namespaces/default/storytriggers"
    request = {"spec": {"storyRef": {"name": "ours"}, "deliveryIdentity": {"submissionId": "one"}}}
    named = {"metadata": {"name": "ours-trigger-0e7fbbdde19114c5"}, **request}
    made = created(api, f"{triggers}?fieldManager=curl", named)
    spec = owners_of(made)["curl"]["f:spec"]
    assert spec == {"f:storyRef": {"f:name": {}}, "f:deliveryIdentity": {"f:submissionId": {}}}


def test_openapi_describes_each_operation_that_apply_looks_for(api: Api) -> None:
    """SRV-061: a PATCH operation with its kind, and the parameters dryRun and fieldValidation."""
    pages = api("GET", "/openapi/v3").json["paths"]
    page = api("GET", pages["apis/bubustack.io/v1alpha1"]["serverRelativeURL"]).json
    operation = page["paths"]["/apis/bubustack.io/v1alpha1/namespaces/{namespace}/stories/{name}"]["patch"]
    assert operation["x-kubernetes-group-version-kind"] == {
        "group": "bubustack.io",
        "version": "v1alpha1",
        "kind": "Story",
    }
    assert {"dryRun", "fieldValidation"} <= {parameter["name"] for parameter in operation["parameters"]}
    assert api("GET", "/openapi/v2").json["swagger"] == "2.0"
    protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    assert refused(api("GET", "/openapi/v2", Accept=protobuf)) == (406, "NotAcceptable")


def test_events_are_listed_by_page(api: Api) -> None:
    names = [f"told-{number}" for number in range(2)]
    created(api, STORIES, story("told"))
    for name in names:
        created(api, RUNS, {"metadata": {"name": name}, "spec": {"storyRef": {"name": "told"}}})
    events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind%3DStoryRun"
    everything = [item["metadata"]["uid"] for item in api("GET", events).json["items"]]
    pages: list[str] = []
    place = ""
    while True:
        page = api("GET", f"{events}&limit=2{place}").json
        pages += [item["metadata"]["uid"] for item in page["items"]]
        assert len(page["items"]) <= 2
        if "continue" not in page["metadata"]:
            break
        place = f"&continue={page['metadata']['continue']}"
    assert len(pages) >= 4 and len(set(pages)) == len(pages) and set(everything) <= set(pages)


def test_labels_and_annotations_are_texts(api: Api) -> None:
    for metadata in ({"labels": ["a"]}, {"labels": {"a": {"b": "c"}}}, {"annotations": "x"}):
        assert refused(api("POST", CONFIG_MAPS, {"metadata": {"name": "odd", **metadata}})) == (422, "Invalid")
