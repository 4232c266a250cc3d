"""A task that kills its process fails nobody else: invariant 27 with real processes, on both kinds of store."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.cli.commandline import CommandLine, Running

TASKS = """
import os, time
from pathlib import Path
import perdure

def note(word, context):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{word} {context.delivery} {os.getpid()}\\n")

@perdure.provider("kill")
def kill(context):
    note("kill", context)
    wait_for("gather")  # until everybody is at work
    os._exit(9)

def wait_for(name):
    end = time.time() + 60
    while not Path(os.environ["NOTES"] + "-" + name).exists() and time.time() < end:
        time.sleep(0.02)

@perdure.provider("good")
def good(context):
    note("good", context)
    wait_for("go")
    return "done"

def inside():
    @perdure.provider("kill-inside")
    def kill_inside(context):
        note("kill", context)
        wait_for("gather")
        os._exit(9)

    @perdure.provider("good-inside")
    def good_inside(context):
        note("good", context)
        time.sleep(0.05)
        return "done"

inside()
"""

LEASE = 3.0  # seconds


class Place:
    """A store with processes around it that die."""

    def __init__(self, perdure: CommandLine, store: str) -> None:
        self.perdure = perdure
        self.store = store
        (perdure.folder / "tasks.py").write_text(TASKS)
        self.notes = perdure.folder / "notes"
        self.environment = {"PERDURE_DB": store, "PERDURE_DB_LEASE": str(LEASE), "NOTES": str(self.notes)}

    def __call__(self, *words: str, code: int | None = 0) -> Any:
        return self.perdure(*words, code=code, **self.environment)

    def serve(self) -> Running:
        server = self.perdure.start("serve", "--load", "./tasks.py", **self.environment)
        server._watchdog.cancel()  # one may live longer than that; `serve_until` has a bound of its own
        return server

    def detach(self, provider: str, name: str, cap: int = 3) -> str:
        step = {"call": provider, "deliveries": cap, "save": "x"}
        run: str = self("run", self.perdure.drill(step, {"return": "$x"}, name=name), "--detach").out.strip()
        return run

    def let(self, name: str) -> None:
        Path(f"{self.notes}-{name}").touch()

    def noted(self, word: str) -> list[tuple[int, int]]:
        """Delivery and process of each task that said so."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        rows = [line.split() for line in lines]
        return [(int(delivery), int(process)) for label, delivery, process in rows if label == word]

    def status(self, run: str) -> str:
        rows = self.query(f"SELECT status FROM {{}}runs WHERE id = '{run}'")
        return str(rows[0][0]) if rows else ""

    def query(self, text: str) -> list[Any]:
        if self.store.startswith("postgresql"):
            with psycopg.connect(self.store, autocommit=True) as connection:
                return connection.execute(text.format("perdure.").encode()).fetchall()
        with closing(sqlite3.connect(self.store.removeprefix("sqlite:///"))) as file:
            return file.execute(text.format("")).fetchall()

    def serve_until(self, holds: Callable[[], bool], servers: list[Running], seconds: float = 90.0) -> int:
        """Replace every server that dies; how many have when it holds."""
        deaths = 0
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "it does not happen"
            for n, server in enumerate(servers):
                if server.process.poll() is not None:
                    assert server.end().code == 9
                    deaths += 1
                    servers[n] = self.serve()
            time.sleep(0.05)
        return deaths

    def stop(self, servers: list[Running]) -> None:
        for server in servers:
            server.process.terminate()
        for server in servers:
            server.end()


@pytest.fixture(params=[pytest.param(store, marks=pytest.mark.sampled(2)) for store in ("sqlite", "postgres")])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    if request.param == "postgres":
        parameters = conninfo_to_dict(request.getfixturevalue("postgres_url"))
        store = f"postgresql://{parameters['user']}@{parameters['host']}:{parameters['port']}/{parameters['dbname']}"
    perdure = CommandLine(tmp_path)
    yield Place(perdure, store)
    perdure.end_all()


def test_six_innocent_runs_outlive_one_that_kills_its_server(place: Place) -> None:
    """Invariant 27: two deaths of the server, then as many of a child as the language allows."""
    place.let("gather")
    runs = [place.detach("good", f"good{n}", cap=1) for n in range(6)]
    killer = place.detach("kill", "killer", cap=3)
    servers = [place.serve()]
    deaths = place.serve_until(lambda: place.status(killer) == "failed", servers)
    place.let("go")
    deaths += place.serve_until(lambda: all(place.status(run) == "succeeded" for run in runs), servers)

    assert deaths == 2
    begun = place.noted("kill")
    assert [delivery for delivery, _ in begun] == [1, 2, 3, 4, 5]
    assert len({process for _, process in begun}) == 5
    assert servers[0].process.pid not in {process for _, process in begun[2:]}, "it lives, and they were children"
    assert "Platform.DeliveriesExhausted" in place("show", killer).out
    place.stop(servers)


def test_one_that_can_be_had_only_inside_is_begun_alone_there(place: Place) -> None:
    """Invariant 27: after two deaths nobody is beside it; the innocent end in between."""
    place.let("gather")
    runs = [place.detach("good-inside", f"good{n}", cap=1) for n in range(3)]
    killer = place.detach("kill-inside", "killer", cap=2)
    servers = [place.serve()]
    deaths = place.serve_until(lambda: place.status(killer) == "failed", servers)
    deaths += place.serve_until(lambda: all(place.status(run) == "succeeded" for run in runs), servers)

    assert 2 + 2 >= deaths >= 2, "those beside it may have ended before it killed"
    assert len(place.noted("kill")) == deaths
    place.stop(servers)


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_several_servers_go_on_with_what_is_known_of_a_killer(place: Place) -> None:
    """Invariant 27: it stands in the log, so whichever server takes over goes on from there."""
    place.let("gather")
    runs = [place.detach("good", f"good{n}", cap=1) for n in range(3)]
    killer = place.detach("kill", "killer", cap=3)
    servers = [place.serve() for _ in range(2)]
    deaths = place.serve_until(lambda: place.status(killer) == "failed", servers)
    place.let("go")
    deaths += place.serve_until(lambda: all(place.status(run) == "succeeded" for run in runs), servers)
    place.stop(servers)

    assert deaths == 2
    assert [delivery for delivery, _ in place.noted("kill")] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_lone_killer_ends_after_as_many_deaths_as_its_language_allows(place: Place) -> None:
    """Invariant 27: `run` and `resume` on a file know that nothing else was at work; each loss is charged."""
    place.let("gather")
    file = place.perdure.drill({"call": "kill-inside", "deliveries": 3}, name="killer")
    assert place("run", file, "--load", "./tasks.py", code=None).code == 9
    ((run,),) = place.query("SELECT id FROM {}runs")
    deaths = 1
    while (ended := place("resume", run, "--load", "./tasks.py", code=None)).code == 9:
        deaths += 1
        assert deaths < 10

    assert ended.code == 3 and "Platform.DeliveriesExhausted" in ended.err + ended.out
    assert deaths == len(place.noted("kill")) == 3
