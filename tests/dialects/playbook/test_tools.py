"""Tool kinds with the real worker: http against a local server, shell, python in its own process (PBK-091 to 100)."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import perdure
from perdure.kernel.documents.validation import AppliedDocument
from tests.dialects.playbook.world import playbook


class _Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(*PAGES.get(self.path.partition("?")[0], (404, {"error": "no such page"}, {})))

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["content-length"]))
        self._answer(200, {"sent": json.loads(sent), "key": self.headers.get("idempotency-key") is not None}, {})

    def _answer(self, status: int, body: Any, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *arguments: Any) -> None:
        pass


PAGES: dict[str, tuple[int, Any, dict[str, str]]] = {
    "/ok": (200, {"n": 1}, {"x-request-id": "r1"}),
    "/busy": (429, {}, {"retry-after": "7"}),
    "/broken": (503, {}, {}),
    "/secret": (401, {}, {}),
}


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Shop)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class _Echo(BaseHTTPRequestHandler):
    """Answers with what was sent."""

    def do_GET(self) -> None:
        sent = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        self.send_response(307 if self.path == "/moved" else 200)
        self.send_header("content-type", "application/json")
        self.send_header("location", "/elsewhere")
        self.end_headers()
        self.wfile.write(json.dumps([self.command, self.path, self.headers.get("content-type"), sent]).encode())

    do_POST = do_PUT = do_GET  # noqa: N815 - names of the library

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def echoing() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Echo)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


async def run(folder: Path, text: str, workload: Any = None) -> Any:
    async with perdure.Engine(f"sqlite:///{folder}/runs.db") as engine:
        handle = await engine.start(text.encode(), workload)
        await engine.wait(handle.id)
        return await handle.show()


LOOK = '{rules: [{else: {then: {do: continue, set_ctx: {seen: "{{ outcome }}"}}}}]}'


async def test_http(tmp_path: Path, shop: str) -> None:
    """PBK-095."""
    text = playbook("""
workflow:
  - step: all
    loop: {in: [ok, busy, broken, secret, nowhere], iterator: page, spec: {mode: parallel, reduce: {seen: append}}}
    tool:
      kind: http
      url: "{{ workload.shop }}/{{ iter.page }}"
      params: {q: 1}
      spec:
        timeout: {connect: 2, read: 5}
        policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: "{{ outcome }}"}}}}]}
    next: {arcs: [{step: send}]}
  - step: send
    tool: {kind: http, method: post, url: "{{ workload.shop }}/x", headers: {X-N: 5}, body: {a: [1, null]}}
""")

    view = await run(tmp_path, text, {"shop": shop})

    ok, busy, broken, secret, nowhere = view["ctx"]["seen"]
    assert ok["result"]["status_code"] == 200 and ok["result"]["data"] == {"n": 1}
    assert ok["http"]["status"] == 200 and ok["http"]["request_id"] == "r1"
    assert (busy["error"]["kind"], busy["error"]["retryable"], busy["error"]["retry_after"]) == (
        "rate_limit",
        True,
        7.0,
    )
    assert (broken["error"]["kind"], broken["error"]["retryable"], broken["http"]["status"]) == (
        "server_error",
        True,
        503,
    )
    assert (secret["error"]["kind"], secret["error"]["retryable"]) == ("auth", False)
    assert (nowhere["error"]["kind"], nowhere["error"]["code"]) == ("not_found", 404)
    assert view["result"]["data"] == {"sent": {"a": [1, None]}, "key": True}


async def test_http_with_the_fields_of_other_releases(tmp_path: Path, echoing: str) -> None:
    """PBK-095: `endpoint`, `json`, `form`, `data`, `follow_redirects`, `timeout`."""
    text = playbook("""
workflow:
  - step: all
    tool:
      - json: {kind: http, method: POST, endpoint: "{{ workload.url }}/j", json: {a: 1}, timeout: 20}
      - form: {kind: http, method: POST, url: "{{ workload.url }}/f", form: {a: 1, b: two words}}
      - text: {kind: http, method: POST, url: "{{ workload.url }}/t", data: plain}
      - data: {kind: http, method: POST, url: "{{ workload.url }}/d", data: {a: [1]}}
      - by_header:
          kind: http
          method: post
          url: "{{ workload.url }}/h"
          headers: {Content-Type: application/x-www-form-urlencoded}
          data: {a: 1}
      - parts: {kind: http, method: PUT, url: "{{ workload.url }}/p", data: {query: {q: 1}, body: {a: 1}}}
      - asked: {kind: http, url: "{{ workload.url }}/g?z=0", params: {y: 1}, data: {q: 2}}
      - moved: {kind: http, url: "{{ workload.url }}/moved", follow_redirects: false, timeout_seconds: 20}
      - seen: {kind: noop, result: "{{ results }}"}
