"""Several `perdure serve` on one PostgreSQL database: they share, take over, hand over, and do no work twice.

Invariants 21 and 22 with real processes and a real server.
"""

import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.commandline import CommandLine, Running
from tests.postgres import OwnServer, own_server

LEASE = 8.0  # seconds; on a busy machine less is soon over

TASKS = """
import os, time
from pathlib import Path
import perdure

def note(word, context):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{word} {context.idempotency_key} {context.delivery} {os.getpid()}\\n")

@perdure.provider("work")
def work(input, context):
    note("work", context)
    time.sleep(0.02)
    return input

@perdure.provider("wait")
def wait(input, context):
    note("wait", context)
    end = time.time() + 100
    while not Path(os.environ["NOTES"] + "-go").exists() and time.time() < end:
        time.sleep(0.02)
        if context.cancelled:
            note("stopped", context)
            return "stopped"
    note("done", context)
    return "waited"
"""


class Fleet:
    """Servers on one database, in a folder with providers of their own."""

    def __init__(self, perdure: CommandLine, url: str) -> None:
        self.perdure = perdure
        self.url = url
        (perdure.folder / "tasks.py").write_text(TASKS)
        self.notes = perdure.folder / "notes"
        self.environment = {"PERDURE_DB": url, "PERDURE_DB_LEASE": str(LEASE), "NOTES": str(self.notes)}

    def serve(self, *words: str) -> Running:
        server = self.perdure.start("serve", "--load", "./tasks.py", *words, **self.environment)
        server.hear("serving ")
        return server

    def __call__(self, *words: str) -> Any:
        return self.perdure(*words, code=0, **self.environment)

    def start(self, *words: str) -> Running:
        return self.perdure.start(*words, **self.environment)

    def detach(self, *steps: dict[str, Any], name: str = "job") -> str:
        file = self.perdure.drill(*steps, name=name)
        done = self("run", file, "--load", "./tasks.py", "--detach")
        assert "recorded; " in done.err
        run: str = done.out.strip()
        return run

    def noted(self, word: str) -> list[tuple[str, int, int]]:
        """What tasks said: idempotency key, delivery, process."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        rows = [line.split() for line in lines]
        return [(key, int(delivery), int(process)) for label, key, delivery, process in rows if label == word]

    def go(self) -> None:
        Path(f"{self.notes}-go").touch()

    def query(self, text: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(text.encode()).fetchall()

    def shares(self) -> dict[int, int]:
        """By process: how many of the shared partitions it owns."""
        rows = self.query(
            "SELECT s.name, count(*) FROM perdure.partitions p JOIN perdure.servers s ON s.id = p.owner"
            " WHERE p.is_shared GROUP BY s.name"
        )
        return {int(name.rpartition(":")[2]): count for name, count in rows}

    def has_ended_well(self, run: str) -> bool:
        status = self.status(run)
        assert status != "failed", self("history", run).out
        return status == "succeeded"

    def status(self, run: str) -> str:
        rows = self.query(f"SELECT status FROM perdure.runs WHERE id = '{run}'")
        return rows[0][0] if rows else ""


def until(holds: Callable[[], Any], seconds: float = 90.0) -> float:
    """How long it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, "it does not happen"
        time.sleep(0.02)
    return time.monotonic() - began


@pytest.fixture
def fleet(tmp_path: Path, postgres_url: str) -> Iterator[Fleet]:
    from psycopg.conninfo import conninfo_to_dict

    parameters = conninfo_to_dict(postgres_url)
    perdure = CommandLine(tmp_path)
    yield Fleet(
        perdure, f"postgresql://{parameters['user']}@{parameters['host']}:{parameters['port']}/{parameters['dbname']}"
    )
    for server in perdure.started:
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGCONT)
            server.process.kill()
    for server in perdure.started:
        if server.process.stderr is not None and not server.process.stderr.closed:
            sys.stderr.write(f"process {server.process.pid} said:\n{server.end().err}\n")


