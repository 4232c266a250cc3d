"""What every request may rely on: JSON, refusals, limits, addresses (SRV-003, SRV-010, SRV-011, SRV-015, SRV-076)."""

import json
import re
import signal
import socket
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from perdure.server.routes import ROUTES
from tests.server.serving import RETURNS, WAITS, Api, Server


def test_the_hint_of_a_malformed_request_is_for_whoever_writes_requests(server: Server) -> None:
    """SRV-011: the API has no `VERB --help`; a command that goes through it is told what it is told on a store."""
    refused = server.admin("GET", "/api/v1/runs?limit=none")
    assert refused.problem == (400, "USAGE") and "/openapi.json" in refused.json["hint"]
    commands, url = server.commands, server.url
    token = f"@{commands.folder}/perdure.db-server/admin-token"
    error = commands("logs", "x" * 300, "--server", url, "--access-token", token, "--json", code=None).error
    assert "openapi" not in error["hint"]


def test_health_pages_need_no_token_and_everything_else_does(server: Server) -> None:
    """SRV-003, SRV-020, SRV-070: without a token a path that does not exist is 401 too."""
    for path in ("/livez", "/readyz", "/health", "/api/health"):
        assert server.nobody("GET", path).status == 200
    for path in ("/version", "/apis/nothing/v1/at/all", "/api/v1/namespaces/x/secrets"):  # of the Kubernetes API
        reply = server.nobody("GET", path)
        assert (reply.status, reply.json["kind"], reply.json["reason"]) == (401, "Status", "Unauthorized")
        assert reply.headers["www-authenticate"].startswith("Bearer")
    for path in ("/openapi.json", "/api/v1/runs", "/api/v1/nothing", "/nothing"):
        reply = server.nobody("GET", path)
        assert reply.problem == (401, "NOT-AUTHENTICATED")
        assert reply.headers["www-authenticate"].startswith("Bearer")


def test_whoever_is_unknown_is_told_that_first_also_under_a_malformed_path(server: Server) -> None:
    """SRV-022, SRV-070."""
    for path in ("/api//x", "/api/v1/runs/", "/api/v1/runs/%2E%2E", "/api/v1/runs/%FF"):
        assert server.nobody("GET", path).problem == (401, "NOT-AUTHENTICATED"), path
        assert server.admin("GET", path).problem == (400, "USAGE"), path


def test_a_head_request_is_answered_with_the_headers_of_its_get_and_nothing_else(server: Server) -> None:
    """SRV-010, SRV-014: of a stream too, which nobody follows; the connection goes on."""
    admin = server.admin
    run = admin.start(WAITS)
    connection = admin.connect(30)
    own = {"Authorization": f"Bearer {admin.token}"}
    for path in (f"/api/v1/runs/{run}", f"/api/v1/runs/{run}/events", "/api/v1/runs/nobody", "/livez"):
        connection.request("HEAD", path, headers=own)
        answer = connection.getresponse()
        whole = admin("GET", path)
        assert (answer.status, answer.read()) == (whole.status, b"")
        for name in ("content-type", "content-length"):
            assert answer.headers[name] == whole.headers[name], path
    for path in (f"/api/v1/runs/{run}/events", "/api/v1/events"):
        connection.request("HEAD", path, headers=own | {"Accept": "text/event-stream"})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["content-type"], answer.read()) == (200, "text/event-stream", b"")
    connection.request("GET", "/api/v1/whoami", headers=own)
    assert connection.getresponse().status == 200
    connection.close()


def test_a_wrong_token_is_refused_and_many_of_them_for_a_while(tmp_path: object, server: Server) -> None:
    """SRV-015: a right token is not refused for its address."""
    wrong = Api(server.url, "pdr_wrong")
    problems = [wrong("GET", "/api/v1/whoami").problem for _ in range(22)]
    assert problems[0] == (401, "NOT-AUTHENTICATED")
    assert problems[-1] == (429, "TOO-MANY-REQUESTS")
    assert int(wrong("GET", "/api/v1/whoami").headers["retry-after"]) >= 1
    assert server.admin("GET", "/api/v1/whoami").status == 200