""")

    results = (await run(tmp_path, text, {"url": echoing}))["result"]

    sent = {label: results[label]["data"] for label in ("json", "form", "text", "data", "by_header", "parts", "asked")}
    assert sent == {
        "json": ["POST", "/j", "application/json", '{"a":1}'],
        "form": ["POST", "/f", "application/x-www-form-urlencoded", "a=1&b=two+words"],
        "text": ["POST", "/t", None, "plain"],
        "data": ["POST", "/d", "application/json", '{"a":[1]}'],
        "by_header": ["POST", "/h", "application/x-www-form-urlencoded", "a=1"],
        "parts": ["PUT", "/p?q=1", "application/json", '{"a":1}'],
        "asked": ["GET", "/g?z=0&y=1&q=2", None, ""],
    }
    assert results["moved"]["status_code"] == 307


async def test_http_without_an_answer(tmp_path: Path) -> None:
    """PBK-095 PBK-075."""
    text = playbook(
        "workflow: [{step: a, tool: {kind: http, url: 'http://127.0.0.1:1/', spec: {policy: " + LOOK + "}}}]"
    )

    seen = (await run(tmp_path, text))["ctx"]["seen"]

    assert seen["error"]["kind"] == "connection" and seen["error"]["retryable"] is True
    assert seen["http"]["status"] is None


async def test_shell(tmp_path: Path) -> None:
    """PBK-096."""
    text = playbook(
        "workflow:\n"
        "  - step: a\n"
        "    tool:\n"
        '      - {name: ok, kind: shell, cmds: ["echo $NAME", "echo {{ 1 + 1 }}"], env: {NAME: Ada, N: 3}}\n'
        '      - {name: bad, kind: shell, cmds: ["exit 3", "echo never"], spec: {policy: ' + LOOK + "}}\n"
        '      - {name: late, kind: shell, cmds: "sleep 9", spec: {timeout: 100ms, policy: '
        '{rules: [{else: {then: {do: continue, set_ctx: {late: "{{ outcome.error.kind }}"}}}}]}}}\n'
        '      - {name: last, kind: noop, result: "{{ results.ok }}"}\n'
    )

    view = await run(tmp_path, text)

    assert view["result"]["stdout"] == "Ada\n2\n" and view["result"]["exit_code"] == 0
    assert view["ctx"]["seen"]["error"]["code"] == 3
    assert view["ctx"]["late"] == "timeout"


CODE = {
    "result of a variable": ("result = x + 1", 2),
    "no result": ("y = 1", None),
    "main wins": ("result = 0\ndef main(x, context):\n    return [x, context['_prev']]", [1, None]),
    "main with rest": ("def main(**rest):\n    return rest", {"x": 1}),
    "a coroutine": ("async def main(x):\n    import asyncio\n    await asyncio.sleep(0)\n    return x", 1),
    "input_data": ("result = input_data", {"x": 1}),
    "libs": ("result = m.floor(1.5)", 1),
    "libs of a module": (
        "result = [later(seconds=90).total_seconds(), p.basename('a/b'), j.dumps(1)]",
        [90.0, "b", "1"],
    ),
    "a return at the top": (
        "x = x + 1\nif x > 1:\n    return {'x': x, 'in': input_data}\nreturn 0",
        {"x": 2, "in": {"x": 1}},
    ),
    "a return after waiting": ("import asyncio\nawait asyncio.sleep(0)\nreturn x", 1),
    "status is data": ("result = {'status': 'error'}", {"status": "error"}),
    "iter outside of a loop": ("result = context['iter']", {}),
    "context is a copy": ("context['ctx']['k'] = 1\nresult = context['workload']", {"w": [1]}),
}


LIBRARIES = "{m: math, later: {from: datetime, import: timedelta}, p: {from: os, import: path}, j: {import: json}}"


async def test_python(tmp_path: Path) -> None:
    """PBK-094."""
    steps = "\n".join(
        f"      - {{name: t{n}, kind: python, args: {{x: 1}}, libs: {LIBRARIES}, code: {json.dumps(code)}}}\n"
        f"      - {{name: n{n}, kind: noop, result: null}}"
        for n, (code, _) in enumerate(CODE.values())
    )
    text = playbook(
        f"workflow:\n  - step: a\n    tool:\n{steps}\n      - {{name: end, kind: noop, result: '{{{{ results }}}}'}}\n"
    )

    view = await run(tmp_path, text, {"w": [1]})

    assert {name: view["result"][f"t{n}"] for n, name in enumerate(CODE)} == {
        name: value for name, (_, value) in CODE.items()
    }
    assert view["ctx"] == {}


@pytest.mark.parametrize(
    ("code", "kind", "exception"),
    [
        ("raise LookupError('gone')", "exception", "LookupError"),
        ("result = {1, 2}", "serialization", None),
        ("def broken(:", "exception", "SyntaxError"),
        ("def main():\n    pass\nreturn 1", "exception", "SyntaxError"),
    ],
)
async def test_python_failures(tmp_path: Path, code: str, kind: str, exception: str | None) -> None:
    """PBK-094."""
    text = playbook(
        "workflow: [{step: a, tool: {kind: python, code: " + json.dumps(code) + ", spec: {policy: " + LOOK + "}}}]"
    )

    seen = (await run(tmp_path, text))["ctx"]["seen"]

    assert seen["status"] == "error" and seen["result"] is None
    assert seen["error"]["kind"] == kind and seen["error"]["retryable"] is False
    assert seen["py"]["exception_type"] == exception


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("assert: {expects: [n, m]}", "the code expects m in args"),
        ("assert: {expects: [n], returns: [a, b]}", "the result lacks b"),
        ("libs: [msgspec, no-such-package]", "the package no-such-package is not installed where the code runs"),
        ("libs: [msgspec], auth: {}, assert: {expects: [n], returns: [a]}", None),
    ],
)
async def test_what_python_expects_is_checked(tmp_path: Path, fields: str, message: str | None) -> None:
    """PBK-094."""
    task = "{kind: python, args: {n: 1}, code: 'result = dict(a=n)', " + fields + ", spec: {policy: " + LOOK + "}}"

    seen = (await run(tmp_path, playbook("workflow: [{step: a, tool: " + task + "}]")))["ctx"]["seen"]

    assert seen["result"] == ({"a": 1} if message is None else None)
    assert (seen["error"] or {}).get("message") == message


@pytest.mark.parametrize(
    "path", ["./parts/kid.yaml", "../parts/kid.yaml", "kid.yaml", "other/kid.yaml", "id.yaml", "kid"]
)
async def test_a_child_may_be_called_by_the_name_of_its_file(tmp_path: Path, path: str) -> None:
    """PBK-200: if the file was applied, under whichever folder."""
    child = playbook("workflow: [{step: c, tool: {kind: noop, result: 7}}]").replace("tests/test", "some/where")
    text = playbook("workflow: [{step: a, tool: {kind: playbook, path: " + path + "}}]")

    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        handle = await engine.start(text.encode(), applied=[AppliedDocument("/home/parts/kid.yaml", child)])
        await engine.wait(handle.id)
        view = await handle.show()

    if path in ("other/kid.yaml", "id.yaml", "kid"):
        assert view["code"] == "PLAYBOOK_NOT_FOUND"
    else:
        assert view["result"]["result"] == 7


async def test_children_are_runs_of_their_own(tmp_path: Path) -> None:
    """PBK-200 PBK-203 PBK-105."""
    child = playbook('workflow: [{step: c, tool: {kind: noop, result: "{{ workload.n }}"}}]').replace(
        "tests/test", "kid"
    )
    text = playbook(
        "workflow: [{step: a, loop: {in: [1, 2], iterator: n, spec: {mode: parallel}}, "
        'tool: {kind: playbook, path: kid, args: {n: "{{ iter.n }}"}}}]'
    )
    async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
        handle = await engine.start(text.encode(), None, applied=[AppliedDocument("kid.yaml", child)])
        await engine.wait(handle.id)
        view = await handle.show()

    assert [item["result"] for item in view["result"]["results"]] == [1, 2]
