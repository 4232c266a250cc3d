"""Shipped Engrams, against a real server where one is needed."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.providers.engrams.test_engrams import a_task
from tests.workers.scene import Ledger, at_work, details_of, on_loop, outcome_of, task, value_of

from perdure.kernel.outcomes import Failed
from perdure.services.story.engrams import storage


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        body: Any = {
            "query": query,
            "method": self.command,
            "sent": self.rfile.read(int(self.headers.get("content-length", 0))).decode(),
            "auth": self.headers.get("authorization"),
            "key": self.headers.get("idempotency-key"),
            "custom": self.headers.get("x-key"),
        }
        status = 200
        match url.path:
            case "/status":
                status = int(query["code"][0])
            case "/endless":
                body = {"items": ["x" * 8_000_000], "next": "/endless"}
            case "/pages":
                page = int(query.get("page", ["1"])[0])
                following = f"/pages?page={page + 1}" if page < 3 else None
                body = {"items": [page, page * 10], "next": following, "cursor": following and str(page + 1)}
            case "/offsets":
                offset = int(query["offset"][0])
                body = {"items": list(range(offset, min(offset + 2, 5)))}
            case "/elsewhere":
                body = {"items": [1], "next": "http://example.invalid/pages"}
            case "/text":
                body = None
        data = b"plain" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "text/plain" if body is None else "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET  # noqa: N815


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def output(engram: str, inputs: dict[str, Any], **more: Any) -> Any:
    results: list[Any] = []

    @on_loop
    async def run() -> None:
        results.append(value_of(await outcome_of(f"engram:{engram}@1.0.0", a_task(inputs=inputs, **more))))

    run()
    return results[0]


def failure(engram: str, inputs: dict[str, Any], **more: Any) -> tuple[str, dict[str, Any]]:
    results: list[tuple[str, dict[str, Any]]] = []

    @on_loop
    async def run() -> None:
        outcome = await outcome_of(f"engram:{engram}@1.0.0", a_task(inputs=inputs, **more))
        assert isinstance(outcome, Failed), outcome
        results.append((outcome.message, details_of(outcome)))

    run()
    return results[0]


def test_a_request_and_its_answer(server: str) -> None:
    inputs = {
        "defaultURL": f"{server}/",
        "defaultMethod": "POST",
        "defaultHeaders": {"X-Key": "base"},
        "headers": {"x-key": 7},
        "params": {"a": [1, 2], "b": "x"},
        "body": {"n": 1},
    }
    answer = output("http-request", inputs)
    assert answer["statusCode"] == 200
    assert answer["status"] == "200 OK"
    assert answer["headers"]["content-type"] == "application/json"
    assert answer["body"]["query"] == {"a": ["1", "2"], "b": ["x"]}
    assert answer["body"]["sent"] == '{"n":1}'
    assert answer["body"]["custom"] == "7"
    assert answer["body"]["key"] == "ns/default/storyrun/hello-1/step/greet", "the step's own key"


@pytest.mark.parametrize(
    ("form", "expected"), [("brackets", {"a[]": ["1", "2"]}), ("indices", {"a[0]": ["1"], "a[1]": ["2"]})]
)
def test_lists_in_queries_are_spelled_as_asked(server: str, form: str, expected: Any) -> None:
    inputs = {"url": server, "params": {"a": [1, 2]}, "queryParams": {"arrayFormat": form}}
    assert output("http-request", inputs)["body"]["query"] == expected


def test_credentials_come_from_secrets_and_stay_there(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_SECRET_api_bearer_token", "very-secret")
    inputs = {"url": server, "auth": {"type": "bearer"}}
    answer = output("http-request", inputs, secrets={"auth": "api"})
    assert answer["body"]["auth"] == "Bearer [redacted]", "it was sent, and is not repeated"
    message, details = failure("http-request", {"url": server, "auth": {"type": "basic"}}, secrets={"auth": "api"})
    assert "basic_username" in message
    assert details["type"] == "initialization_error"


@pytest.mark.parametrize(("code", "exit_class"), [(429, "rateLimited"), (503, "retry"), (404, "terminal")])
def test_a_refusal_has_its_exit_class(server: str, code: int, exit_class: str) -> None:
    """STY-123, 125: what may pass is tried again."""
    _, details = failure("http-request", {"url": f"{server}/status", "params": {"code": code}})
    assert details["exitClass"] == exit_class
    assert details["details"]["status"] == code


def test_a_refusal_can_be_an_answer(server: str) -> None:
    inputs = {"url": f"{server}/status", "params": {"code": 404}, "neverError": True}
    answer = output("http-request", inputs)
    assert answer["error"] == {"statusCode": 404, "status": "404 Not Found"}


def test_answers_are_shaped_as_asked(server: str) -> None:
    inputs = {
        "url": f"{server}/text",
        "response": {"includeHeaders": False, "includeStatus": False, "format": "file", "outputFieldName": "file"},
    }
    assert output("http-request", inputs) == {
        "file": {"encoding": "base64", "data": "cGxhaW4=", "sizeBytes": 5, "contentType": "text/plain"}
    }
    message, _ = failure("http-request", {"url": f"{server}/text", "response": {"format": "json"}})
    assert "not JSON" in message


@pytest.mark.parametrize(
    ("path", "pagination", "expected"),
    [
        ("/pages", {"mode": "nextUrl", "nextURLPath": "$.next"}, [1, 10, 2, 20, 3, 30]),
        ("/pages", {"mode": "nextUrl", "nextURLPath": "next", "maxPages": 2}, [1, 10, 2, 20]),
        (
            "/pages",
            {"mode": "updateParam", "updateParam": {"name": "page", "type": "cursor", "cursorPath": "cursor"}},
            [1, 10, 2, 20, 3, 30],
        ),
        (
            "/offsets",
            {"mode": "updateParam", "updateParam": {"name": "offset", "initialValue": 0, "increment": 2}},
            [0, 1, 2, 3, 4],
        ),
    ],
)
def test_all_pages_of_a_list(server: str, path: str, pagination: Any, expected: list[int]) -> None:
    inputs = {"url": f"{server}{path}", "pagination": {"resultsPath": "items", **pagination}}
    assert output("http-request", inputs)["body"] == expected


def test_the_next_page_is_never_at_another_server(server: str) -> None:
    inputs = {
        "url": f"{server}/elsewhere",
        "pagination": {"mode": "nextUrl", "resultsPath": "items", "nextURLPath": "next"},
    }
    message, _ = failure("http-request", inputs)
    assert "another origin" in message


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "url is required"),
        ({"url": "http://127.0.0.1:1", "proxy": "http://p"}, "proxy is not supported"),
        ({"url": "http://127.0.0.1:1", "auth": {"type": "magic"}}, "auth.type must be"),
        ({"url": "http://127.0.0.1:1", "pagination": {"mode": "all"}}, "pagination.mode must be"),
        ({"url": "http://127.0.0.1:1", "timeout": "0s"}, "must be positive"),
    ],
)
def test_what_cannot_be_asked_is_said(inputs: dict[str, Any], words: str) -> None:
    message, details = failure("http-request", inputs)
    assert words in message
    assert details["exitClass"] == "terminal"


CHANNELS = {"channels": [{"name": "general", "id": 1}, {"name": "daily", "id": 2, "meta": {"topics": ["a", "b"]}}]}


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ({"matchField": "name", "matchValue": "daily", "valuePath": "id", "outputKey": "channelId"}, {"channelId": 2}),
        ({"matchField": "id", "matchValue": "1", "valuePath": "name"}, {"value": "general"}),
        ({"valuePath": "id", "includeItem": True}, {"value": 1, "item": {"name": "general", "id": 1}}),
        ({"matchField": "name", "matchValue": "daily", "valuePath": "meta.topics[1]"}, {"value": "b"}),
        ({"matchField": "name", "matchValue": "none", "requireMatch": False}, {}),
    ],
)
def test_picking_an_item(select: dict[str, Any], expected: Any) -> None:
    inputs = {"input": CHANNELS, "select": {"itemsPath": "channels", **select}}
    assert output("json-filter", inputs) == {"resultSelected": expected}


def test_text_that_is_json_is_read() -> None:
    select = {"itemsPath": "channels", "valuePath": "id"}
    text = json.dumps(CHANNELS)
    for value in (text, {"text": text}, {"data": [{"text": text}]}, {"content": [{"text": text}]}, [{"text": text}]):
        assert output("json-filter", {"input": value, "select": select}) == {"resultSelected": {"value": 1}}
    message, _ = failure("json-filter", {"input": text, "select": select, "parseJSONText": False})
    assert "does not exist" in message


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ({"itemsPath": "nothing"}, "does not exist"),
        ({"itemsPath": "channels[0]"}, "is not a list"),
        ({"itemsPath": "channels", "matchField": "name", "matchValue": "none"}, "no item has name"),
        ({"itemsPath": "channels", "valuePath": "missing"}, "valuePath 'missing' does not exist"),
        ({"itemsPath": "channels[", "valuePath": "missing"}, "is not a path"),
    ],
)
def test_what_is_not_there_is_said(select: dict[str, Any], message: str) -> None:
    assert message in failure("json-filter", {"input": CHANNELS, "select": select})[0]


def test_materializing() -> None:
    data = {"steps": {"fetch": {"output": {"items": [1, 2, 3]}}}}
    condition = {"mode": "condition", "template": "{{ gt (len .steps.fetch.output.items) 0 }}", "vars": data}
    assert output("materialize", condition) == {"result": True}
    shaped = {
        "template": {"n": "{{ len steps.fetch.output.items }}", "all": "{{ steps.fetch.output.items }}"},
        "vars": data,
    }
    assert output("materialize", shaped) == {"result": {"n": 3, "all": [1, 2, 3]}}
    assert output("materialize", {"template": "{{ .who }}!", "vars": {"who": "Ada"}}) == {"result": "Ada!"}
    message, details = failure("materialize", {"mode": "condition", "template": "maybe"})
    assert "did not resolve to boolean" in message
    assert details["exitClass"] == "terminal"


DEAR = "{{ range $a := .many }}{{ range $b := $.many }}{{ if eq $a $b }}{{ end }}{{ end }}{{ end }}"


@pytest.mark.sampled(2)
def test_all_templates_of_one_evaluation_are_paid_from_one_budget() -> None:
    """Invariant 29: what one may cost is not there for each of many."""
    value = {"many": list(range(200))}
    assert output("materialize", {"template": DEAR, "vars": value}) == {"result": ""}

    message, details = failure("materialize", {"template": [DEAR] * 200, "vars": value})

    assert "exceed the work limit" in message and details["exitClass"] == "terminal"


LARGE_TEXT = json.dumps({"items": [{"id": str(n), "value": "x" * 100} for n in range(25_000)]})


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("materialize", {"template": DEAR, "vars": {"many": list(range(200))}}),
        ("materialize", {"template": "{{ len .x }}", "vars": {"x": LARGE_TEXT}}),
        (
            "json-filter",
            {"input": LARGE_TEXT, "select": {"itemsPath": "items", "matchField": "id", "matchValue": "20000"}},
        ),
        ("json-filter", {"input": {"$bubuStorageRef": "STORED"}, "select": {"itemsPath": "items"}}),
    ],
)
def test_what_computes_holds_up_nobody(
    name: str, inputs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 29: the event loop goes round while it is at work, whatever the size of what it works on."""
    monkeypatch.setenv("PERDURE_STORAGE_DIR", str(tmp_path))
    if "STORED" in json.dumps(inputs):
        inputs = {**inputs, "input": storage.put({}, "default", "r1", "step", "rows", json.loads(LARGE_TEXT))}

    @on_loop
    async def look() -> None:
        async with at_work() as worker:
            item = task(f"engram:{name}@1.0.0", a_task(inputs=inputs), language="story")
            running = asyncio.ensure_future(worker.run(item, Ledger()))
            rounds = 0
            while not running.done():
                await asyncio.sleep(0)
                rounds += 1
            assert value_of(await running)
            assert rounds > 20

    look()


def test_pages_without_end_are_refused_when_they_are_too_large_together(server: str) -> None:
    pagination = {"mode": "nextUrl", "nextURLPath": "next", "resultsPath": "items", "maxPages": 1_000_000}

    message, _ = failure("http-request", {"url": f"{server}/endless", "pagination": pagination})

    assert "the pages together" in message
