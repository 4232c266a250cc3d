"""Tokens, roles and who one is (SRV-020, SRV-021, SRV-022, SRV-023, SRV-026, SRV-076)."""

import json
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.server.authentication import AccessTokens
from perdure.server.calls import Caller
from perdure.views.administration.access_tokens import AccessRole, create_token, revoke_token
from tests.cli.commandline import CommandLine
from tests.server.serving import RETURNS, WAITS, Api, Server


def test_the_first_start_makes_an_admin_token_that_only_its_user_can_read(server: Server) -> None:
    """SRV-021: not printed where nobody looks, and the store has no token in clear."""
    folder = server.commands.folder / "perdure.db-server"
    file = folder / "admin-token"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = file.read_text().strip()
    assert not any(token in line for line in server.process.heard)
    assert server.admin("GET", "/api/v1/whoami").json == {
        "name": "admin",
        "role": "admin",
        "namespaces": None,
        "pools": [],
        "expires_at": None,
        "via": "token",
    }
    for part in server.commands.folder.glob("perdure.db*"):
        if part.is_file():
            assert token.encode() not in part.read_bytes()


def test_a_second_start_makes_no_second_token(tmp_path: Path) -> None:
    first = Server.start(tmp_path)
    token = first.admin.token
    first.stop()
    second = Server.start(tmp_path)
    assert second.admin.token == token
    assert second.admin("GET", "/api/v1/whoami").status == 200
    second.stop()


READS = ["/api/v1/runs", "/api/v1/providers", "/api/v1/servers", "/api/v1/resources", "/version", "/openapi.json"]


def test_roles_allow_what_they_say(server: Server) -> None:
    """SRV-022: viewer reads, operator starts and steers, author sends documents, admin makes tokens, worker nothing."""
    run = server.admin.start(WAITS)
    roles = ("viewer", "operator", "author", "admin", "worker")
    callers = {role: server.admin if role == "admin" else server.role(role) for role in roles}
    allowed = {
        role: {
            "read": caller("GET", f"/api/v1/runs/{run}").status,
            "signal": caller("POST", f"/api/v1/runs/{run}/signals/other", {"value": 1}).status,
            "document": caller("POST", "/api/v1/runs", {"document": RETURNS}).status,
            "check": caller("POST", "/api/v1/check", {"document": RETURNS}).status,
            "tokens": caller("GET", "/api/v1/tokens").status,
            "audit": caller("GET", "/api/v1/audit").status,
        }
        for role, caller in callers.items()
    }
    assert allowed["viewer"] == {"read": 200, **dict.fromkeys(["signal", "document", "check", "tokens", "audit"], 403)}
    assert [allowed["operator"][verb] for verb in ("read", "signal", "document", "check")] == [200, 200, 403, 403]
    assert [allowed["author"][verb] for verb in ("read", "signal", "document", "check", "tokens")] == [
        *(200, 200, 202, 200, 403)
    ]
    assert set(allowed["admin"].values()) == {200, 202}
    assert set(allowed["worker"].values()) == {403}
    for path in READS:
        assert callers["viewer"]("GET", path).status == 200
        assert callers["worker"]("GET", path).status == 403
    assert callers["viewer"]("GET", f"/api/v1/audit?run={run}").status == 200


async def test_a_stream_lasts_as_long_as_its_token_allows_what_it_did(tmp_path: Path) -> None:
    """SRV-014, SRV-022: also a token of the same name that allows less ends it."""
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        tokens = AccessTokens(engine)
        await create_token(engine, "ada", AccessRole.OPERATOR, namespaces=["shop"], by="store")
        await tokens.read()
        caller = Caller("ada", AccessRole.OPERATOR, namespaces=("shop",))
        assert tokens.is_valid(caller)
        assert not tokens.is_valid(replace(caller, role=AccessRole.ADMIN))
        assert not tokens.is_valid(replace(caller, namespaces=None))
        assert not tokens.is_valid(replace(caller, name="bob"))
        await revoke_token(engine, "ada")
        await tokens.read()
        assert not tokens.is_valid(caller)


