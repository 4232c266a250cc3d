"""Secrets that the store keeps go to workers elsewhere only as the operator says (SRV-073)."""

import base64
import json
import signal
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Api, Server
from tests.server.test_kept_secrets import apply
from tests.server.test_worker_processes import calls, token_file, wait_for_log

MAIL, OTHER, PARTNER = "planted-mail-password", "planted-other-password", "planted-partner-token"
PLANTED = (MAIL, OTHER, PARTNER)
SETTINGS = """
[pools.gpu]
secrets = "send"

[pools.plain]
secrets = "keep"
"""
CODE = '''
import hashlib
import perdure

@perdure.provider("sign")
def sign(token: str, context) -> dict:
    """Tells its secret in every way it can."""
    print("signing with", token)
    context.log("info", "logged " + token, token=token)
    return {"digest": hashlib.sha256(token.encode()).hexdigest(), "said": token}

@perdure.engram("reveal", version="1.0.0", secrets={"login": {}})
def reveal(inputs, context):
    told = [context.secrets["login"]["password"], inputs["own"]]
    print("told", *told)
    return {"digests": [hashlib.sha256(text.encode()).hexdigest() for text in told], "said": told}
'''
ENGRAM = """
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: reveal, annotations: {perdure.dev/pool: gpu}}
spec: {templateRef: {name: reveal}}
---
apiVersion: catalog.bubustack.io/v1alpha1
kind: EngramTemplate
metadata: {name: reveal}
spec: {version: 1.0.0, image: "example.org/reveal:1", supportedModes: [job], secretSchema: {login: {}}}
---
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: tells}
spec:
  steps:
    - name: s
      ref: {name: reveal}
      secrets: {login: mail}
      with: {own: {$bubuSecretRef: "mail:password"}}
  output: {all: "{{ steps.s.output }}"}
"""
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: signs, path: signs}
executor: {spec: {pool: gpu}}
keychain: [{name: shop, kind: bearer, ref: partner_api}]
workflow:
  - step: sign
    tool: {kind: sign, token: "{{ keychain.shop.token }}"}
