"""A token that is revoked counts for nothing any more, also where a request of it was under way (SRV-022)."""

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import apsw
import pytest

from perdure.stores.feed_changes import FeedChange, FeedPage
from perdure.stores.protocol import RunFilter
from perdure.views.runs.run_changes import ChangeFeed
from tests.server.serving import WAITS, Api, Server

TRAINS = {"drill": 1, "name": "trains", "steps": [{"call": "train", "pool": "gpu", "save": "x"}, {"return": "$x"}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("server")
    running = Server.start(folder, "--route", "train=gpu")
    try:
        yield running
        running.stop()
    finally:
        running.commands.end_all()


def _token(server: Server, name: str, role: str, **more: Any) -> Api:
    made = server.admin("POST", "/api/v1/tokens", {"name": name, "role": role, **more})
    assert made.status == 201, made.text
    return Api(server.url, made.json["token"])


def _revoke(server: Server, name: str) -> None:
    assert server.admin("DELETE", f"/api/v1/tokens/{name}").status == 200


@contextmanager
def _unfinished(server: Server, headers: str, body: bytes) -> Iterator[socket.socket]:
    """A request whose caller is known, and whose last byte has not arrived."""
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as connection:
        head = f"POST /api/v1/tokens HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Type: application/json\r\n"
        # It is asked to go on with its body: then its head has been read, and its caller is known.
        connection.sendall(f"{head}Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body[:-1])
        yield connection


def test_a_request_that_was_not_whole_does_nothing_once_its_token_is_revoked(server: Server) -> None:
    """It made a token for its sender after its own had been revoked: whoever keeps such requests open stays."""
    leaked = _token(server, "leaked", "admin")
    body = json.dumps({"name": "backdoor", "role": "admin"}).encode()
    with _unfinished(server, f"Authorization: Bearer {leaked.token}\r\n", body) as connection:
        _revoke(server, "leaked")
        connection.sendall(body[-1:])
        assert connection.recv(100).startswith(b"HTTP/1.1 401 ")
    assert "backdoor" not in {token["name"] for token in server.admin("GET", "/api/v1/tokens").json["items"]}


def test_a_request_that_was_not_whole_does_nothing_once_its_session_has_ended(server: Server) -> None:
    begun = server.nobody("POST", "/session", {"token": server.admin.token})
    cookie, csrf = begun.headers["set-cookie"].partition(";")[0], begun.json["csrf"]
    body = json.dumps({"name": "sideway", "role": "admin"}).encode()
    with _unfinished(server, f"Cookie: {cookie}\r\nX-CSRF-Token: {csrf}\r\n", body) as connection:
        assert server.nobody("DELETE", "/session", Cookie=cookie, X_CSRF_Token=csrf).status == 204
        connection.sendall(body[-1:])
        assert connection.recv(100).startswith(b"HTTP/1.1 401 ")


def test_who_waits_for_a_result_is_not_told_it_once_the_token_is_revoked(server: Server) -> None:
    waiting = _token(server, "waiting", "author")
    run = server.admin.start(WAITS)
    with ThreadPoolExecutor(2) as threads:
        asked = threads.submit(waiting, "GET", f"/api/v1/runs/{run}/result?wait=60")
        started = threads.submit(waiting, "POST", "/api/v1/runs", {"document": WAITS}, Prefer="wait=60")
        latest = _another_run(server, run)
        _revoke(server, "waiting")
        for each in (run, latest):
            assert server.admin("POST", f"/api/v1/runs/{each}/signals/go", {"value": "tomorrow"}).status == 200
        assert {asked.result().status, started.result().status} == {401}
        assert b"tomorrow" not in asked.result().text + started.result().text


def _another_run(server: Server, run: str) -> str:
    """As soon as there is one."""
    while not (
        others := [item["id"] for item in server.admin("GET", "/api/v1/runs").json["items"] if item["id"] != run]
    ):
        pass
    return str(others[0])


def test_a_worker_that_waits_gets_no_task_once_its_token_is_revoked(server: Server) -> None:
    """It got one for up to a second, with its input; and nobody else did until the lease was over."""
    worker = _token(server, "worker", "worker", pools=["gpu"])
    asked = {"worker": "w", "pools": ["gpu"], "providers": ["train"], "wait": 20}
    answers: list[Any] = []

    def ask() -> None:
        answers.append(worker("POST", "/api/v1/worker/lease", asked))

    waiting = [threading.Thread(target=ask) for _ in range(10)]
    for thread in waiting:
        thread.start()
    while len(server.admin("GET", "/api/v1/workers").json["items"]) == 0:
        pass
    _revoke(server, "worker")
    run = server.admin.start(TRAINS)
    for thread in waiting:
        thread.join()
    assert [answer.json["tasks"] for answer in answers if answer.status == 200] == [[]] * len(answers)
    other = _token(server, "other", "worker", pools=["gpu"])
    (task,) = other("POST", "/api/v1/worker/lease", asked).json["tasks"]
    assert other("POST", f"/api/v1/worker/tasks/{task['lease']}/complete", {"output": 1}).status == 200
    assert server.admin.result(run)["value"] == 1


@pytest.mark.parametrize("number", range(3))
def test_what_was_waited_for_is_not_told_to_a_token_that_another_server_revokes(server: Server, number: int) -> None:
    """The tokens of the store are read twice a second: until then it got a task, which nobody else did for a minute."""
    name, author = f"late-{number}", f"lately-{number}"
    waiting, worker = _token(server, author, "author"), _token(server, name, "worker", pools=["gpu"])
    asked = {"worker": name, "pools": ["gpu"], "providers": ["train"], "wait": 20}
    run = server.admin.start(WAITS)
    store = apsw.Connection(str(server.commands.folder / "perdure.db"))
    store.set_busy_timeout(60_000)
    with ThreadPoolExecutor(2) as threads:
        result = threads.submit(waiting, "GET", f"/api/v1/runs/{run}/result?wait=60")
        leased = threads.submit(worker, "POST", "/api/v1/worker/lease", asked)
        while not any(item["name"] == name for item in server.admin("GET", "/api/v1/workers").json["items"]):
            pass
        store.execute("UPDATE access_tokens SET revoked_at = 1 WHERE name IN (?, ?)", (name, author))
        signalled = server.admin("POST", f"/api/v1/runs/{run}/signals/go", {"value": "tomorrow"})
        train = server.admin.start(TRAINS)
        assert signalled.status == 200 and result.result().status == 401
        assert leased.result().status == 401 or leased.result().json == {"tasks": []}
    store.close()
    other = _token(server, f"prompt-{number}", "worker", pools=["gpu"])
    (task,) = other("POST", "/api/v1/worker/lease", {**asked, "worker": "prompt"}).json["tasks"]
    assert other("POST", f"/api/v1/worker/tasks/{task['lease']}/complete", {"output": 1}).status == 200
    assert server.admin.result(train)["value"] == 1


async def test_whoever_reads_slowly_is_told_no_changes_once_they_are_not_allowed() -> None:
    """It was asked only of followers who had everything: whoever never caught up read on for ever."""
    allowed = [True]

    async def read_feed(position: int, limit: int) -> FeedPage:
        return FeedPage(0, 1 << 40, [_change(position + 1 + place) for place in range(limit)])

    client: Any = SimpleNamespace(store=SimpleNamespace(read_feed=read_feed))
    followed = ChangeFeed(client, lambda who: allowed[0]).follow(RunFilter(), 1, "somebody")
    parts = [await anext(followed) for _ in range(3)]
    assert b"event: status" in parts[-1]
    allowed[0] = False
    assert await anext(followed, None) is None


def _change(position: int) -> FeedChange:
    about: tuple[Any, ...] = (
        "default",
        f"run-{position}",
        1,
        False,
        "running",
        "drill",
        "waits",
        None,
        {},
        1,
        None,
        None,
    )
    return FeedChange(position, 1, "run", *about)