def test_a_revoked_token_is_refused_at_once(server: Server) -> None:
    """SRV-022."""
    made = server.admin("POST", "/api/v1/tokens", {"name": "leaving", "role": "viewer"}).json
    caller = Api(server.url, made["token"])
    assert caller("GET", "/api/v1/whoami").status == 200
    assert server.admin("DELETE", "/api/v1/tokens/leaving").json["revoked_at"]
    assert caller("GET", "/api/v1/whoami").problem == (401, "NOT-AUTHENTICATED")
    again = server.admin("POST", "/api/v1/tokens", {"name": "leaving", "role": "viewer"})
    assert again.problem == (409, "CONFLICT")
    assert server.admin("DELETE", "/api/v1/tokens/nobody").problem == (404, "TOKEN-NOT-FOUND")


def test_tokens_that_the_command_line_makes_and_revokes_count_within_a_second(server: Server) -> None:
    """SRV-021, SRV-022: on the store, for servers that run; an expiry ends a token too."""
    perdure = server.commands
    made = perdure("token", "create", "--name", "cli", "--role", "operator", "--json").json
    assert set(made) == {"name", "role", "namespaces", "pools", "expires_at", "token"}
    caller = Api(server.url, made["token"])
    assert caller("GET", "/api/v1/whoami").json["role"] == "operator"
    assert made["token"] not in perdure("token", "list").out
    perdure("token", "revoke", "cli")
    deadline = time.monotonic() + 60
    while caller("GET", "/api/v1/whoami").status == 200 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert caller("GET", "/api/v1/whoami").status in (401, 429)
    brief = perdure("token", "create", "--name", "brief", "--role", "viewer", "--expires", "1s", "--json").json
    assert brief["expires_at"]
    time.sleep(1.1)
    assert Api(server.url, brief["token"])("GET", "/api/v1/whoami").status in (401, 429)


def test_the_token_of_an_answer_is_told_once(server: Server) -> None:
    """SRV-012: `POST /tokens` again under its key is 409."""
    body = {"name": "once", "role": "viewer"}
    assert server.admin("POST", "/api/v1/tokens", body, Idempotency_Key="k1").status == 201
    assert server.admin("POST", "/api/v1/tokens", body, Idempotency_Key="k1").problem == (409, "CONFLICT")


def test_token_create_makes_the_store_and_bad_options_are_refused(tmp_path: Path) -> None:
    """SRV-021: `token create --db` makes the store if there is none."""
    perdure = CommandLine(tmp_path)
    assert perdure("token", "create", "--name", "a", "--role", "admin").out.startswith("pdr_")
    perdure("token", "create", "--name", "a", "--role", "admin", code=9)
    perdure("token", "create", "--name", "a b", "--role", "admin", code=2)
    perdure("token", "create", "--name", "w", "--role", "worker", code=2)
    perdure("token", "revoke", "nobody", code=8)
    assert [token["name"] for token in perdure("token", "list", "--json").json] == ["a"]
    server = Server.start(tmp_path)
    assert not (tmp_path / "perdure.db-server" / "admin-token").exists()
    server.stop()


def test_anonymous_requests_are_for_this_machine_only(tmp_path: Path) -> None:
    """SRV-021, SRV-076: not beyond loopback, and not through a proxy on this machine."""
    server = Server.start(tmp_path, "--anonymous", "operator")
    nobody = server.nobody
    assert nobody("GET", "/api/v1/whoami").json["via"] == "anonymous"
    assert nobody("POST", "/api/v1/runs", {"document": RETURNS}).problem == (403, "ACCESS-DENIED")
    for header in ("Forwarded", "X_Forwarded_For", "X_Forwarded_Proto", "X_Real_IP", "Via"):
        passed_on: dict[str, Any] = {header: "203.0.113.9"}
        assert nobody("GET", "/api/v1/whoami", **passed_on).problem == (401, "NOT-AUTHENTICATED")
    assert any("need no token" in line for line in server.process.heard)
    server.stop()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--listen", "0.0.0.0:0", "--anonymous", "viewer"), "loopback"),
        (("--listen", "0.0.0.0:0"), "without TLS"),
        (("--listen", "nonsense"), "not an address"),
        (("--tls", "missing.pem,missing.key"), "missing"),
    ],
)
def test_a_server_does_not_listen_where_it_must_not(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    """SRV-028, SRV-021."""
    listen = () if "--listen" in words else ("--listen", "127.0.0.1:0")
    done = CommandLine(tmp_path)("serve", *listen, *words, code=None)
    assert done.code in (1, 2) and message in done.err


def shell_playbook(kind: str = "shell") -> str:
    return (
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: p}\n"
        f"workflow:\n- step: start\n  tool: {{kind: {kind}, cmds: ['echo pwned > pwned']}}\n"
    )