def test_every_answer_names_the_version_and_is_not_kept(server: Server) -> None:
    """SRV-081."""
    for reply in (server.admin("GET", "/version"), server.nobody("GET", "/version"), server.nobody("GET", "/livez")):
        assert reply.headers["perdure-version"]
        assert reply.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "USAGE"),
        (b"", "USAGE"),
        (b"[]", "USAGE"),
        (b'{"document": {}, "document": {}}', "USAGE"),
        (b'{"document": NaN}', "USAGE"),
        (b'{"input": "\\ud800", "name": "x"}', "USAGE"),
        (b'{"name": "\xff"}', "USAGE"),
        (b'{"name": "x", "input": ' + b"[" * 200 + b"]" * 200 + b"}", "USAGE"),
        (b'{"name": "x", "unknown": 1}', "UNKNOWN-MEMBER"),
        (b'{"name": 17}', "USAGE"),
        (b'{"document": 17}', "USAGE"),
    ],
)
def test_json_is_strict(server: Server, body: bytes, code: str) -> None:
    """SRV-010, SRV-081: malformed JSON is 400, and so is a member that this server does not know."""
    assert server.admin("POST", "/api/v1/runs", raw=body).problem == (400, code)


def test_integers_keep_all_their_digits(server: Server) -> None:
    """SRV-010."""
    number = 9_007_199_254_740_993
    document = {"drill": 1, "name": "big", "steps": [{"return": number}]}
    reply = server.admin("POST", "/api/v1/runs", {"document": document}, Prefer="wait=10")
    assert reply.status == 200
    assert json.loads(reply.text)["value"] == number


def test_refusals_have_the_status_of_their_kind(server: Server) -> None:
    """SRV-011."""
    admin = server.admin
    run = admin.start(RETURNS)
    admin.result(run)
    assert admin("GET", "/api/v1/runs/nobody").problem == (404, "RUN-NOT-FOUND")
    assert admin("GET", "/api/v1/nothing").problem == (404, "ROUTE-NOT-FOUND")
    refused = admin("PUT", "/api/v1/runs")
    assert refused.problem == (405, "METHOD-NOT-ALLOWED")
    assert refused.headers["allow"] == "GET, HEAD, POST"
    assert admin("GET", "/api/v1/runs", Accept="text/html").problem == (406, "NOT-ACCEPTABLE")
    assert admin("POST", "/api/v1/runs", raw=b"{}", Content_Type="text/plain").problem == (415, "MEDIA-TYPE")
    assert admin("POST", f"/api/v1/runs/{run}/cancel").problem == (409, "CONFLICT")
    assert admin("POST", "/api/v1/runs", {"document": {"drill": 1, "steps": "none"}}).problem == (422, "DOC-INVALID")
    assert admin("GET", "/api/v1/runs?colour=red").problem == (400, "UNKNOWN-MEMBER")
    assert admin("GET", "/api/v1/runs?limit=1001").problem == (400, "USAGE")
    assert admin("GET", "/api/v1/runs?limit=1&limit=2").problem == (400, "USAGE")
    assert admin("GET", f"/api/v1/runs/{run}/picture?at=99").problem[0] == 404


def test_problems_of_a_document_are_listed_with_their_places(server: Server) -> None:
    """SRV-011: `problems[]`."""
    text = "apiVersion: bubustack.io/v1alpha1\nkind: Story\nmetadata: {name: x}\nspec: {steps: [{name: A B}]}\n"
    reply = server.admin("POST", "/api/v1/runs", {"document": text})
    assert reply.status == 422
    for problem in reply.json["problems"]:
        assert {"path", "line", "column", "code", "message", "hint"} <= problem.keys()


def test_the_type_of_a_problem_is_a_page_that_needs_no_token(server: Server) -> None:
    """SRV-011: `type` is a path of this server."""
    refused = server.admin("GET", "/api/v1/runs/nobody").json
    page = server.nobody("GET", refused["type"])
    assert page.status == 200
    assert page.json["code"] == "RUN-NOT-FOUND" and page.json["meaning"]
    assert server.nobody("GET", "/errors/NONSENSE").problem == (404, "ROUTE-NOT-FOUND")


def test_paths_are_split_before_they_are_decoded(server: Server) -> None:
    """SRV-010: `%2F` is part of a segment; empty, `.` and `..` are 400."""
    admin = server.admin
    run = admin.start({"drill": 1, "name": "w", "steps": [{"signal": "a/b", "save": "x"}, {"return": "$x"}]})
    assert admin("POST", f"/api/v1/runs/{run}/signals/a%2Fb", {"value": 3}).status == 200
    assert admin.result(run)["value"] == 3
    for path in ("/api/v1//runs", "/api/v1/runs/", "/api/v1/./runs", "/api/v1/runs/%2E%2E", "/api/v1/runs/%FF"):
        assert admin("GET", path).problem == (400, "USAGE"), path


