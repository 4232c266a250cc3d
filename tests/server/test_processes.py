"""`perdure serve --processes N`: several processes that are one server, on one store and one address."""

import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commandline import CommandLine, strict_json
from tests.postgres import as_url
from tests.server.serving import WAITS, Api, Server
from tests.server.test_metrics import figures
from tests.server.test_no_engine import until

STARTS = 24


def children(pid: int) -> list[int]:
    """Of the supervisor: the processes that serve."""
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def homes(folder: Path) -> dict[int, int]:
    """How many open runs each partition has."""
    with sqlite3.connect(folder / "perdure.db") as connection:
        query = "SELECT partition, count(*) FROM runs WHERE ended_at IS NULL GROUP BY partition"
        return dict(connection.execute(query).fetchall())


def start_waiting(api: Api, count: int = STARTS) -> list[str]:
    return [api.start(WAITS) for _ in range(count)]


def finish(api: Api, runs: list[str]) -> None:
    for number, run in enumerate(runs):
        answer = api("POST", f"/api/v1/runs/{run}/signals/go", {"value": number})
        assert answer.status in (200, 202), answer.text
    assert [api.result(run)["value"] for run in runs] == list(range(len(runs)))


def test_two_processes_share_runs_and_answer_about_each_others(tmp_path: Path) -> None:
    """SRV-072: a request reaches any of them, and any of them owns the run."""
    server = Server.start(tmp_path, "--processes", "2", "--json")
    api = server.admin
    pid = server.process.process.pid
    assert len(children(pid)) == 2
    assert all(server["serves"] for server in api("GET", "/api/v1/servers").json["items"])
    runs = start_waiting(api)
    assert len(homes(tmp_path)) == 2, "both processes have runs"
    assert min(homes(tmp_path).values()) >= STARTS // 4
    finish(api, runs)
    assert api("GET", "/api/v1/audit:verify").json["problems"] == []
    processes = children(pid)
    server.process.send(signal.SIGTERM)
    done = server.process.end()
    assert done.code == 0, done
    assert strict_json(done.out) == {"url": server.url, "pid": pid}
    assert done.err.count("listening on") == done.err.count("stopped; the runs are durable") == 1, done.err
    assert not any(map(is_alive, processes))


def started_runs(api: Api) -> float:
    """As `/metrics` of one of the processes has it, which is the sum of all."""
    return figures(api("GET", "/metrics").text.decode())["perdure_runs_started_total", 'language="drill"']


def test_siblings_take_over_the_runs_of_a_process_that_was_killed(tmp_path: Path) -> None:
    """SRV-003: figures are those of all processes, whichever is asked, and no counter goes back."""
    server = Server.start(tmp_path, "--processes", "2")
    api, pid = server.admin, server.process.process.pid
    runs = start_waiting(api)
    until(lambda: started_runs(api) == STARTS)
    dead, survivor = children(pid)
    os.kill(dead, signal.SIGKILL)
    assert "was killed by signal 9" in server.process.hear("process 1 of 2")
    finish(api, runs)
    until(lambda: len(children(pid)) == 2)
    assert survivor in children(pid)
    assert started_runs(api) == STARTS, "what a process had counted is not forgotten with it"
    more = start_waiting(api)
    until(lambda: started_runs(api) == 2 * STARTS)
    os.kill(survivor, signal.SIGKILL)
    finish(api, more)
    server.stop()


def wake_ups(pid: int) -> int:
    """How often the event loop of this process has gone to sleep, and so was woken."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["voluntary_ctxt_switches"])


def test_a_server_to_which_nobody_speaks_wakes_once_a_second(tmp_path: Path) -> None:
    """Invariant 25: all that is looked at from time to time is looked at together."""
    server = Server.start(tmp_path, "--processes", "2")
    processes = children(server.process.process.pid)
    time.sleep(2)  # what follows from its beginning is done
    before, began = [wake_ups(pid) for pid in processes], time.monotonic()
    time.sleep(4)
    seconds = time.monotonic() - began
    woken = [wake_ups(pid) - count for pid, count in zip(processes, before, strict=True)]
    assert all(count <= 2 * seconds + 3 for count in woken), f"{woken} in {seconds:.1f} s"
    assert all(count >= 2 for count in woken), "it does look"
    server.stop()


def test_processes_end_with_their_supervisor(tmp_path: Path) -> None:
    server = Server.start(tmp_path, "--processes", "2")
    api = server.admin
    runs = start_waiting(api, 4)
    processes = children(server.process.process.pid)
    server.process.kill()
    until(lambda: not any(map(is_alive, processes)))
    again = Server.start(tmp_path, "--processes", "3")
    finish(again.admin, runs)
    again.stop()


def test_a_restart_deals_open_runs_out(tmp_path: Path) -> None:
    first = Server.start(tmp_path)
    runs = start_waiting(first.admin, 40)
    first.stop()
    server = Server.start(tmp_path, "--processes", "2")
    until(lambda: len(homes(tmp_path)) == 2 and min(homes(tmp_path).values()) >= 8)
    finish(server.admin, runs)
    server.stop()


def test_a_second_server_waits_for_the_whole_first_one(tmp_path: Path) -> None:
    """SRV-002: on one file one server drives runs, however many processes it is."""
    first = Server.start(tmp_path, "--processes", "2")
    second = Server.start(tmp_path, "--processes", "2")
    second_pids = children(second.process.process.pid)
    runs = start_waiting(Api(second.url, first.admin.token), 4)
    assert len(first.admin("GET", "/api/v1/servers").json["items"]) == 2
    first.stop()
    finish(Api(second.url, first.admin.token), runs)
    assert children(second.process.process.pid) == second_pids
    second.stop()


@pytest.mark.parametrize(
    ("words", "code"),
    [(("--load", "no_such_module_here"), 1), (("--config", "missing.toml"), 1), (("--apply", "x"), 8)],
)
def test_what_keeps_a_process_from_starting_ends_the_server(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    alone, several = (
        CommandLine(tmp_path)("serve", "--listen", "127.0.0.1:0", "--json", *words, *more, code=None)
        for more in ((), ("--processes", "2"))
    )
    assert several.code == alone.code and several.code == code
    assert several.error == alone.error


def test_a_number_of_processes_is_checked(tmp_path: Path) -> None:
    done = CommandLine(tmp_path)("serve", "--processes", "0", code=2)
    assert "'0' is not a number of processes (expected 1 to 64)" in done.err


def test_processes_on_postgresql_share_partitions(tmp_path: Path, postgres_url: Any) -> None:
    words = ("--db", as_url(postgres_url), "--data", str(tmp_path / "data"), "--lease", "3s", "--processes", "2")
    server = Server.start(tmp_path, *words)
    api = Api(server.url, (tmp_path / "data" / "admin-token").read_text().strip())
    assert len(api("GET", "/api/v1/servers").json["items"]) == 2
    runs = start_waiting(api, 8)
    os.kill(children(server.process.process.pid)[0], signal.SIGKILL)
    finish(api, runs)
    server.stop()