def test_servers_share_what_there_is_as_they_come_and_go(fleet: Fleet) -> None:
    """Invariant 21: a fair part each; on SIGTERM the others have the rest at once."""
    first = fleet.serve()
    until(lambda: fleet.shares() == {first.process.pid: 64})
    second = fleet.serve()
    until(lambda: fleet.shares() == {first.process.pid: 32, second.process.pid: 32})
    third = fleet.serve()
    until(lambda: sorted(fleet.shares().values()) == [21, 21, 22])
    second.send(signal.SIGTERM)
    assert second.end().code == 0
    took = until(lambda: fleet.shares() == {first.process.pid: 32, third.process.pid: 32})
    assert took < LEASE, "they were told, they need not wait for a lease to end"
    first.send(signal.SIGTERM)
    assert first.end().code == 0
    until(lambda: fleet.shares() == {third.process.pid: 64})


def test_a_detached_run_is_done_by_a_server(fleet: Fleet) -> None:
    server = fleet.serve()
    kid = {"drill": 1, "name": "kid", "steps": [{"call": "work"}, {"return": "$input"}]}
    run = fleet.detach({"child": kid, "input": 7, "save": "x"}, {"call": "work", "deliveries": 1}, {"return": "$x"})

    until(lambda: fleet.status(run) == "succeeded")
    assert json.loads(fleet("show", run, "--json").out)["outcome"]["value"] == 7
    assert {process for _, _, process in fleet.noted("work")} == {server.process.pid}
    assert {delivery for _, delivery, _ in fleet.noted("work")} == {1}, "nothing was begun before it was detached"


def test_a_killed_server_is_taken_over_within_its_lease(fleet: Fleet) -> None:
    """Invariant 21: its open task is delivered again, its finished ones are not."""
    first = fleet.serve()
    run = fleet.detach({"call": "work"}, {"call": "wait", "save": "x"}, {"return": "$x"})
    until(lambda: fleet.noted("wait"))
    second = fleet.serve()
    fleet.serve()
    until(lambda: sorted(fleet.shares().values()) == [21, 21, 22] or first.process.pid in fleet.shares())
    first.kill()
    took = until(lambda: len(fleet.noted("wait")) == 2)
    fleet.go()
    until(lambda: fleet.status(run) == "succeeded")

    assert took < LEASE * 4
    assert [delivery for _, delivery, _ in fleet.noted("wait")] == [1, 2]
    assert len(fleet.noted("work")) == 1
    assert second.process.poll() is None


def test_a_run_of_a_killed_process_is_taken_up_by_a_server(fleet: Fleet) -> None:
    """A private engine that died leaves its runs to those who serve."""
    file = fleet.perdure.drill({"call": "wait", "save": "x"}, {"return": "$x"}, name="mine")
    mine = fleet.start("run", file, "--load", "./tasks.py")
    run = mine.run
    until(lambda: fleet.noted("wait"))
    server = fleet.serve()
    assert json.loads(fleet("ps", "--json").out)[0]["live"] is True
    mine.kill()
    until(lambda: len(fleet.noted("wait")) == 2)
    fleet.go()
    until(lambda: fleet.status(run) == "succeeded")

    assert [process for _, _, process in fleet.noted("wait")] == [mine.process.pid, server.process.pid]


def test_a_server_that_was_stopped_beyond_its_lease_writes_nothing_and_joins_anew(fleet: Fleet) -> None:
    """Invariant 22: it wakes up late, stops its task, and goes on as a server among others."""
    first = fleet.serve()
    run = fleet.detach({"call": "wait", "save": "x"}, {"return": "$x"})
    until(lambda: fleet.noted("wait"))
    os.kill(first.process.pid, signal.SIGSTOP)
    second = fleet.serve()
    until(lambda: len(fleet.noted("wait")) == 2)
    before = fleet.query("SELECT count(*) FROM perdure.log")
    os.kill(first.process.pid, signal.SIGCONT)
    until(lambda: fleet.noted("stopped"))
    until(lambda: set(fleet.shares()) == {first.process.pid, second.process.pid})
    assert fleet.query("SELECT count(*) FROM perdure.log") == before, "a late owner writes nothing"
    fleet.go()
    until(lambda: fleet.status(run) == "succeeded")

    assert [(delivery, process) for _, delivery, process in fleet.noted("done")] == [(2, second.process.pid)]
    assert [process for _, _, process in fleet.noted("stopped")] == [first.process.pid]


