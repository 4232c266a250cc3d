"""An act, its audit record and its Idempotency-Key are one transaction (SRV-012, SRV-026)."""

import http.client
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commandline import CommandLine
from tests.dialects.story.world import engram, template
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
    return [one for one in api("GET", "/api/v1/audit?limit=1000").json["items"] if one["verb"] == verb]


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
    recorded = perdure("audit", "list", "--json").json
    assert [(one["who"]["via"], one["verb"], one["object"]) for one in recorded] == [
        ("store", "cancel_run", f"run/{run}"),
        ("store", "apply_resources", "engramtemplate.catalog.bubustack.io/kept, engram.bubustack.io/kept"),
        ("store", "create_access_token", "token/ada"),
    ]
    assert recorded[0]["run"] == run