def test_a_body_that_is_too_large_is_413_and_hurts_nobody(server: Server) -> None:
    """SRV-015."""
    large = b'{"name": "' + b"x" * (17 << 20) + b'"}'
    assert server.admin("POST", "/api/v1/runs", raw=large).problem == (413, "BODY-TOO-LARGE")
    assert server.admin("GET", "/api/v1/whoami").status == 200


def test_headers_that_are_too_large_are_refused(server: Server) -> None:
    """SRV-015."""
    reply = server.admin("GET", "/api/v1/whoami", X_Large="x" * 40_000)
    assert reply.problem == (431, "HEADER-TOO-LARGE")


def test_half_a_request_and_garbage_hurt_nobody(server: Server) -> None:
    """SRV-015: whoever stays silent is not waited for by others."""
    parts = urlsplit(server.url)
    silent = [socket.create_connection((parts.hostname, parts.port), timeout=60) for _ in range(20)]
    for connection in silent:
        connection.sendall(b"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le")
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as garbage:
        garbage.sendall(b"\x00\xffGET\r\n\r\n")
        refusal = garbage.recv(1_000)
        assert refusal.startswith(b"HTTP/1.1 400") and b"application/problem+json" in refusal, "SRV-011"
        assert b"Perdure-Version" in refusal, "SRV-081: in every answer"
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13"
    upgrade += "\r\nSec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng=="
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as stranger:
        stranger.sendall(f"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n{upgrade}\r\n\r\n".encode())
        refusal = stranger.recv(1_000)
        assert refusal.startswith(b"HTTP/1.1 401") and b"perdure-version" in refusal.lower(), "SRV-070"
    assert server.admin("GET", "/api/v1/whoami").status == 200
    for connection in silent:
        connection.close()


def test_a_server_answers_to_its_own_names_only(server: Server) -> None:
    """SRV-076: a page that was rebound to 127.0.0.1 calls it by another name; health pages are excepted."""
    port = urlsplit(server.url).port
    assert server.admin("GET", "/api/v1/whoami", Host="evil.example").problem == (421, "HOST-UNKNOWN")
    assert server.nobody("GET", "/readyz", Host="evil.example").status == 200
    assert server.admin("GET", "/api/v1/whoami", Host="[::1]evil.example").problem == (421, "HOST-UNKNOWN")
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert server.admin("GET", "/api/v1/whoami", Host=host).status == 200
    with socket.create_connection(("127.0.0.1", port), timeout=60) as twice:
        twice.sendall(b"GET /api/v1/whoami HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n")
        assert twice.recv(1_000).startswith(b"HTTP/1.1 400"), "nobody knows which of them others count"


def test_pages_of_other_sites_are_refused_whatever_they_carry(server: Server) -> None:
    """SRV-076."""
    own = server.url
    pages: list[dict[str, Any]] = [
        {"Origin": "http://evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Origin": "null"},
    ]
    for foreign in pages:
        assert server.admin("GET", "/api/v1/whoami", **foreign).problem[0] == 403
        assert server.nobody("GET", "/livez", **foreign).problem[0] == 403
    assert server.admin("GET", "/api/v1/whoami", Origin=own, Sec_Fetch_Site="same-origin").status == 200


def test_the_description_has_every_route_and_every_answer_that_was_met(server: Server) -> None:
    """SRV-003: OpenAPI is made from the table that requests are routed by."""
    described = server.admin("GET", "/openapi.json").json
    assert described["openapi"].startswith("3.1")
    paths = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert paths == {(route.method, route.path) for route in ROUTES}
    for route in ROUTES:
        operation = described["paths"][route.path][route.method.lower()]
        assert str(route.status) in operation["responses"]
        assert ("401" in operation["responses"]) == (route.role is not None or 401 in route.refusals)
    names = set(described["components"]["schemas"])
    references = {part.partition('"')[0] for part in json.dumps(described).split("#/components/schemas/")[1:]}
    assert references <= names


