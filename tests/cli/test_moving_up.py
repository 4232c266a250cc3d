"""Runs whose process was killed on a file go on under servers on a database."""

import json
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cli.commandline import PATIENCE, CommandLine
from tests.dialects.playbook.world import playbook
from tests.dialects.story.world import engram, story, template
from tests.postgres import Server
from tests.stores.places import place

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


@pytest.mark.parametrize("version", ["15", "18"])
def test_killed_on_a_file_finished_by_two_servers_on_a_database(
    perdure: CommandLine, postgres_server: Callable[[int], Server], version: str
) -> None:
    documents: dict[str, list[object]] = {
        "flow.json": [FLOW],
        "playbook.yaml": [PLAYBOOK],
        "story.json": [STORY, engram("echo"), template("echo")],
    }
    for name, texts in documents.items():
        said = [text if isinstance(text, str) else json.dumps(text) for text in texts]
        (perdure.folder / name).write_text("\n---\n".join(said))
    runs = {}
    for name in documents:
        going = perdure.start("run", name)
        runs[name] = going.run
        if name == "playbook.yaml":
            time.sleep(0.5)  # into the wait before its second attempt, or before it: both are to work
        going.kill()
    with ExitStack() as stack:
        url = place(version, "", Path(), postgres_server, stack).address
        copied = perdure("db", "copy", "sqlite:///perdure.db", url, "--json").json
        assert copied["open_runs"] == 3
        perdure.here("approve", runs["story.json"], "ask", "--db", url)
        servers = [perdure.start("serve", "--db", url) for _ in range(2)]
        for server in servers:
            server.hear("serving")

        until = time.monotonic() + PATIENCE
        while any(row["ended_at"] is None for row in perdure.here("ps", "--all", "--json", "--db", url).json):
            assert time.monotonic() < until, perdure.here("ps", "--db", url).out
            time.sleep(0.1)

        shown = {name: perdure.here("show", run, "--json", "--db", url).json for name, run in runs.items()}
        assert shown["flow.json"] == {"type": "success", "value": "rested"}
        assert shown["playbook.yaml"]["result"] == "got through"
        assert shown["playbook.yaml"]["steps"]["work"]["task_attempts"] == {"work_task": 2}
        assert shown["story.json"]["status"]["phase"] == "Succeeded"
        assert shown["story.json"]["status"]["output"] == {"n": 1}
        for server in servers:
            server.send(signal.SIGTERM)
        assert [server.end().code for server in servers] == [143, 143]
        assert perdure.here("db", "status", "--json", "--db", url).json["owners"] == []
        perdure.here("db", "validate", "--db", url)