TEMPLATE: dict[str, Any] = {
    "apiVersion": "catalog.bubustack.io/v1alpha1",
    "kind": "EngramTemplate",
    "metadata": {"name": "evil", "annotations": {"perdure/command": '["touch", "pwned"]'}},
    "spec": {"version": "1.0.0", "image": "x", "supportedModes": ["job"]},
}


def test_documents_through_the_api_may_not_bring_code(server: Server) -> None:
    """SRV-023: 403, code POLICY, with the place, for every role; also in what is applied and checked."""
    for caller in (server.admin, server.role("author")):
        started = caller("POST", "/api/v1/runs", {"document": shell_playbook()})
        assert started.problem == (403, "POLICY"), started.text
        assert started.json["problems"][0]["line"]
        applied = caller("POST", "/api/v1/resources:apply", {"documents": [TEMPLATE]})
        assert applied.problem == (403, "POLICY"), applied.text
        checked = caller("POST", "/api/v1/check", {"document": shell_playbook()}).json
        assert not checked["valid"] and checked["problems"][0]["code"] == "POLICY"
    assert not (server.commands.folder / "pwned").exists()


def test_an_engram_through_the_api_may_not_choose_a_command_of_the_operator(server: Server) -> None:
    """SRV-023: a Story of the operator would run it, with inputs that the author brings."""
    commands = server.commands
    (commands.folder / "tool.json").write_text(
        json.dumps({**TEMPLATE, "metadata": {**TEMPLATE["metadata"], "name": "tool"}})
    )
    commands("apply", "-f", "tool.json")
    engram = {
        "apiVersion": "bubustack.io/v1alpha1",
        "kind": "Engram",
        "metadata": {"name": "tool"},
        "spec": {"templateRef": {"name": "tool"}},
    }
    assert server.role("author")("POST", "/api/v1/resources:apply", {"documents": [engram]}).problem == (403, "POLICY")
    (commands.folder / "engram.json").write_text(json.dumps(engram))
    assert "created" in commands("apply", "-f", "engram.json").out, "the operator may"


def test_a_policy_can_allow_code_and_is_asked_again_when_a_task_begins(tmp_path: Path) -> None:
    """SRV-023: what came through the API is bound by the policy of the moment, what the operator applied is not."""
    (tmp_path / "settings.toml").write_text('[policy]\ncode = "allow"\n')
    server = Server.start(tmp_path, "--config", "settings.toml")
    checked = server.admin("POST", "/api/v1/check", {"document": shell_playbook()}).json
    assert [problem for problem in checked["problems"] if problem["code"] == "POLICY"] == []
    assert server.admin("POST", "/api/v1/resources:apply", {"documents": [shell_playbook()]}).status == 200
    calls = shell_playbook().replace("path: p", "path: calls").partition("workflow")[0]
    own = {"own": shell_playbook().replace("path: p", "path: own").replace("> pwned", "> own")}
    own["calls"] = f"{calls}workflow:\n- step: start\n  tool: {{kind: playbook, path: p}}\n"
    for name, text in own.items():
        (tmp_path / f"{name}.yaml").write_text(text)
        server.commands("apply", "-f", f"{name}.yaml")
    server.stop()

    server = Server.start(tmp_path)
    for name in ("p", "calls"):  # itself, and called by a document of the operator
        run = server.admin("POST", "/api/v1/runs", {"name": name}).json["id"]
        ended = server.admin.result(run)
        assert ended["status"] == "failed" and "does not allow" in str(ended), ended
    assert (
        server.admin.result(server.admin("POST", "/api/v1/runs", {"name": "own"}).json["id"])["status"] == "succeeded"
    )
    assert (tmp_path / "own").exists() and not (tmp_path / "pwned").exists()
    (tmp_path / "p.yaml").write_text(shell_playbook())
    assert "configured" in server.commands("apply", "-f", "p.yaml").out, "now it is the operator's"
    assert server.admin.result(server.admin("POST", "/api/v1/runs", {"name": "p"}).json["id"])["status"] == "succeeded"
    server.stop()