def test_head_is_get_without_a_body(server: Server) -> None:
    reply = server.admin("HEAD", "/api/v1/whoami")
    assert (reply.status, reply.text) == (200, b"")


@pytest.mark.parametrize(
    "more",
    [
        {"labels": {str(number): "x" for number in range(1_000)}},
        {"labels": {"a": "x" * 10_000}},
        {"set": {".".join("a" * 5_000): 1}},
        {"apply": [RETURNS] * 2_000},
    ],
    ids=["labels", "a long label", "a deep name", "documents"],
)
def test_a_start_with_too_much_of_something_is_a_bad_request(server: Server, more: dict[str, Any]) -> None:
    assert server.admin("POST", "/api/v1/runs", {"document": RETURNS, **more}).problem[0] == 400


def test_figures_out_of_range_are_bad_requests(server: Server) -> None:
    token = {"name": "x", "role": "viewer", "expires_in": 1e300}
    assert server.admin("POST", "/api/v1/tokens", token).problem[0] == 400
    labels = "&".join(f"label=a{number}=b" for number in range(1_000))
    assert server.admin("GET", f"/api/v1/runs?{labels}").problem[0] == 400


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00"])
def test_times_that_no_year_has_are_bad_requests(server: Server, time: str) -> None:
    """SRV-011: never 500 for what a caller sends; in UTC they are before the year 1, or after 9999."""
    run = server.admin.start(WAITS)
    for path in ("runs?started_after=", "runs?started_before=", "stats?from=", "stats?to=", f"runs/{run}/why?at="):
        assert server.admin("GET", f"/api/v1/{path}{quote(time)}").problem == (400, "USAGE"), path
    filtered = {"verb": "cancel", "filter": {"started_after": time}, "dry_run": True}
    assert server.admin("POST", "/api/v1/runs:batch", filtered).problem == (400, "USAGE")
    assert server.admin("POST", f"/api/v1/runs/{run}/fork", {"at": time}).problem == (400, "USAGE")
    assert server.admin("GET", "/api/v1/stats?to=0001-01-01T00:00:00Z").problem == (400, "USAGE")


STORIES = "/apis/bubustack.io/v1alpha1/namespaces/default/stories"
STEPS = {
    "apiVersion": "bubustack.io/v1alpha1",
    "kind": "Story",
    "metadata": {"name": "numbered"},
    "spec": {"steps": [{"name": "ok", "type": "gate"}]},
}


@pytest.mark.parametrize("number", ["9" * 5_000, "9" * 25, "\u00b2"])
def test_texts_that_are_no_small_numbers_are_no_faults_of_the_server(server: Server, number: str) -> None:
    """SRV-011: never 500 for what a caller sends, wherever a text is read as a number."""
    admin = server.admin
    run = admin.start(WAITS)
    assert admin("POST", "/api/v1/resources:apply", {"documents": [STEPS]}).status == 200
    assert admin("POST", "/api/v1/runs", {"name": f"numbered@{number}"}).problem == (404, "RESOURCE-NOT-FOUND")
    assert admin("POST", f"/api/v1/runs/{run}/fork", {"at": number}).status in (400, 404)
    assert admin("GET", f"/api/v1/runs/{run}/why?field=result%5B{quote(number)}%5D").status in (400, 404, 422)
    versioned = {**STEPS, "metadata": {"name": "numbered", "resourceVersion": number}, "spec": {"steps": []}}
    assert admin("POST", "/api/v1/resources:apply", {"documents": [versioned]}).status in (412, 422)
    patch = json.dumps([{"op": "replace", "path": f"/spec/steps/{number}/name", "value": "x"}]).encode()
    patched = admin("PATCH", f"{STORIES}/numbered", raw=patch, Content_Type="application/json-patch+json")
    assert (patched.status, patched.json["reason"]) == (422, "Invalid")
    watched = admin("GET", f"{STORIES}?watch=true&timeoutSeconds=1&resourceVersion={quote(number)}")
    assert (watched.status, watched.json["reason"]) == (400, "BadRequest")


