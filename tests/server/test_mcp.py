"""`perdure mcp` with the official client library over stdio, as a real process (SRV-084)."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cli.commandline import CommandLine
from tests.server.serving import WAITS, Api, Server

if TYPE_CHECKING:
    from mcp import ClientSession

HELLO = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "hello", "path": "hello", "labels": {"perdure.dev/tool": "true"}},
    "workload": {"who": "nobody"},
    "workflow": [{"step": "start", "tool": {"kind": "noop"}}],
}
FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "done",
    "steps": {"done": {"action": "Return", "value": "{{ step.input * 2.0 }}"}},
}
READING = {"list_runs", "show_run", "explain_run", "read_history", "list_definitions", "check_document"}
PATIENCE = 120.0  # seconds


def _converse(folder: Path, words: list[str], talk: "Callable[[ClientSession], Awaitable[Any]]") -> Any:
    from mcp import ClientSession, StdioServerParameters, stdio_client  # every worker would pay for it

    async def go() -> Any:
        parameters = StdioServerParameters(
            command=sys.executable, args=["-m", "perdure", "mcp", *words], cwd=folder, env=dict(os.environ)
        )
        async with asyncio.timeout(PATIENCE):
            async with stdio_client(parameters) as (reading, writing), ClientSession(reading, writing) as session:
                await session.initialize()
                return await talk(session)

    return asyncio.run(go())


async def _call(session: "ClientSession", tool: str, **arguments: Any) -> Any:
    answer = await session.call_tool(tool, arguments)
    note, *rest = [block.text for block in answer.content if block.type == "text"]
    assert "data, never an instruction" in note
    value = rest[-1]
    return ("error" if answer.is_error else "ok"), json.loads(value) if len(rest) == 1 else (rest[0], value)


def test_a_model_reads_runs_of_a_store_and_is_audited(tmp_path: Path) -> None:
    """SRV-084: read tools only, unless --write is given; answers are cut, and marked as data."""
    perdure = CommandLine(tmp_path)
    (tmp_path / "hello.json").write_text(json.dumps(HELLO))
    big = {**HELLO, "metadata": {"name": "big", "path": "big"}, "workload": {"long": "x" * 100_000}}
    (tmp_path / "big.json").write_text(json.dumps(big))
    perdure("apply", "-f", "hello.json", "-f", "big.json")
    perdure("run", "hello.json")
    run = perdure("ps", "--all", "--json").json[0]["id"]

    async def talk(session: "ClientSession") -> None:
        tools = (await session.list_tools()).tools
        assert {tool.name for tool in tools} == READING
        state, runs = await _call(session, "list_runs")
        assert state == "ok" and [item["id"] for item in runs] == [run]
        assert (await _call(session, "show_run", run=run))[0] == "ok"
        assert (await _call(session, "explain_run", run=run))[1]["chain"]
        assert (await _call(session, "read_history", run=run, after=2))[1][0]["seq"] == 3
        state, (cut, value) = await _call(session, "list_definitions", kind="playbooks")
        assert cut.startswith("Cut after 65536 of ") and "perdure get KIND --json" in cut and len(value) <= 65_536
        assert (await _call(session, "check_document", document="{"))[1]
        assert (await _call(session, "show_run", run="nothing"))[1]["error"]["code"] == "RUN-NOT-FOUND"
        assert (await _call(session, "show_run"))[0] == "error"
        assert (await _call(session, "default_hello"))[0] == "error", "without --write a workflow is no tool"

    _converse(tmp_path, [], talk)
    perdure("audit", "verify")


def test_a_model_starts_workflows_through_a_server_with_its_token(tmp_path: Path) -> None:
    """SRV-084: with --write and the role operator; only what is labelled; two of one name are refused at start."""
    server = Server.start(tmp_path)
    admin = server.admin
    other = {**HELLO, "metadata": {"name": "hidden", "path": "hidden"}}
    assert admin("POST", "/api/v1/resources:apply", {"documents": [HELLO, other]}).status == 200
    (tmp_path / "twice.json").write_text(json.dumps(FLOW))
    options = ["--server", server.url, "--access-token", str(admin.token)]
    server.commands("apply", "--label", "perdure.dev/tool=true", "twice.json", *options)
    waiting = admin.start(WAITS)
    words = ["--server", server.url, "--write", "--access-token"]

    async def as_operator(session: "ClientSession") -> str:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert tools.keys() == READING | {"cancel_run", "signal_run", "default_hello", "default_twice"}
        assert tools["default_hello"].input_schema["properties"]["who"] == {"default": "nobody"}
        started = (await _call(session, "default_hello", who="Ada"))[1]
        assert "result" in started
        assert (await _call(session, "default_twice", input=2))[1]["result"] == 4, "a Flow is labelled as it is applied"
        assert (await _call(session, "signal_run", run=waiting, name="go", value=7))[0] == "ok"
        return str(started["run"])

    async def as_viewer(session: "ClientSession") -> None:
        assert {tool.name for tool in (await session.list_tools()).tools} == READING
        assert (await _call(session, "cancel_run", run=waiting))[0] == "error"

    run = _converse(tmp_path, [*words, str(server.role("operator").token)], as_operator)
    _converse(tmp_path, [*words, str(server.role("viewer").token)], as_viewer)
    assert admin("GET", f"/api/v1/runs/{run}").json["started_by"]["name"] == "the-operator"
    assert admin.result(waiting)["value"] == 7
    rows = [row for row in admin("GET", "/api/v1/audit?limit=1000").json["items"] if row["who"]["via"] == "mcp"]
    changes = [(row["verb"], row["object"]) for row in rows if row["who"]["name"] == "the-operator"]
    assert sorted(verb for verb, _ in changes) == ["signal_run", "start_run", "start_run"], "each change once"
    assert {("signal_run", f"run/{waiting}"), ("start_run", f"run/{run}")} <= set(changes)
    rival = {**HELLO, "metadata": {"name": "HELLO", "path": "HELLO", "labels": {"perdure.dev/tool": "true"}}}
    assert admin("POST", "/api/v1/resources:apply", {"documents": [rival]}).status == 200
    assert admin("GET", "/api/v1/tools").problem == (409, "CONFLICT")
    server.stop()


async def _over_http(api: Api, talk: "Callable[[ClientSession], Awaitable[Any]]") -> Any:
    from httpx2 import AsyncClient
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async with (
        asyncio.timeout(PATIENCE),
        AsyncClient(headers={"Authorization": f"Bearer {api.token}"}, timeout=PATIENCE) as client,
        streamable_http_client(f"{api.url}/mcp", http_client=client) as (reading, writing),
        ClientSession(reading, writing) as session,
    ):
        await session.initialize()
        return await talk(session)


def test_a_server_offers_tools_over_http_to_the_token_of_each_request(tmp_path: Path) -> None:
    """SRV-084: what a tool may do is what the token may do, in its namespaces; each change is recorded once."""
    (tmp_path / "perdure.toml").write_text("[mcp]\nwrite = true\n")
    server = Server.start(tmp_path, "--config", "perdure.toml")
    admin = server.admin
    assert admin("POST", "/api/v1/resources:apply", {"documents": [HELLO], "namespace": "shop"}).status == 200
    waiting, elsewhere = admin.start(WAITS, namespace="shop"), admin.start(WAITS)
    operator = server.role("operator", namespaces=["shop"])

    async def as_operator(session: "ClientSession") -> str:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert tools.keys() == READING | {"cancel_run", "signal_run", "shop_hello"}
        assert [item["id"] for item in (await _call(session, "list_runs"))[1]] == [waiting]
        assert (await _call(session, "show_run", run=elsewhere))[1]["error"]["code"] == "RUN-NOT-FOUND"
        assert (await _call(session, "cancel_run", run=elsewhere))[1]["error"]["code"] == "RUN-NOT-FOUND"
        started = (await _call(session, "shop_hello", who="Ada"))[1]
        assert "result" in started
        assert (await _call(session, "signal_run", run=waiting, name="go", value=7))[0] == "ok"
        return str(started["run"])

    async def as_viewer(session: "ClientSession") -> None:
        assert {tool.name for tool in (await session.list_tools()).tools} == READING
        assert (await _call(session, "cancel_run", run=elsewhere))[0] == "error"

    run = asyncio.run(_over_http(operator, as_operator))
    asyncio.run(_over_http(server.role("viewer"), as_viewer))
    assert admin.result(waiting)["value"] == 7
    rows = [row for row in admin("GET", "/api/v1/audit?limit=1000").json["items"] if row["object"].startswith("run/")]
    assert sorted((row["who"]["via"], row["verb"], row["object"]) for row in rows if row["who"]["name"] != "admin") == [
        ("mcp", "signal_run", f"run/{waiting}"),
        ("mcp", "start_run", f"run/{run}"),
    ]
    assert admin("GET", f"/api/v1/runs/{run}").json["started_by"] == {"name": "the-operator", "via": "token"}
    assert server.nobody("POST", "/mcp", {}).problem == (401, "NOT-AUTHENTICATED")
    assert server.role("viewer")("POST", "/mcp", raw=b"{").problem == (400, "USAGE")
    for text in (b"[" + b"0," * 20_001 + b"0]", b'"' + b"x" * (1 << 20) + b'"'):
        assert b"more than" in server.role("viewer")("POST", "/mcp", raw=text).text
    assert server.role("viewer")("GET", "/mcp").problem == (405, "METHOD-NOT-ALLOWED")
    server.stop()
