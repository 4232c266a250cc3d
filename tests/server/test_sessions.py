"""Sessions of browsers: log-in, the second value of what changes something, and how they end (SRV-020, SRV-021)."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.server.authentication import AccessTokens
from perdure.server.browser_sessions import CODE, IDLE, LONGEST, BrowserSessions
from perdure.views.administration.access_tokens import AccessRole, create_token
from perdure.views.api_errors import NotAuthenticated
from tests.server.serving import RETURNS, WAITS, Server, Stream


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server.start(tmp_path_factory.mktemp("server"), "--no-console")
    try:
        yield running
        running.stop()
    finally:
        running.commands.end_all()


def log_in(server: Server, **body: str) -> tuple[dict[str, Any], Any]:
    """The headers of a browser that has logged in, and the answer."""
    reply = server.nobody("POST", "/session", body)
    assert reply.status == 201, reply.text
    cookie, _, flags = reply.headers["set-cookie"].partition(";")
    port = server.url.rpartition(":")[2]
    assert cookie.startswith(f"perdure-{port}="), "cookies know no ports"
    assert {flag.strip() for flag in flags.split(";")} >= {"HttpOnly", "SameSite=Strict", "Path=/"}
    assert reply.headers["cache-control"] == "no-store"
    return {"Cookie": f"other=1; {cookie}"}, reply.json


def test_a_session_is_made_from_a_token_and_reads_as_it(server: Server) -> None:
    """SRV-020: also `whoami` with the value that changes need."""
    token = server.role("operator").token
    headers, who = log_in(server, token=str(token))
    assert (who["name"], who["role"], who["via"]) == ("the-operator", "operator", "token")
    asked = server.nobody("GET", "/api/v1/whoami", **headers)
    assert asked.json["csrf"] == who["csrf"] and asked.json["name"] == "the-operator"
    assert "csrf" not in server.role("operator")("GET", "/api/v1/whoami").json
    assert str(token) not in str(headers)


def test_a_cookie_alone_changes_nothing(server: Server) -> None:
    """SRV-076: also with an empty body; and a page of another site is refused whatever it carries."""
    admin = server.admin
    headers, who = log_in(server, token=str(admin.token))
    run = admin.start({"drill": 1, "name": "waits", "steps": [{"signal": "go", "save": "x"}, {"return": "$x"}]})
    nobody = server.nobody
    wrongs: tuple[dict[str, Any], ...] = ({}, {"X_CSRF_Token": ""}, {"X_CSRF_Token": "0" * 64})
    for wrong in wrongs:
        for method, path in (("POST", "cancel"), ("POST", "pause"), ("DELETE", "")):
            refused = nobody(method, f"/api/v1/runs/{run}/{path}".rstrip("/"), **headers, **wrong)
            assert refused.problem == (403, "ACCESS-DENIED")
        assert nobody("DELETE", "/session", **headers, **wrong).problem == (403, "ACCESS-DENIED")
    right = {**headers, "X_CSRF_Token": who["csrf"]}
    assert nobody("POST", f"/api/v1/runs/{run}/cancel", **right, Origin="http://evil.example").status == 403
    assert admin("GET", f"/api/v1/runs/{run}").json["status"] == "waiting"
    assert nobody("POST", f"/api/v1/runs/{run}/cancel", **right).status in (200, 202)
    assert admin.result(run)["status"] == "cancelled"
    started = nobody("POST", "/api/v1/runs", {"document": RETURNS}, **right)
    assert started.status == 202 and started.json["started_by"]["name"] == "admin"


def test_a_stranger_has_only_little_read(server: Server) -> None:
    """A megabyte of JSON without a token took memory and the threads that read for others."""
    assert server.nobody("POST", "/session", {"token": "x" * 5_000}).status == 401
    refused = server.nobody("POST", "/session", raw=b'{"token":[' + b"{}," * 10_000 + b"{}]}")
    assert refused.problem == (413, "BODY-TOO-LARGE")


def test_a_session_ends_by_log_out_and_with_its_token(server: Server) -> None:
    made = server.admin("POST", "/api/v1/tokens", {"name": "brief", "role": "viewer"}).json["token"]
    first, who = log_in(server, token=made)
    second, _ = log_in(server, token=made)
    nobody = server.nobody
    out = nobody("DELETE", "/session", **first, X_CSRF_Token=who["csrf"])
    assert out.status == 204 and "Max-Age=0" in out.headers["set-cookie"]
    assert nobody("GET", "/api/v1/whoami", **first).problem == (401, "NOT-AUTHENTICATED")
    assert nobody("GET", "/api/v1/whoami", **second).status == 200
    assert server.admin("DELETE", "/session").status == 400, "a token is not a session"
    server.admin("DELETE", "/api/v1/tokens/brief")
    end = time.monotonic() + 60
    while nobody("GET", "/api/v1/whoami", **second).status == 200 and time.monotonic() < end:
        time.sleep(0.05)
    assert nobody("GET", "/api/v1/whoami", **second).status == 401


def test_streams_of_a_session_end_with_its_log_out(server: Server) -> None:
    """SRV-020: also those that wait for something to happen; another session of the same token goes on."""
    run = server.admin.start(WAITS)
    first, who = log_in(server, token=str(server.admin.token))
    second, _ = log_in(server, token=str(server.admin.token))
    streams = []
    for headers in (first, second):
        connection = server.nobody.connect()
        connection.request("GET", f"/api/v1/runs/{run}/events", headers={**headers, "Accept": "text/event-stream"})
        streams.append(Stream(connection, connection.getresponse()))
        next(streams[-1].events())
    assert server.nobody("DELETE", "/session", **first, X_CSRF_Token=who["csrf"]).status == 204
    assert all(event["event"] != "RunEnded" for event in streams[0].events()), "it ends, and the run has not"
    assert server.admin("POST", f"/api/v1/runs/{run}/cancel").status == 200
    assert [event["event"] for event in streams[1].events()][-1] == "RunEnded"


def test_the_code_of_the_first_start_logs_in_once(server: Server) -> None:
    """SRV-021: it is behind the `#` of an address, in a file for nobody else's eyes; the store has only digests."""
    folder = server.commands.folder
    path = folder / "perdure.db-server" / "console-address"
    assert path.stat().st_mode & 0o077 == 0
    address, _, code = path.read_text().strip().partition("/#login=")
    assert address == server.url
    headers, who = log_in(server, code=code)
    assert who["name"] == "admin"
    assert server.nobody("POST", "/session", {"code": code}).problem == (401, "NOT-AUTHENTICATED")
    assert server.nobody("POST", "/session", {"token": "pdr_wrong"}).problem == (401, "NOT-AUTHENTICATED")
    for body in ({}, {"token": "a", "code": "b"}, {"password": "x"}):
        assert server.nobody("POST", "/session", body).status == 400
    secret = headers["Cookie"].rpartition("=")[2]
    stored = b"".join(file.read_bytes() for file in folder.glob("perdure.db*") if file.is_file())
    assert secret.encode() not in stored and code.encode() not in stored
    audited = str(server.admin("GET", "/api/v1/audit").json)
    assert "begin_session" in audited and secret not in audited and code not in audited