def test_what_is_accepted_and_sent_is_read_as_http_says(server: Server) -> None:
    """SRV-010, SRV-011: a weight of 0 refuses; lists may stand in several lines; bodies are UTF-8, not encoded."""
    admin = server.admin
    for accept in ("application/json;q=0", "text/html, */*;q=0", "application/json; Q=0.000, text/html"):
        assert admin("GET", "/api/v1/runs", Accept=accept).problem == (406, "NOT-ACCEPTABLE"), accept
    for accept in ("application/json;q=0.1", "text/html, */*;q=0.01"):
        assert admin("GET", "/api/v1/runs", Accept=accept).status == 200, accept
    connection = admin.connect()
    connection.putrequest("GET", "/api/v1/runs")
    for name, value in (("Authorization", f"Bearer {admin.token}"), ("Accept", "text/html"), ("Accept", "*/*")):
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 200
    connection.close()
    text = json.dumps({"document": RETURNS}).encode()
    encoded = admin("POST", "/api/v1/runs", raw=text, Content_Encoding="gzip")
    assert encoded.problem == (415, "MEDIA-TYPE")
    latin = admin("POST", "/api/v1/runs", raw=text, Content_Type="application/json; charset=latin-1")
    assert latin.problem == (415, "MEDIA-TYPE")
    for kind in ("application/json; charset=UTF-8", 'application/json;charset="utf-8"', "Application/JSON"):
        assert admin("POST", "/api/v1/runs", raw=text, Content_Type=kind).status == 202, kind


def test_the_log_can_be_json_lines(tmp_path: Path) -> None:
    """SRV-052: every line is an object; entries about a run and a task name them."""
    (tmp_path / "tasks.py").write_text(
        "import perdure\n\n\n@perdure.provider('talk')\ndef talk(context):\n"
        "    context.log('two\\nlines \\x1b[2J', level='warning', size=3)\n    return 1\n"
    )
    server = Server.start(tmp_path, "--load", "tasks.py", "--log-format", "json")
    try:
        flow = {
            "$schema": "https://mwl.dev/v0.1/flow/schema.json",
            "entrypoint": "talk",
            "steps": {
                "talk": {"action": "Call", "call": {"provider": "mwl:provider.call/perdure/talk/v1"}, "next": "end"},
                "end": {"action": "Return"},
            },
        }
        run = server.admin.start(flow)
        server.admin.result(run)
        server.process.send(signal.SIGTERM)
        lines = server.process.end().err.splitlines()
        entries = [json.loads(line) for line in lines if line]
        assert all({"time", "level", "message"} <= entry.keys() for entry in entries)
        spoken = next(entry for entry in entries if entry["message"].startswith("two\nlines"))
        assert (spoken["level"], spoken["run"], spoken["fields"]) == ("warning", run, {"size": 3})
        assert "talk" in spoken["task"] and spoken["logger"].startswith("perdure")
        assert "\x1b" not in "".join(lines)
        assert any(entry["message"].startswith("listening on") for entry in entries)
    finally:
        server.commands.end_all()


def test_a_server_is_made_of_what_its_extra_names(server: Server) -> None:
    """SRV-004: starlette, uvicorn with its parser, msgspec."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    names = {re.split("[<>=]", text)[0] for text in project["optional-dependencies"]["server"]}
    assert names == {"httptools", "msgspec", "starlette", "uvicorn", "websockets"}
    mapped = Path(f"/proc/{server.process.process.pid}/maps").read_text()
    assert "/httptools/" in mapped and "/msgspec/" in mapped


def test_requests_sent_at_once_are_answered_in_order_and_the_last_one_closes(server: Server) -> None:
    """SRV-010. Of a HEAD only the head is sent; a connection that is to be closed is, behind its answer."""
    address = urlsplit(server.url)
    own = f"Host: {address.netloc}\r\nAuthorization: Bearer {server.admin.token}\r\n"
    requests = [
        f"GET /api/v1/whoami HTTP/1.1\r\n{own}\r\n",
        f"HEAD /api/v1/whoami HTTP/1.1\r\n{own}\r\n",
        f"GET /api/v1/nothing HTTP/1.1\r\n{own}\r\n",
        f"GET /api/v1/runs HTTP/1.1\r\n{own}Connection: close\r\n\r\n",
    ]
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall("".join(requests).encode())
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))

    heads = re.findall(rb"HTTP/1\.1 (\d+)", answer)
    assert heads == [b"200", b"200", b"404", b"200"]
    assert answer.count(b'"role":"admin"') == 1, "a HEAD has no body"
    assert answer.count(b"\r\nperdure-version: ") == answer.count(b"\r\ndate: ") == 4
    assert answer.lower().count(b"connection: close") == 1
