"""Runs whose process was killed on a file go on under servers on a database."""

import asyncio
import json
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from tests.cli.commandline import PATIENCE, CommandLine
from tests.dialects.playbook.world import playbook
from tests.dialects.story.world import engram, story, template
from tests.postgres import VERSIONS, Server
from tests.stores.places import place

from perdure.stores.sqlite.store import SqliteStore
from perdure.testing.transitions import created

FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "nap",
    "steps": {
        "nap": {"action": "Sleep", "for": "PT4S", "next": "call"},
        "call": {"action": "Call", "call": {"provider": "mwl:provider.call/perdure/echo/v1"}, "next": "done"},
        "done": {"action": "Return", "value": "rested"},
    },
}
RETRIES = "{when: '{{ _attempt < 2 }}', then: {do: retry, delay: 4}}, {else: {then: {do: continue}}}"
PLAYBOOK = playbook(f"""
workflow:
  - step: work
    tool: {{kind: python, code: "1 / 0", spec: {{policy: {{rules: [{RETRIES}]}}}}}}
    next: {{arcs: [{{step: last}}]}}
  - step: last
    tool: {{kind: noop, result: got through}}
""")
STORY = story(
    "steps: [{name: ask, type: gate}, {name: say, ref: {name: echo}, needs: [ask], with: {n: 1}}]\n"
    "output: {n: '{{ steps.say.output.n }}'}",
    "orders",
)


@pytest.mark.parametrize("version", VERSIONS)
def test_killed_on_a_file_finished_by_two_servers_on_a_database(
    perdure: CommandLine, postgres_server: Callable[[int], Server], version: int
) -> None:
    documents: dict[str, list[object]] = {
        "flow.json": [FLOW],
        "playbook.yaml": [PLAYBOOK],
        "story.json": [STORY, engram("echo"), template("echo")],
    }
    for name, texts in documents.items():
        contents = [text if isinstance(text, str) else json.dumps(text) for text in texts]
        (perdure.folder / name).write_text("\n---\n".join(contents))
    runs = {}
    for name in documents:
        going = perdure.start("run", name)
        runs[name] = going.run
        if name == "playbook.yaml":
            going.hear("tries again in")  # before its second attempt
        going.kill()
    with ExitStack() as stack:
        url = place(str(version), "", Path(), postgres_server, stack).address
        copied = perdure("db", "copy", "sqlite:///perdure.db", url, "--json").json
        assert copied["open_runs"] == 3
        perdure.here("approve", runs["story.json"], "ask", "--db", url)
        servers = [perdure.start("serve", "--db", url) for _ in range(2)]
        for server in servers:
            server.hear("serving")

        for run in runs.values():
            perdure("history", run, "--follow", "--db", url)  # until the run has ended

        shown = {name: perdure.here("show", run, "--json", "--db", url).json for name, run in runs.items()}
        assert shown["flow.json"] == {"type": "success", "value": "rested"}
        assert shown["playbook.yaml"]["result"] == "got through"
        assert shown["playbook.yaml"]["steps"]["work"]["task_attempts"] == {"work_task": 2}
        assert shown["story.json"]["status"]["phase"] == "Succeeded"
        assert shown["story.json"]["status"]["output"] == {"n": 1}
        for server in servers:
            server.send(signal.SIGTERM)
        assert [server.end().code for server in servers] == [0, 0]
        assert perdure.here("db", "status", "--json", "--db", url).json["owners"] == []
        perdure.here("db", "validate", "--db", url)


async def many_runs(path: Path) -> None:
    store = SqliteStore(path, lambda: 1)
    home = await store.claim()
    for n in range(0, 20_000, 1_000):
        await store.commit([created(f"run-{n + k}", home, row=b"x" * 500) for k in range(1_000)])
    await store.close()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_copy_that_is_stopped_or_killed_leaves_nothing_and_can_be_repeated(
    perdure: CommandLine, postgres_server: Callable[[int], Server], number: signal.Signals, code: int
) -> None:
    asyncio.run(many_runs(perdure.folder / "perdure.db"))
    with ExitStack() as stack:
        url = place("18", "", Path(), postgres_server, stack).address
        going = perdure.start("db", "copy", "sqlite:///perdure.db", url)
        with psycopg.connect(url, autocommit=True) as connection:
            until = time.monotonic() + PATIENCE
            here = "datname = current_database()"
            copying = f"SELECT 1 FROM pg_stat_activity WHERE {here} AND query LIKE 'COPY log%'"
            locked = f"SELECT 1 FROM pg_locks JOIN pg_database ON oid = database WHERE {here} AND mode ~ 'ShareRow'"
            while not connection.execute(copying).fetchall():
                assert time.monotonic() < until
                time.sleep(0.005)
            going.send(number)
            assert going.end().code == code
            while connection.execute(locked).fetchall():
                assert time.monotonic() < until, "the server ends what its client left behind"
                time.sleep(0.05)
        answer = perdure.here("db", "status", "--db", url, "--json").json
        assert answer["runs"]["total"] == 0 and answer["resources"] == 0

        assert perdure("db", "copy", "sqlite:///perdure.db", url, "--json").json["open_runs"] == 20_000
