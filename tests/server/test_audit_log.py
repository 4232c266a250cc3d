"""An act, its audit record and its Idempotency-Key are one transaction (SRV-012, SRV-026)."""

import http.client
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from perdure.server.limits import Rates, RequestLimits
from perdure.views.api_errors import TooManyRequests
from tests.cli.commandline import CommandLine
from tests.dialects.story.world import engram, template
from tests.postgres import as_url
from tests.server.serving import RETURNS, WAITS, Api, Reply, Server

# Loaded into a server: it kills itself at the next commit that records an act, before or after its sync.
CRASH = """
import os, signal
from pathlib import Path
from perdure.stores.sqlite.store import SqliteStore

real, when = SqliteStore._commit, Path(__file__).with_name("when")

def commit(store):
    wanted, verb = when.read_text().split() if when.exists() else ("", "")
    acts = "SELECT count(*) FROM audit WHERE seal IS NULL AND CAST(body AS TEXT) LIKE ?"
    is_act = wanted and store._connection.execute(acts, (f'%"verb":"{verb}","outcome":"ok"%',)).get
    if is_act and wanted == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    real(store)
    if is_act and wanted == "after":
        os.kill(os.getpid(), signal.SIGKILL)

SqliteStore._commit = commit
"""


def records(api: Api, verb: str) -> list[Any]:
    return [entry for entry in api("GET", "/api/v1/audit?limit=1000").json["items"] if entry["verb"] == verb]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_server_leaves_an_act_with_its_record_and_its_key_or_nothing(tmp_path: Path, when: str) -> None:
    """SRV-012, SRV-026: kill -9 on either side of the commit; the same request again finds the act, or makes it."""
    (tmp_path / "crash.py").write_text(CRASH)
    server = Server.start(tmp_path, "--load", "./crash.py")
    try:
        run = server.admin.start(WAITS)
        acts: list[tuple[str, str, Any]] = [
            ("start_run", "/api/v1/runs", {"document": RETURNS}),
            ("cancel_run", f"/api/v1/runs/{run}/cancel", {"reason": "enough"}),
            ("apply_resources", "/api/v1/resources:apply", {"documents": [template("kept"), engram("kept")]}),
            ("create_access_token", "/api/v1/tokens", {"name": "ada", "role": "viewer"}),
        ]
        for verb, path, body in acts:
            count = len(records(server.admin, verb))
            (tmp_path / "when").write_text(f"{when} {verb}")
            with pytest.raises((http.client.HTTPException, OSError)):
                server.admin("POST", path, body, Idempotency_Key=f"once-{verb}")
            assert server.process.end().code == -signal.SIGKILL
            (tmp_path / "when").unlink()
            server = Server.start(tmp_path, "--load", "./crash.py")

            is_done = when == "after"
            assert len(records(server.admin, verb)) == count + is_done
            assert _is_made(server.admin, verb, run) == is_done

            again = server.admin("POST", path, body, Idempotency_Key=f"once-{verb}")
            assert _is_accepted(again, verb, is_repeated=is_done), again.text
            other = server.admin(
                "POST",
                path,
                {**body, "name": "other"} if verb == "create_access_token" else {},
                Idempotency_Key=f"once-{verb}",
            )
            assert other.status in (400, 409), other.text
            assert _is_made(server.admin, verb, run)
            # A start is kept by its run, and asked for again it is answered, and recorded, as one that changed nothing.
            most = count + 1 + (verb == "start_run" and is_done)
            assert count + 1 <= len(records(server.admin, verb)) <= most
        server.stop()
    finally:
        server.commands.end_all()


def _is_made(api: Api, verb: str, run: str) -> bool:
    match verb:
        case "start_run":
            return len(api("GET", "/api/v1/runs?name=returns").json["items"]) == 1
        case "cancel_run":
            status: str = api("GET", f"/api/v1/runs/{run}").json["status"]
            return status == "cancelled"
        case "apply_resources":
            return api("GET", "/api/v1/resources/engrams/default/kept").status == 200
        case _:
            return any(token["name"] == "ada" for token in api("GET", "/api/v1/tokens").json["items"])


def _is_accepted(reply: Reply, verb: str, *, is_repeated: bool) -> bool:
    if verb == "create_access_token" and is_repeated:
        return reply.status == 409  # a token is told once
    return reply.status in (200, 201, 202)


def test_commands_on_the_store_are_recorded_once_it_has_an_audit_log(tmp_path: Path) -> None:
    """SRV-026: `via: store`, in the transaction of the command."""
    perdure = CommandLine(tmp_path)
    (tmp_path / "waits.json").write_text(json.dumps(WAITS))
    (tmp_path / "kept.yaml").write_text(f"{json.dumps(template('kept'))}\n---\n{json.dumps(engram('kept'))}")
    run = perdure("run", "waits.json", "--detach", "--json").json["id"]
    assert perdure("audit", "list", "--json").json == []

    perdure("token", "create", "--name", "ada", "--role", "viewer")
    perdure("apply", "-f", "kept.yaml")
    perdure("cancel", run)
    perdure("cancel", "nobody", code=8)
    perdure("prune", "--older-than", "1d")
    recorded = perdure("audit", "list", "--json").json
    assert [(entry["who"]["via"], entry["verb"], entry["object"]) for entry in recorded] == [
        ("store", "cancel_run", f"run/{run}"),
        ("store", "apply_resources", "engramtemplate.catalog.bubustack.io/kept, engram.bubustack.io/kept"),
        ("store", "create_access_token", "token/ada"),
    ]
    assert recorded[0]["run"] == run
    perdure("resume", run, code=4)
    events = perdure("history", run, "--json").json
    perdure("prune", "--older-than", "0s")
    assert perdure("audit", "list", "--json").json[0]["verb"] == "prune_runs", "it has removed something"
    (cancelled,) = [event for event in events if event["event"] == "CancelRequested"]
    assert cancelled["who"]["via"] == "store", "SRV-082"


