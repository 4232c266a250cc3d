"""Requests that take long, and answers that are large, wait for each other and not others for them (SRV-015)."""

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from perdure.engine import decision_threads
from perdure.engine.resources.lookup_answers import BYTES_AT_ONCE, answer, entries
from perdure.engine.resources.resource_usage import with_usage
from perdure.engine.resources.resource_views import all_runs
from perdure.engine.runs.retention import Sweeper
from perdure.kernel.dialect import Obstacle
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.json_values.values import RunId
from perdure.providers.remote_steps import StreamConnectionLost
from perdure.server.authentication import TOOL_CALLS, Authentication
from perdure.server.calls import ApiCall, Caller
from perdure.server.console_routes import NotedToolCall, note_tool_call
from perdure.server.limits import CallerPlaces
from perdure.server.noetl.noetl_answers import entry_json
from perdure.server.noetl.noetl_catalog import MOST_LISTED, list_versions, with_documents
from perdure.server.responses import PIECE, PiecewiseResponse
from perdure.server.routes import ROUTES
from perdure.server.worker_protocol.stream_connections import SocketConnection
from perdure.stores.protocol import Edition, EditionRow, ResourceRow, RunFilter
from perdure.views.administration.access_tokens import AccessRole
from perdure.views.administration.worker_pools import MOST_NAMES, WorkerPresence
from perdure.views.api_errors import TooManyRequests
from perdure.views.runs import run_migration
from perdure.views.runs.run_migration import MOST_OBSTACLES


async def test_an_expensive_request_waits_for_its_turn_and_not_for_ever() -> None:
    places = CallerPlaces(2, "reads")
    order: list[int] = []
    first = asyncio.Event()

    async def read(number: int) -> None:
        async with places.turn("me", 60):
            order.append(number)
            await first.wait()

    reads = [asyncio.ensure_future(read(number)) for number in range(3)]
    while len(order) < 2:
        await asyncio.sleep(0)
    async with places.turn("another", 0):
        assert order == [0, 1], "the third waits, and another caller does not wait for it"
    with pytest.raises(TooManyRequests):
        async with places.turn("me", 0.01):
            pass
    first.set()
    await asyncio.gather(*reads)
    assert order == [0, 1, 2]
    async with places.turn("me", 0), places.turn("me", 0):
        pass


def test_what_reads_whole_runs_or_lists_is_expensive() -> None:
    """A page of a history tells it from the beginning; a list of StoryRuns folds each of them."""
    below = "/api/v1/runs/{id}"
    paths = [f"{below}/{name}" for name in ("events", "effects", "values/{digest}", "picture", "graph", "steps", "why")]
    paths += ["/api/v1/resources/{kind}", "/api/v1/resources/{kind}/{namespace}", "/api/v1/workers", "/api/v1/pools"]
    paths += ["/api/v1/resources/{kind}/{namespace}/{name}", "/api/executions", "/api/dashboard/stats"]
    flags = {route.path: route.is_expensive for route in ROUTES if route.method == "GET" and route.path in paths}
    assert flags == dict.fromkeys(paths, True)
    assert next(route for route in ROUTES if route.path == "/api/executions/cleanup").is_expensive