def test_work_is_not_done_twice_because_servers_come_and_go(fleet: Fleet) -> None:
    """Invariant 21: children, permits and fan-outs over partitions of several servers."""
    fleet.environment["PERDURE_DB_LEASE"] = "20"  # nobody may be late here: that would cost a delivery
    servers = [fleet.serve()]
    kid = {"drill": 1, "name": "kid", "steps": [{"call": "work", "deliveries": 1}, {"return": "$input"}]}
    door = {"permit": "door", "limit": 2, "do": [{"call": "work", "deliveries": 1}]}
    runs = []
    for number in range(12):
        runs.append(
            fleet.detach(
                {"each": 6, "do": [{"call": "work", "deliveries": 1}], "limit": 3},
                {"each": 3, "do": [{"child": kid, "input": number}]},
                {"each": 2, "do": [door]},
                {"return": number},
                name=f"job{number}",
            )
        )
        if number in (2, 5):
            servers.append(fleet.serve())
        if number == 8:
            servers[0].send(signal.SIGTERM)
    until(lambda: all(fleet.has_ended_well(run) for run in runs), 60)

    times = Counter(key for key, _, _ in fleet.noted("work"))
    assert set(times.values()) == {1} and len(times) == 12 * (6 + 3 + 2)
    assert len({process for _, _, process in fleet.noted("work")}) > 1
    assert fleet.query("SELECT count(*) FROM perdure.inbox") == [(0,)]
    assert fleet.query("SELECT count(*) FROM perdure.permits") == [(0,)]


def test_lost_connections_stop_no_server_and_lose_no_result(fleet: Fleet) -> None:
    """Invariant 2: a commit of unknown end is looked up; a result that came meanwhile is recorded, not had again."""
    server = fleet.serve()
    runs = [
        fleet.detach({"call": "wait", "deliveries": 1, "save": "x"}, {"return": "$x"}, name=f"n{n}") for n in (1, 2)
    ]
    until(lambda: len(fleet.noted("wait")) == 2)
    for moment in range(12):
        fleet.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'perdure-%'"
        )
        if moment == 5:
            fleet.go()
        time.sleep(0.1)
    until(lambda: all(fleet.has_ended_well(run) for run in runs))

    assert len(fleet.noted("wait")) == len(fleet.noted("done")) == 2
    assert server.process.poll() is None


def test_signals_and_cancels_reach_a_run_wherever_it_is(fleet: Fleet) -> None:
    fleet.serve()
    fleet.serve()
    waits = [fleet.detach({"signal": "go", "save": "x"}, {"return": "$x"}, name=f"w{n}") for n in range(4)]
    for run in waits[:2]:
        fleet("signal", run, "go", '"said"')
    for run in waits[2:]:
        fleet("cancel", run)

    until(lambda: all(fleet.status(run) in ("succeeded", "cancelled") for run in waits))
    assert [fleet.status(run) for run in waits] == ["succeeded"] * 2 + ["cancelled"] * 2


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def health(port: int) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)


def test_the_health_page_tells_of_lease_and_store(fleet: Fleet) -> None:
    port = free_port()
    fleet.serve("--health", str(port))
    assert health(port) == (200, {"well": True, "lease": True, "store": True})
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/anything")


@pytest.fixture
def asleep(tmp_path: Path) -> Iterator[tuple[CommandLine, OwnServer, str]]:
    """A database server that was stopped, and its address."""
    with own_server(18) as server:
        server.stop()
        perdure = CommandLine(tmp_path)
        yield perdure, server, f"postgresql://postgres:s3cret@127.0.0.1:{server.port}/postgres"
        perdure.end_all()