def flow_that_calls(provider: str, arguments: dict[str, Any]) -> dict[str, Any]:
    call = {"provider": f"mwl:provider.call/perdure/{provider}/v1", "with": arguments}
    return {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "ask",
        "steps": {"ask": {"action": "Call", "call": call, "next": "end"}, "end": {"action": "Return"}},
    }


def story_with(name: str, **step: Any) -> str:
    head = {"apiVersion": "bubustack.io/v1alpha1", "kind": "Story", "metadata": {"name": name}}
    return json.dumps({**head, "spec": {"steps": [{"name": "s", "ref": {"name": name}, **step}]}})


def test_the_origin_of_an_engram_is_asked_again_when_a_task_begins(tmp_path: Path) -> None:
    """SRV-023: code that an author brought while it was allowed does not run in the operator's Story afterwards."""
    (tmp_path / "settings.toml").write_text('[policy]\ncode = "allow"\n')
    server = Server.start(tmp_path, "--config", "settings.toml")
    parts = {}
    for name in ("brought", "own"):
        note = {"perdure/command": json.dumps(["touch", name])}
        template = {**TEMPLATE, "metadata": {"name": name, "annotations": note}}
        head = {"apiVersion": "bubustack.io/v1alpha1", "kind": "Engram", "metadata": {"name": name}}
        parts[name] = [template, {**head, "spec": {"templateRef": {"name": name}}}]
    assert server.role("author")("POST", "/api/v1/resources:apply", {"documents": parts["brought"]}).status == 200
    for number, document in enumerate(
        [*parts["own"], json.loads(story_with("brought")), json.loads(story_with("own"))]
    ):
        (tmp_path / f"{number}.json").write_text(json.dumps(document))
        server.commands("apply", "-f", f"{number}.json", code=0)
    allowed = server.admin("POST", "/api/v1/runs", {"name": "brought"}).json["id"]
    assert server.admin.result(allowed)["status"] == "succeeded"
    server.stop()
    (tmp_path / "brought").unlink()

    server = Server.start(tmp_path)
    try:
        results = {
            name: server.admin.result(server.admin("POST", "/api/v1/runs", {"name": name}).json["id"])
            for name in ("brought", "own")
        }
        assert {name: ended["status"] for name, ended in results.items()} == {"brought": "failed", "own": "succeeded"}
        assert "does not allow 'engram.command'" in str(results["brought"])
        assert (tmp_path / "own").exists() and not (tmp_path / "brought").exists()
        server.stop()
    finally:
        server.commands.end_all()


PLANTED_FILE = "planted-in-a-file"


@pytest.mark.parametrize(
    ("provider", "arguments"),
    [
        ("sqlite", {"path": "{folder}/data.db", "query": "SELECT 1"}),
        ("sqlite", {"query": "ATTACH '{folder}/data.db' AS d"}),
        ("sqlite", {"script": {"uri": "{folder}/planted"}}),
        ("sqlite", {"script": {"uri": "planted", "folder": "{folder}"}}),
        ("duckdb", {"query": "SELECT * FROM read_text('{folder}/planted')"}),
        ("duckdb", {"script": {"uri": "planted", "folder": "{folder}"}}),
        ("postgres", {"auth": {"conninfo": "host=127.0.0.1 sslrootcert={folder}/planted"}, "query": "SELECT 1"}),
        ("postgres", {"auth": {"host": "127.0.0.1", "passfile": "{folder}/planted"}, "query": "SELECT 1"}),
        ("http", {"url": "file://{folder}/planted"}),
    ],
)
def test_no_document_of_the_api_reads_a_file_of_the_server(
    server: Server, provider: str, arguments: dict[str, Any]
) -> None:
    """SRV-023: every path that a document names, in whatever provider."""
    folder = server.commands.folder
    (folder / "planted").write_text(PLANTED_FILE)
    text = json.dumps(flow_that_calls(provider, arguments)).replace("{folder}", str(folder))
    reply = server.admin("POST", "/api/v1/runs", {"document": text})
    if reply.status == 202:
        ended = server.admin.result(reply.json["id"])
        assert ended["status"] == "failed" and PLANTED_FILE not in str(ended), ended
        assert "syntax" not in str(ended), "it was read as SQL"
    else:
        assert reply.status in (403, 422), reply.text
    assert not (folder / "data.db").exists()