def test_what_an_owner_has_not_decided_is_pending_on_every_server(tmp_path: Path, postgres_url: str) -> None:
    """SRV-072: 202 after some seconds, and the message is shown until it is decided."""
    url, env = as_url(postgres_url), {"XDG_STATE_HOME": str(tmp_path / "state")}
    owner = Server.start(tmp_path, "--db", url, "--lease", "120s", **env)
    (file,) = (tmp_path / "state" / "perdure").glob("*/admin-token")
    other = Server.start(tmp_path, "--db", url, "--lease", "120s", **env)
    try:
        api = Api(other.url, file.read_text().strip())
        deadline = time.monotonic() + 120
        while {server["partitions"] for server in api("GET", "/api/v1/servers").json["items"]} != {32}:
            assert time.monotonic() < deadline, "the partitions are not shared"
            time.sleep(0.2)
        run = Api(owner.url, api.token).start(WAITS)
        owner.process.send(signal.SIGSTOP)
        sent = api("POST", f"/api/v1/runs/{run}/signals/go", {"value": 1, "by": "Bob"})
        assert (sent.status, sent.json["pending"]) == (202, True), sent.text
        assert len(api("GET", f"/api/v1/runs/{run}").json["pending"]) == 1
        owner.process.send(signal.SIGCONT)
        assert api.result(run)["value"] == 1
        assert api("GET", f"/api/v1/runs/{run}").json["pending"] == []
        (operation, _) = api("GET", f"/api/v1/runs/{run}/operations").json["items"]
        assert (operation["verb"], operation["who"]["name"], operation["givenBy"]) == ("signal_run", "admin", "Bob")
        other.stop()
        owner.stop()
    finally:
        owner.commands.end_all()
        other.commands.end_all()


def test_a_pause_is_as_long_as_a_rate_needs() -> None:
    """SRV-015: `Retry-After` is whole seconds, at least one."""
    waits = []
    for rate in (5_000.0, 0.25, 0.000_001):
        rates = Rates(RequestLimits(rate=rate, burst=1))
        rates.take("ada")
        with pytest.raises(TooManyRequests) as refusal:
            for _ in range(100):
                rates.take("ada")
        waits.append(refusal.value.retry_after)
    assert waits == [1, 4, 3_600]


def test_a_redrive_under_a_key_is_done_once_whether_its_run_has_ended_or_is_open_again(server: Server) -> None:
    """SRV-012: the same key and body, the same answer, before and after the end of the run; other content is 409."""
    admin = server.admin
    run = admin.start(WAITS)
    path = f"/api/v1/runs/{run}/redrive"
    admin("POST", f"/api/v1/runs/{run}/cancel", {})
    assert admin.result(run)["status"] == "cancelled"
    first = admin("POST", path, {}, Idempotency_Key="again")
    repeated = [admin("POST", path, {}, Idempotency_Key="again") for _ in range(2)]
    assert [reply.status for reply in (first, *repeated)] == [200, 200, 200], repeated[0].text
    assert admin("POST", path, {"from": "x"}, Idempotency_Key="again").problem == (409, "CONFLICT")
    admin("POST", f"/api/v1/runs/{run}/signals/go", {"value": 1})
    assert admin.result(run)["value"] == 1
    assert admin("POST", path, {}, Idempotency_Key="again").status == 200
    assert admin("GET", f"/api/v1/runs/{run}").json["status"] == "succeeded", "it was not opened a second time"


def test_a_fork_takes_a_newer_document_where_a_run_failed(server: Server) -> None:
    """SRV-050: `fork --at-failure --document` through a server; a document is an author's."""
    flow, call = "https://mwl.dev/v0.1/flow/schema.json", "mwl:provider.call/perdure"
    closed = {"provider": f"{call}/http/v1", "with": {"url": "http://127.0.0.1:9/"}}

    def document(target: object) -> dict[str, Any]:
        work = {"action": "Call", "call": target, "next": "end"}
        return {"$schema": flow, "entrypoint": "work", "steps": {"work": work, "end": {"action": "Return"}}}

    run = server.admin.start(document(closed))
    assert server.admin.result(run)["status"] == "failed"
    newer = document({"provider": f"{call}/echo/v1", "with": {"value": 17}})
    body = {"at_failure": True, "document": newer}
    path = f"/api/v1/runs/{run}/fork"
    assert server.role("operator")("POST", path, body).problem == (403, "ACCESS-DENIED")
    assert server.admin("POST", path, {"document": newer}).problem == (400, "USAGE")
    forked = server.admin("POST", path, body)
    assert forked.status == 201, forked.text
    assert server.admin.result(forked.json["id"])["value"] == 17
