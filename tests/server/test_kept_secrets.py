"""Tasks in the server's process are given Secrets and ConfigMaps of their namespace (SRV-077, STY-220)."""

import base64
import json
import re
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from perdure.server.routes import ROUTES
from tests.server.serving import Api, Reply, Server
from tests.server.test_impulses import SIGNED, TEMPLATE, impulse, send, signature

ENGRAMS = """
import hashlib
import perdure

def reveal(inputs, context):
    secret = context.secrets["login"]["password"]
    context.log("info", "the password is " + secret)
    print("printed", inputs["own"])
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in (secret, inputs["own"])]
    return {"digests": digests, "said": [secret, inputs["own"]], "limits": inputs.get("limits")}

def refuse(inputs, context):
    print("printed", inputs["own"])
    raise RuntimeError("refused with " + context.secrets["login"]["password"] + " and " + inputs["own"])

perdure.engram("reveal", secrets={"login": {}})(reveal)
perdure.engram("refuse", secrets={"login": {}})(refuse)
perdure.engram("reveal-apart", isolated=True, secrets={"login": {}})(reveal)
"""
SECOND = "planted-in-the-second-place"
PLANTED = {SECOND, "planted-in-default", "planted-in-shop", "planted-for-signatures"}
"""And what tests add: no line of the server tells of it."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("kept")
    (folder / "engrams.py").write_text(ENGRAMS)
    key = folder / "key"
    key.write_text(base64.b64encode(bytes(range(32))).decode())
    key.chmod(0o600)
    running = Server.start(folder, "--load", "engrams.py", PERDURE_SECRETS_KEY_FILE=str(key))
    try:
        yield running
        running.stop()
        lines = "".join(running.process.heard)
        assert "listening on" in lines and not [text for text in PLANTED if text in lines], "what it has logged"
    finally:
        running.commands.end_all()


def apply(api: Api, group: str, plural: str, namespace: str, body: dict[str, Any]) -> Any:
    reply = api("POST", f"/{group}/namespaces/{namespace}/{plural}", body)
    assert reply.status == 201, reply.text
    return reply.json


def story(engram: str) -> dict[str, Any]:
    arguments = {
        "own": {"$bubuSecretRef": "mail:password"},
        "limits": {"$bubuConfigMapRef": {"name": "app", "key": "limits.json", "format": "json"}},
    }
    step = {"name": "s", "ref": {"name": engram}, "with": arguments, "secrets": {"login": "mail"}}
    return {"metadata": {"name": engram}, "spec": {"steps": [step], "output": {"all": "{{ steps.s.output }}"}}}


def output(api: Api, namespace: str, engram: str) -> tuple[str, Any]:
    """The name of a new run, and what it ends with."""
    body = {"metadata": {"generateName": "run-"}, "spec": {"storyRef": {"name": engram}}}
    run = apply(api, "apis/runs.bubustack.io/v1alpha1", "storyruns", namespace, body)["metadata"]
    result = api("GET", f"/api/v1/runs/{run['uid']}/result?wait=60").json
    assert result["status"] == "succeeded", result
    return str(run["uid"]), result["value"]["all"]


def digests(text: str) -> list[str]:
    return [sha256(text.encode()).hexdigest()] * 2


def test_tasks_have_the_secrets_of_their_namespace_and_nobody_is_told(server: Server) -> None:
    api, planted = server.admin, {"default": "planted-in-default", "shop": "planted-in-shop"}
    runs, texts = [], []
    for namespace, value in planted.items():
        core = "api/v1"
        apply(api, core, "secrets", namespace, {"metadata": {"name": "mail"}, "stringData": {"password": value}})
        limits = {"limits.json": json.dumps({"of": namespace})}
        apply(api, core, "configmaps", namespace, {"metadata": {"name": "app"}, "data": limits})
        for engram in ("reveal", "reveal-apart"):
            apply(api, "apis/bubustack.io/v1alpha1", "stories", namespace, story(engram))
            run, shown = output(api, namespace, engram)
            assert shown["digests"] == digests(value) and shown["limits"] == {"of": namespace}, shown
            runs.append(run)
    changed = api(
        "PATCH",
        "/api/v1/namespaces/shop/secrets/mail",
        {"stringData": {"password": SECOND}},
        Content_Type="application/merge-patch+json",
    )
    assert changed.status == 200, changed.text
    last, shown = output(api, "shop", "reveal")
    assert shown["digests"] == digests(SECOND)

    for run in [*runs, last]:
        texts += [api("GET", f"/api/v1/runs/{run}{part}").text for part in ("", "/events", "/events?raw=true", "/logs")]
    texts.append(api("GET", "/api/v1/events", Accept="application/json").text)
    folder = server.commands.folder
    texts += [path.read_bytes() for path in folder.glob("perdure.db*") if path.is_file()]
    assert any(b"the password is" in text for text in texts)
    for value in (*planted.values(), SECOND):
        for form in (value.encode(), base64.b64encode(value.encode())):
            assert not [text for text in texts if form in text]


def every_answer(api: Api, run: str, **names: str) -> Iterator[tuple[str, Reply]]:
    """Of each operation that reads, asked about one run and what belongs to it, as often as it has forms."""
    fitting = {"id": run, "type": "Playbook", "version": "1", "step": "s", "digest": "00" * 32, "path": "x", **names}
    asked = {"namespace": names["namespace"], "run": run, "what": names["kind"], "name": names["name"]}
    asked |= {"execution_id": run, "expression": "x", "all_namespaces": "true"}
    for route in ROUTES:
        if route.method != "GET" or route.path == "/api/v1/worker/stream":
            continue
        path = re.sub(r"\{(\w+)\+?\}", lambda match: fitting.get(match[1], "x"), route.path)
        yield path, api("GET", path)
        known = {field.name for field in msgspec.structs.fields(route.query)} if route.query is not None else set()
        more = {name: value for name, value in asked.items() if name in known} | (
            {"raw": "true"} if "raw" in known else {}
        )
        if more:
            yield path, api("GET", f"{path}?{urlencode(more)}")
    for accept in ("text/event-stream", "application/json"):
        with closing(api.follow(f"/api/v1/runs/{run}/events", Accept=accept)) as stream:
            yield accept, Reply(stream.response.status, {}, stream.response.read())


def test_no_token_key_or_secret_is_in_any_answer_metric_or_line_of_the_server(server: Server) -> None:
    """SRV-027: planted ones, of a run that tells its own in every way it can, and of one that fails with it."""
    api, value = server.admin, "planted-for-every-route"
    apply(api, "api/v1", "secrets", "told", {"metadata": {"name": "mail"}, "stringData": {"password": value}})
    limits = {"metadata": {"name": "app"}, "data": {"limits.json": "{}"}}
    apply(api, "api/v1", "configmaps", "told", limits)
    credential = {"name": "db", "type": "postgres", "data": {"db_password": value}}
    assert api("POST", "/api/credentials", credential).status < 300
    runs = {}
    for engram in ("reveal", "refuse"):
        apply(api, "apis/bubustack.io/v1alpha1", "stories", "told", story(engram))
        body = {"metadata": {"generateName": "run-"}, "spec": {"storyRef": {"name": engram}}}
        runs[engram] = apply(api, "apis/runs.bubustack.io/v1alpha1", "storyruns", "told", body)["metadata"]["uid"]
        assert api("GET", f"/api/v1/runs/{runs[engram]}/result?wait=60").status == 200
    viewer, wrong = server.role("viewer"), Api(server.url, "planted-wrong-token")
    assert viewer("GET", "/api/v1/whoami").status == 200 and wrong("GET", "/api/v1/whoami").status == 401
    assert api.token is not None and viewer.token is not None and wrong.token is not None
    planted = [value, base64.b64encode(value.encode()).decode(), api.token, viewer.token, wrong.token]
    planted.append(base64.b64encode(bytes(range(32))).decode())
    PLANTED.update(planted)

    texts: list[bytes] = []
    answered = 0
    for engram, run in runs.items():
        for path, reply in every_answer(api, run, kind="stories", namespace="told", name=engram):
            assert not [text for text in planted if text.encode() in reply.text], (path, reply.text)
            assert reply.status != 500, (path, reply.text)
            texts.append(reply.text)
            answered += reply.status == 200
    assert answered > 100, "operations about two runs"
    for what in ("storyruns", "stepruns", "effectclaims"):
        path = f"/apis/runs.bubustack.io/v1alpha1/namespaces/told/{what}"
        texts += [api("GET", path).text, api("GET", path, Accept="application/json;as=Table").text]
    core = "/api/v1/namespaces/told"
    texts += [api("GET", f"{core}/{what}").text for what in ("secrets", "secrets/mail", "events", "configmaps")]
    texts += [path.read_bytes() for path in server.commands.folder.glob("perdure.db*") if path.is_file()]
    assert any(b"refused with" in text for text in texts) and any(b"the password is" in text for text in texts)
    for text in planted:
        assert not [answer for answer in texts if text.encode() in answer]


def test_a_secret_that_is_missing_is_named(server: Server) -> None:
    api = server.admin
    apply(api, "apis/bubustack.io/v1alpha1", "stories", "empty", story("reveal"))
    body = {"metadata": {"name": "none"}, "spec": {"storyRef": {"name": "reveal"}}}
    run = apply(api, "apis/runs.bubustack.io/v1alpha1", "storyruns", "empty", body)["metadata"]["uid"]
    result = api("GET", f"/api/v1/runs/{run}/result?wait=60").json
    assert result["status"] == "failed" and "there is no such ConfigMap" in json.dumps(result), result
    apply(api, "api/v1", "configmaps", "empty", {"metadata": {"name": "app"}, "data": {"limits.json": "{}"}})
    run = apply(api, "apis/runs.bubustack.io/v1alpha1", "storyruns", "empty", {**body, "metadata": {"name": "one"}})[
        "metadata"
    ]["uid"]
    result = api("GET", f"/api/v1/runs/{run}/result?wait=60").json
    assert "as a Secret of the run's namespace" in json.dumps(result), result


def test_events_are_signed_with_a_secret_of_their_namespace(server: Server) -> None:
    """SRV-040."""
    api, secret = server.admin, "planted-for-signatures"
    apply(api, "api/v1", "secrets", "default", {"metadata": {"name": "hub"}, "stringData": {"token": secret}})
    signed = impulse("signed", storyRef={"name": "greets"}, deliveryPolicy=SIGNED)
    greets = {"metadata": {"name": "greets"}, "spec": {"steps": [{"name": "ok", "type": "gate"}]}}
    apply(api, "apis/bubustack.io/v1alpha1", "stories", "default", greets)
    applied = api("POST", "/api/v1/resources:apply", {"documents": [TEMPLATE, signed]})
    assert applied.status == 200, applied.text
    assert send(server.nobody, "signed", {"n": 1}, **signature({"n": 1}, secret)).status == 202
    assert send(server.nobody, "signed", {"n": 2}, **signature({"n": 2}, "wrong")).status == 401