def test_a_fork_with_a_document_from_the_api_has_the_stricter_origin(server: Server) -> None:
    """SRV-023: what the operator's run might do, the author's document may not, nor what it calls."""
    folder = server.commands.folder
    (folder / "tool.yaml").write_text(shell_playbook().replace("path: p", "path: tool").replace("pwned", "tool"))
    (folder / "own.json").write_text(json.dumps(flow_that_calls("shell", {"script": "exit 3"})))
    server.commands("apply", "-f", "tool.yaml", code=0)
    run = server.commands("run", "own.json", "--detach", "--json", code=0).json["id"]
    assert server.admin.result(run)["status"] == "failed"
    changed = {"at_failure": True, "document": flow_that_calls("run", {"path": "tool"})}
    forked = server.role("author")("POST", f"/api/v1/runs/{run}/fork", changed)
    assert forked.status == 201, forked.text
    ended = server.admin.result(forked.json["id"])
    assert ended["status"] == "failed" and "does not allow" in str(ended), ended
    assert not (folder / "tool").exists()
    own = server.admin("POST", f"/api/v1/runs/{run}/fork", {"at_failure": True}).json["id"]
    assert "does not allow" not in str(server.admin.result(own)), "its document is still the operator's"


def test_changes_and_refusals_are_in_the_audit_log_and_a_change_of_it_is_found(tmp_path: Path) -> None:
    """SRV-026, SRV-027: names and ids, no bodies and no tokens."""
    server = Server.start(tmp_path)
    run = server.admin.start(WAITS, input={"secret": "planted-17"})
    server.admin("POST", f"/api/v1/runs/{run}/cancel", {"reason": "planted-17"})
    reader = apsw.Connection(str(tmp_path / "perdure.db"), flags=apsw.SQLITE_OPEN_READONLY)
    deadline = time.monotonic() + 60
    while reader.execute("SELECT count(*) FROM audit_seals").get == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    reader.close()
    assert server.role("viewer")("POST", f"/api/v1/runs/{run}/cancel").status == 403
    assert server.nobody("GET", "/api/v1/runs").status == 401
    rows = server.admin("GET", f"/api/v1/audit?run={run}").json["items"]
    assert [row["verb"] for row in rows] == ["cancel_run", "start_run"]
    assert all("from" not in row for row in rows)
    token = server.admin.token
    assert token is not None
    server.stop()
    perdure = server.commands
    listed = perdure("audit", "list", "--json")
    outcomes = {(row["verb"], row["outcome"]) for row in listed.json}
    assert {("start_run", "ok"), ("cancel_run", "ACCESS-DENIED"), ("list_runs", "NOT-AUTHENTICATED")} <= outcomes
    assert "planted-17" not in listed.out and token not in listed.out
    head = perdure("audit", "head").out.strip()
    assert perdure("audit", "verify", "--head", head, "--json").json["problems"] == []
    for change in (
        "UPDATE audit SET body = CAST(replace(CAST(body AS TEXT), 'verb', 'Verb') AS BLOB)",
        "DELETE FROM audit WHERE id = (SELECT min(id) FROM audit)",
        "UPDATE audit SET seal = (SELECT max(number) FROM audit_seals) WHERE id = (SELECT min(id) FROM audit)",
        "DELETE FROM audit_seals WHERE number = 1",
    ):
        changed = tmp_path / "changed"
        changed.mkdir(exist_ok=True)
        perdure("backup", str(changed / "perdure.db"), code=0)
        connection = apsw.Connection(str(changed / "perdure.db"))
        connection.execute(change)
        connection.close()
        done = CommandLine(changed)("audit", "verify", code=7)
        assert done.err
        for file in changed.iterdir():
            file.unlink()
    perdure("backup", str(tmp_path / "cut.db"))
    connection = apsw.Connection(str(tmp_path / "cut.db"))
    last = "(SELECT max(number) FROM audit_seals)"
    connection.execute(f"DELETE FROM audit WHERE seal = {last}; DELETE FROM audit_seals WHERE number = {last}")
    connection.close()
    perdure("audit", "verify", "--db", "sqlite:///cut.db")
    perdure("audit", "verify", "--db", "sqlite:///cut.db", "--head", head, code=7)
    perdure("backup", str(tmp_path / "begun.db"))
    connection = apsw.Connection(str(tmp_path / "begun.db"))
    connection.execute(f"DELETE FROM audit; DELETE FROM audit_seals WHERE number < {last}")
    connection.close()
    assert "records before 20" in perdure("audit", "verify", "--db", "sqlite:///begun.db").err
    assert "records before" not in perdure("audit", "verify").err
    perdure("backup", str(tmp_path / "forged.db"))
    connection = apsw.Connection(str(tmp_path / "forged.db"))
    connection.execute("INSERT INTO audit SELECT id || '0', at, run, body, -1 FROM audit LIMIT 1")
    connection.close()
    assert "before 1" in perdure("audit", "verify", "--db", "sqlite:///forged.db", code=7).err