def test_a_server_waits_for_a_database_that_comes_later(asleep: tuple[CommandLine, OwnServer, str]) -> None:
    """It says what it waits for, and is not well before it serves."""
    perdure, database, url = asleep
    port = free_port()
    server = perdure.start("serve", "--db", url, "--health", str(port))
    assert "Connection refused" in server.hear("waiting for a store")
    assert "every 2 seconds; stop with Ctrl-C or SIGTERM" in server.hear("trying again")
    assert health(port) == (503, {"well": False, "lease": False, "store": False})
    database.start()
    server.hear("answers, after")
    server.hear("serving ")
    until(lambda: health(port) == (200, {"well": True, "lease": True, "store": True}))
    server.send(signal.SIGTERM)
    done = server.end()
    assert done.code == 0
    assert "s3cret" not in done.err and "Traceback" not in done.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0)])
def test_a_server_that_waits_for_its_database_ends_at_once(
    asleep: tuple[CommandLine, OwnServer, str], number: signal.Signals, code: int
) -> None:
    perdure, _, url = asleep
    server = perdure.start("serve", "--db", url)
    server.hear("trying again")
    began = time.monotonic()
    server.send(number)
    done = server.end()
    assert done.code == code and time.monotonic() - began < 60, "a database that is away is waited for without end"
    assert "stopped before" in done.err and "Traceback" not in done.err


def test_a_server_waits_no_longer_than_it_was_told(asleep: tuple[CommandLine, OwnServer, str]) -> None:
    perdure, _, url = asleep
    began = time.monotonic()
    done = perdure("serve", "--db", url, "--wait", "3s", "--json", code=1)
    assert time.monotonic() - began < 60
    assert "at most 3.0 s" in done.err
    assert done.error["code"] == "STORE-UNREACHABLE" and "s3cret" not in done.err + done.out


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("is_late", "moment"), [(False, "serving "), (False, "listening on "), (True, "listening on ")]
)
def test_a_server_ends_in_time_although_its_database_is_away(
    asleep: tuple[CommandLine, OwnServer, str], is_late: bool, moment: str
) -> None:
    """Whether its lease is over by then or not; and an outage does not fill the log."""
    perdure, database, url = asleep
    database.start()
    server = perdure.start("serve", "--db", url, "--grace", "1s", "--lease", "2s", "--listen", "127.0.0.1:0")
    server.hear("listening on ")
    database.stop()
    server.hear("late to renew" if is_late else "the lease cannot be renewed now")
    began = time.monotonic()
    server.send(signal.SIGTERM)
    done = server.end()

    assert done.code == 0
    assert time.monotonic() - began < 60
    assert "Traceback" not in done.err and "never retrieved" not in done.err
    assert "stopped; the runs are durable" in done.err


def refuse(port: int, times: int) -> None:
    """In a stopped server's place: close so many connections at once."""
    with socket.create_server(("127.0.0.1", port)) as door:
        door.settimeout(30)
        for _ in range(times):
            door.accept()[0].close()


def test_an_outage_does_not_fill_the_log(asleep: tuple[CommandLine, OwnServer, str]) -> None:
    perdure, database, url = asleep
    database.start()
    server = perdure.start("serve", "--db", url, "--lease", "2s")
    server.hear("serving ")
    database.stop()
    refuse(database.port, times=20)
    database.start()
    server.send(signal.SIGTERM)
    done = server.end()
    assert done.code == 0
    assert len(done.err.splitlines()) < 12, done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--health", "99999"), "is not a port"),
        (("--health", "x"), "is not a port"),
        (("--lease", "0"), "too short"),
        (("--lease", "200ms"), "too short"),
        (("--grace", "-1"), "not a duration"),
    ],
)
def test_words_that_make_no_sense_are_told_at_once(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = CommandLine(tmp_path)("serve", *words, code=2)
    assert message in done.err and "unexpected" not in done.err


def test_a_server_that_leaves_names_those_who_go_on(fleet: Fleet) -> None:
    first, second = fleet.serve(), fleet.serve()
    first.send(signal.SIGTERM)
    assert "The other servers continue them." in first.end().err
    second.send(signal.SIGTERM)
    assert "Continue with: perdure serve" in second.end().err