async def test_a_large_answer_is_sent_in_pieces() -> None:
    body = bytes(range(256)) * (PIECE // 64)
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is asked")

    await PiecewiseResponse(body)({"type": "http"}, receive, send)

    start, *pieces = sent
    assert dict(start["headers"])[b"content-length"] == str(len(body)).encode()
    assert b"".join(piece["body"] for piece in pieces) == body
    assert max(len(piece["body"]) for piece in pieces) == PIECE
    assert [piece["more_body"] for piece in pieces] == [True] * (len(pieces) - 1) + [False]


async def test_a_frame_of_very_many_values_ends_the_connection() -> None:
    """STR-112: 16 MiB can hold eight million values, which take a second to read."""
    texts = ['{"type":"data","a":[' + "0," * 600_000 + "0]}", '{"type":"data","a":[1,2]}']
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.receive", "text": texts.pop()}

    async def send(event: Any) -> None:
        sent.append(event)

    connection = SocketConnection(receive, send)
    assert await connection.receive() == {"type": "data", "a": [1, 2]}
    with pytest.raises(StreamConnectionLost):
        await connection.receive()
    assert sent[-1]["type"] == "websocket.close"


def test_names_of_workers_that_a_token_makes_up_are_not_all_remembered() -> None:
    presence: Any = WorkerPresence(SimpleNamespace(clock=SimpleNamespace(now=lambda: 0)))  # type: ignore[arg-type]

    def ask(name: str, holder: str) -> None:
        presence.note(SimpleNamespace(worker=name, pools=["gpu"], providers=None, opens=[], slots=1), holder)

    for number in range(MOST_NAMES + 10):
        ask(f"w{number}", "hostile")
    ask("w7", "hostile")
    ask("mine", "other")
    assert len(presence._rows) == MOST_NAMES + 1
    presence.left("mine", ["gpu"], "hostile")
    assert presence._rows["gpu", "mine"].left_at is None, "nobody says that a worker of another token has left"


async def test_a_list_of_versions_reads_no_more_documents_than_fit_into_an_answer() -> None:
    """Twelve versions of 1 MB took half a second of the event loop, and there may be any number of them."""
    size = MOST_LISTED // 3
    body = b'{"metadata":{"name":"p"},"x":"%b"}' % (b"x" * (size - 34))
    key = ResourceKey("Playbook", "default", "p")
    read: list[int] = []

    async def list_editions(*place: Any) -> list[EditionRow]:
        return [EditionRow(key, "uid", number, size, number, True) for number in range(1, 101)]

    async def edition(key: ResourceKey, generation: int) -> Edition:
        read.append(generation)
        return Edition(generation, body, b"", generation)

    client: Any = SimpleNamespace(store=SimpleNamespace(list_editions=list_editions, edition=edition))
    versions = await with_documents(client, await list_versions(client, "default"))
    entries = [entry_json(version) for version in versions]
    assert [entry["version"] for entry in entries] == list(range(100, 0, -1))
    assert read == [100, 99, 98], "the newest ones"
    assert [entry["payload"] is None for entry in entries] == [False] * 3 + [True] * 97
    assert entries[0]["meta"] == {"name": "p"} and entries[-1]["meta"] is None


class FakeCatalog:
    """Entries of one size, and how many bytes were read together."""

    def __init__(self, count: int, size: int) -> None:
        self.keys = [ResourceKey("Engram", "default", f"e{number:05}") for number in range(count)]
        self.size = size
        self.reads: list[int] = []

    async def list_keys(self, kind: str, *place: Any) -> list[tuple[ResourceKey, int]]:
        return [(key, self.size) for key in self.keys]

    async def resources(self, keys: Any) -> dict[ResourceKey, ResourceRow]:
        self.reads.append(self.size * len(keys))
        body = b'{"metadata":{"name":"e"},"x":"%b"}' % (b"x" * (self.size - 33))
        return {key: ResourceRow(key, "uid", 1, 1, body, b"", {}, None, 0, 0) for key in keys}

    async def memories(self, keys: Any) -> dict[str, Any]:
        return {}


async def test_entries_are_read_some_at_a_time() -> None:
    """An author may have written any number of them, of 16 MB each."""
    few = FakeCatalog(40, BYTES_AT_ONCE // 4)
    assert [row.key async for row in entries(few, "Engram")] == few.keys  # type: ignore[arg-type]
    assert max(few.reads) <= BYTES_AT_ONCE and len(few.reads) == 10
    many = FakeCatalog(1_000, 100)
    assert len(await answer(many, many.keys)) == 1_000  # type: ignore[arg-type]
    assert len(many.reads) == 20


async def _turns_of_others(work: Awaitable[Any]) -> int:
    """How often something else had its turn meanwhile."""
    count = 0

    async def other() -> None:
        nonlocal count
        while True:
            await asyncio.sleep(0)
            count += 1

    beside = asyncio.ensure_future(other())
    await work
    beside.cancel()
    return count


@pytest.mark.parametrize("what", ["a list", "usage", "sweep", "lookups"])
async def test_others_have_their_turn_while_very_many_runs_or_entries_are_read(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Story of 60,000 runs took a third of a second to be shown, and three seconds of each minute to be swept."""
    monkeypatch.setattr(decision_threads, "SLICE", 0.0)
    count = 500

    def row(number: int) -> Any:
        return SimpleNamespace(
            id=f"{number:05}", created_at=number, ended_at=number, program=b"", name="s", language="story"
        )

    async def search(filter: RunFilter) -> list[Any]:
        assert filter.limit is not None and filter.behind is not None
        last = min(count, filter.behind[0])
        return [row(number) for number in range(last - 1, max(-1, last - 1 - filter.limit), -1)]

    async def ended(languages: Any, behind: Any, limit: int) -> list[Any]:
        first = int(behind[1] or -1) + 1
        return [row(number) for number in range(first, min(count, first + limit))]

    async def program(digest: bytes) -> None:
        return None

    async def count_programs(language: str, name: str | None = None) -> list[tuple[bytes, str, int]]:
        return [(b"", "s", count)]

    language = SimpleNamespace(
        name="story", users=lambda kind: ("Impulse",), with_usage=lambda item, users, runs: runs, has_retention=True
    )
    catalog = FakeCatalog(count, 100)
    catalog.ended, catalog.program, catalog.count_programs = ended, program, count_programs  # type: ignore[attr-defined]
    client: Any = SimpleNamespace(
        languages={"story": language},
        catalog=SimpleNamespace(language_of=lambda kind: language),
        search=search,
        store=catalog,
        clock=SimpleNamespace(now=lambda: 10**6),
    )
    kind: Any = SimpleNamespace(name="Story")

    async def read_all() -> None:
        ids = [run.id async for run in all_runs(client, RunFilter())]
        assert ids == sorted(ids, reverse=True) and len(set(ids)) == count
        assert len([run async for run in all_runs(client, RunFilter(), 7)]) == 7

    async def count_usage() -> None:
        counted: Any = await with_usage(client, kind, [{"metadata": {"name": "s"}}])
        assert counted == [count]

    work: dict[str, Any] = {
        "a list": read_all,
        "usage": count_usage,
        "sweep": Sweeper(client).sweep,
        "lookups": lambda: answer(client.store, catalog.keys),
    }
    assert await _turns_of_others(work[what]()) >= count - 10


async def test_a_viewer_does_not_fill_the_audit_log_with_calls_of_tools() -> None:
    engine: Any = SimpleNamespace(store=None, clock=None)
    server = SimpleNamespace(authentication=Authentication(engine, None))
    for name in ("ada", "bob"):
        call = ApiCall(engine, engine, Caller(name, AccessRole.VIEWER), {}, {}, body=NotedToolCall(tool="list_runs"))
        call.server = server
        for _ in range(TOOL_CALLS):
            await note_tool_call(call)
        with pytest.raises(TooManyRequests):
            await note_tool_call(call)


async def test_runs_are_judged_by_and_by_and_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """ANA-030: a thousand names of open runs stopped the event loop for 0.8 seconds, and answered with 10 MB."""
    judged: list[str] = []

    async def find(run: RunId) -> Any:
        status = SimpleNamespace(value="waiting")
        facts = {"language": "story", "namespace": "default", "name": "s", "program": b"old", "status": status}
        return SimpleNamespace(id=run, **facts)

    async def judge(client: Any, row: Any, new: Any, mapping: Any) -> list[Obstacle]:
        judged.append(row.id)
        return [Obstacle(f"step 'a{number}'", "it has ended", needs_mapping=True) for number in range(1_000)]

    monkeypatch.setattr(run_migration, "_find_obstacles", judge)
    monkeypatch.setattr(decision_threads, "SLICE", 0.0)
    facts = {"namespace": "default", "name": "s", "digest": b"new", "text": b"", "pinned": b"", "applied": ()}
    new: Any = SimpleNamespace(language=SimpleNamespace(name="story"), **facts)
    client: Any = SimpleNamespace(find=find)
    names = [RunId(f"run-{number}") for number in range(60)]
    answers: list[Any] = []

    async def judge_all() -> None:
        answers.append(await run_migration.impact(client, new, None, names * 3))

    assert await _turns_of_others(judge_all()) >= 60
    assert judged == names and answers[0]["counts"]["needs mapping"] == 60
    assert sum(len(run["obstacles"]) for run in answers[0]["runs"]) == MOST_OBSTACLES + 60 - MOST_OBSTACLES // 1_000
    assert len(answers[0]["plan"]["moves"][0]["mapping"]) == 1_000, "the plan names all steps"