def test_what_a_proxy_of_ours_says_of_a_caller_counts_and_what_others_say_does_not(tmp_path: Path) -> None:
    """SRV-076: the address is the last one that is not a proxy; the name is the one the proxy was called by."""
    settings = tmp_path / "settings.toml"
    settings.write_text('[server]\nproxies = ["127.0.0.1", "10.1.0.0/16"]\nhosts = ["flows.example"]\n')
    behind = Server.start(tmp_path, "--config", str(settings))
    (tmp_path / "open").mkdir()
    plain = Server.start(tmp_path / "open")
    try:
        attempts: tuple[tuple[Any, str], ...] = (
            ({"X_Forwarded_For": "203.0.113.9, 198.51.100.7, 10.1.2.3"}, "198.51.100.7"),
            ({"Forwarded": 'for=203.0.113.9, for="[2001:db8::1]:99";host=flows.example'}, "2001:db8::1"),
            ({"X_Forwarded_For": "10.1.2.3, not an address"}, "127.0.0.1"),
            ({"X_Forwarded_For": "198.51.100.7", "Forwarded": "for=198.51.100.7"}, "198.51.100.7"),
            (
                {"X_Forwarded_For": "198.51.100.7", "Forwarded": "for=203.0.113.9"},
                "127.0.0.1",
            ),  # one is not the proxy's
        )
        for number, (headers, address) in enumerate(attempts):
            for server, seen in ((behind, address), (plain, "127.0.0.1")):
                made = {"name": f"t{number}", "role": "viewer"}
                assert server.admin("POST", "/api/v1/tokens", made, **headers).status == 201
                assert server.admin("GET", "/api/v1/audit").json["items"][0]["from"] == seen
        assert behind.admin("GET", "/api/v1/whoami", X_Forwarded_Host="evil.example").problem == (421, "HOST-UNKNOWN")
        assert behind.admin("GET", "/api/v1/whoami", X_Forwarded_Host="flows.example:443").status == 200
        assert plain.admin("GET", "/api/v1/whoami", X_Forwarded_Host="evil.example").status == 200
        behind.stop()
        plain.stop()
    finally:
        behind.commands.end_all()
        plain.commands.end_all()


def test_commands_that_change_a_store_as_a_whole_are_in_its_audit_log(tmp_path: Path) -> None:
    """SRV-026: `via: store`, and the log stays whole."""
    server = Server.start(tmp_path)
    server.admin.start(WAITS)
    server.stop()
    commands = server.commands
    commands.here("backup", "copy.db", code=0)
    commands.here("db", "recount", code=0)
    commands.here("restore", "copy.db", code=0)
    commands.here("db", "recount", code=0)
    commands.here("db", "copy", "sqlite:///perdure.db", "sqlite:///other.db", code=0)
    assert commands.here("audit", "verify", "--json", code=0).json["problems"] == []

    for store, verbs in (("perdure", ["recount_store", "restore_store"]), ("other", ["copy_store", "recount_store"])):
        again = Server.start(tmp_path, "--db", f"sqlite:///{store}.db", "--data", "perdure.db-server")
        try:
            rows = [row for row in again.admin("GET", "/api/v1/audit").json["items"] if row["verb"] in verbs]
            assert [row["verb"] for row in rows] == verbs and {row["who"]["via"] for row in rows} == {"store"}
        finally:
            again.stop()