def test_the_front_page_needs_no_token_and_loads_nothing(server: Server) -> None:
    """SRV-028."""
    page = server.nobody("GET", "/", Accept="text/html,application/xhtml+xml,*/*;q=0.8")
    assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert page.headers["x-content-type-options"] == "nosniff" and page.headers["referrer-policy"] == "no-referrer"
    assert b"no console" in page.text and b"<script" not in page.text
    assert server.nobody("GET", "/assets/index.js").problem == (404, "ROUTE-NOT-FOUND")


async def test_a_session_lasts_twelve_hours_idle_and_seven_days(tmp_path: Path) -> None:
    """SRV-020, on the store's clock; a code lasts ten minutes, and nothing longer than its token."""
    from perdure.testing import World

    async with World(tmp_path) as world:
        assert world.engine is not None
        engine, clock = world.engine, world.clock
        await create_token(engine, "ada", AccessRole.VIEWER, by="store")
        await create_token(engine, "short", AccessRole.VIEWER, expires_in=IDLE // 2, by="store")
        sessions = BrowserSessions(engine, AccessTokens(engine))

        async def cookie(name: str = "ada") -> dict[str, str]:
            secret, _ = await sessions.begin(name)
            return {"cookie": f"{sessions.cookie}={secret}"}

        async def is_known(headers: dict[str, str]) -> bool:
            try:
                return await sessions.find(headers, "GET") is not None
            except NotAuthenticated:
                return False

        idle, used, short = await cookie(), await cookie(), await cookie("short")
        code, late = await sessions.make_code("ada"), await sessions.make_code("ada")
        assert await sessions.take_code(code) is not None
        clock.move_to(clock.now() + CODE + 1)
        assert await sessions.take_code(late) is None
        begun = clock.now()
        while clock.now() < begun + LONGEST - IDLE:
            assert await is_known(used)
            clock.move_to(clock.now() + IDLE // 2)
        assert not await is_known(idle) and not await is_known(short)
        clock.move_to(clock.now() + IDLE - 1)
        assert not await is_known(used), "seven days at most, however busy"