"""


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sent")
    key = folder / "key"
    key.write_text(base64.b64encode(bytes(range(32))).decode())
    key.chmod(0o600)
    (folder / "settings.toml").write_text(SETTINGS)
    (folder / "code.py").write_text(CODE)
    (folder / "story.yaml").write_text(ENGRAM)
    routes = ("--route", "sign=gpu", "--route", "stamp=plain", "--route", "tell=gpu")
    words = ("--config", "settings.toml", "--apply", "story.yaml", *routes)
    running = Server.start(folder, *words, PERDURE_SECRETS_KEY_FILE=str(key))
    try:
        for name, value in (("mail", MAIL), ("other", OTHER)):
            secret = {"metadata": {"name": name}, "stringData": {"password": value}}
            apply(running.admin, "api/v1", "secrets", "default", secret)
        credential = {"name": "partner_api", "type": "bearer", "data": {"token": PARTNER}}
        assert running.admin("POST", "/api/credentials", credential).status < 300
        yield running
        running.stop()
        output = "".join(running.process.heard).encode()
        output += b"".join(path.read_bytes() for path in folder.glob("perdure.db*") if path.is_file())
        assert b"listening on" in output and not [text for text in PLANTED if text.encode() in output]
    finally:
        running.commands.end_all()


def everything_about(api: Api, run: str) -> bytes:
    parts = ("", "/events?limit=1000", "/events?raw=true", "/logs", "/steps", "/result", "/picture", "/effects")
    return b"".join(api("GET", f"/api/v1/runs/{run}{part}").text for part in parts)


def sendings(api: Api, run: str) -> list[str]:
    rows = api("GET", f"/api/v1/runs/{run}/operations").json["items"]
    return [row["object"] for row in rows if row["verb"] == "send_task_secrets"]


def test_tasks_of_every_language_get_what_they_name_and_tell_nobody(server: Server) -> None:
    api = server.admin
    server.role("worker", pools=["gpu", "plain"])
    words = ("worker", "--server", server.url, "--token", token_file(server), "--load", "./code.py")
    worker = server.commands.start(*words)
    flow = api.start(calls("sign", token={"$secret": "mail/password"}))
    playbook = api.start(PLAYBOOK)
    story = api("POST", "/api/v1/runs", {"name": "tells"}).json["id"]

    assert api.result(flow)["value"]["digest"] == digest(MAIL)
    assert api.result(playbook)["status"] == "succeeded"
    assert digest(PARTNER).encode() in everything_about(api, playbook)
    assert api.result(story)["value"]["all"]["digests"] == [digest(MAIL)] * 2
    assert sendings(api, flow) == ["secrets/mail/password"]
    assert "secrets/credential:partner_api" in sendings(api, playbook)
    assert sendings(api, story) == ["secrets/mail/password"]
    worker.send(signal.SIGTERM)
    worker.end()
    output = b"".join(everything_about(api, run) for run in (flow, playbook, story))
    output += api("GET", "/api/v1/audit?limit=1000").text + "".join(worker.heard).encode()
    assert b"[redacted]" in output and not [text for text in PLANTED if text.encode() in output]
    assert b"the-worker" in api("GET", f"/api/v1/runs/{flow}/operations").text


class Hand:
    """A worker of a stranger, which hides nothing."""

    def __init__(self, server: Server) -> None:
        self.api = server.role("worker", pools=["gpu", "plain"])

    def take(self, pool: str = "gpu") -> dict[str, Any]:
        body = {"worker": "hand", "pools": [pool], "opens": ["flow"], "wait": 20}
        (task,) = self.api("POST", "/api/v1/worker/lease", body).json["tasks"]
        return dict(task)

    def __call__(self, task: dict[str, Any], path: str, body: Any = None, method: str = "POST", **more: Any) -> Any:
        return self.api(method, f"/api/v1/worker/tasks/{task['lease']}/{path}", body, **more)


def test_only_the_task_of_the_lease_gets_its_own_and_what_comes_back_is_masked(server: Server) -> None:
    api, hand = server.admin, Hand(server)
    document = calls("tell", token={"$secret": "mail/password"})
    document["steps"]["go"]["next"] = "also"
    other = {"provider": "mwl:provider.call/perdure/tell/v1", "with": {"token": {"$secret": "other/password"}}}
    document["steps"]["also"] = {"action": "Call", "call": other, "next": "done"}
    run = api.start(document)
    task = hand.take()
    names = {"names": ["mail/password", "other/password", "credential:partner_api", "mail/*"]}

    assert task["sends_secrets"] and hand(task, "secrets", {"names": ["other/password"]}).json == {"secrets": {}}
    assert hand(task, "secrets", names, X_Forwarded_For="198.51.100.7").problem == (403, "ACCESS-DENIED")
    assert hand(task, "secrets", names).json == {"secrets": {"mail/password": MAIL}}
    encoded = base64.b64encode(MAIL.encode()).decode()
    hand(task, "log", {"message": f"the password is {MAIL}", "fields": {"also": MAIL}})
    hand(task, "report", {"body": {"half": MAIL}})
    assert hand(task, "effects/mail/claim", {}).json["state"] == "claimed"
    hand(task, "effects/mail/complete", {"result": {"sent": MAIL}})
    large = json.dumps(["x" * 100, MAIL]).encode()
    put = hand(task, f"values/{sha256(large).hexdigest()}", method="PUT", raw=large)
    assert put.status == 201 and put.json["$large"] != sha256(large).hexdigest()
    answer = {"output": {"said": MAIL, "encoded": encoded, "large": put.json}}
    assert [hand(task, "complete", answer).status for _ in range(2)] == [200, 200], "the same answer twice"
    assert hand(task, "secrets", names).status == 410
    second = hand.take()
    assert hand(second, "secrets", names).json == {"secrets": {"other/password": OTHER}}
    assert hand(second, "fail", {"code": "Told", "message": f"{OTHER} and {MAIL}", "details": [OTHER]}).status == 200
    assert api.result(run)["status"] == "failed"
    assert sendings(api, run) == ["secrets/other/password", "secrets/mail/password"]
    wait_for_log(server, run, "the password is")
    output = everything_about(api, run)
    assert b"the password is [redacted]" in output
    for text in (MAIL, OTHER, encoded):
        assert text.encode() not in output


def test_a_secret_whose_letters_a_worker_writes_as_codes_is_masked(server: Server) -> None:
    """Every reader of JSON sees the same letters."""
    api, hand = server.admin, Hand(server)
    run = api.start(calls("tell", token={"$secret": "mail/password"}))
    task = hand.take()
    assert hand(task, "secrets", {"names": ["mail/password"]}).status == 200
    coded = "".join(f"\\u{ord(letter):04x}" for letter in MAIL)
    answer = f'{{"output": {{"said": "{coded}", "{coded}": [1, "<{coded}>"]}}}}'
    assert hand(task, "complete", raw=answer.encode()).status == 200
    assert api.result(run)["value"] == {"said": "[redacted]", "[redacted]": [1, "<[redacted]>"]}
    output = everything_about(api, run)
    assert MAIL.encode() not in output and coded.encode() not in output


def test_a_pool_that_is_not_named_is_sent_nothing(server: Server) -> None:
    api, hand = server.admin, Hand(server)
    run = api.start(calls("stamp", token={"$secret": "mail/password"}))
    task = hand.take("plain")

    assert not task["sends_secrets"]
    assert hand(task, "secrets", {"names": ["mail/password"]}).problem == (403, "ACCESS-DENIED")
    assert hand(task, "fail", {"code": "Missing"}).status == 200
    assert api.result(run)["status"] == "failed" and sendings(api, run) == []


def test_a_wrong_word_in_the_settings_is_told(tmp_path: Path) -> None:
    from tests.cli.commandline import CommandLine

    (tmp_path / "settings.toml").write_text('[pools.gpu]\nsecrets = "yes"\n')
    done = CommandLine(tmp_path)("serve", "--listen", "127.0.0.1:0", "--config", "settings.toml", code=None)

    assert done.code == 1 and "pools[...].secrets" in done.err
