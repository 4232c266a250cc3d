"""Schedules, backfill, alerts and retention from the command line: the documents of the guide, in real processes."""

import json
import re
import time
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commandline import PATIENCE, CommandLine, in_terminal
from tests.cli.test_terminal import _screen
from tests.stores.test_postgres import as_url

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "schedules.md"
FAILING = 'raise RuntimeError("the warehouse is down")'

MINUTELY = """\
apiVersion: bubustack.io/v1alpha1
kind: Impulse
metadata: {name: minutely}
spec:
  templateRef: {name: cron}
  documentRef: {language: flow, name: ping}
  with:
    concurrencyPolicy: skip
    schedules:
    - {name: minute, cron: "* * * * *", inputs: {n: 1}}
"""
PING = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "rest",
    "steps": {
        "rest": {"action": "Sleep", "for": "PT0.05S", "next": "end"},
        "end": {"action": "Return", "value": "{{ frame.input }}"},
    },
}


LONG = 4 * PATIENCE  # servers that start runs one after the other, with pauses, on a busy machine


@pytest.fixture(autouse=True)
def patient(perdure: CommandLine) -> None:
    perdure.timeout = LONG


def written(perdure: CommandLine, code: str = 'result = {"rows": 42}') -> list[str]:
    """The documents of the guide."""
    text = GUIDE.read_text(encoding="utf-8")
    blocks = dict(re.findall(r"```yaml\n# (\S+)\n(.*?)```", text, re.DOTALL))
    (alert,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    blocks["nightly.yaml"] = blocks["nightly.yaml"].replace('result = {"rows": 42}', code)
    blocks["alert.json"] = alert
    for name, block in blocks.items():
        (perdure.folder / name).write_text(block)
    return [word for name in blocks for word in ("-f", name)]


def minutely(perdure: CommandLine, *more: str, policy: str = "concurrencyPolicy: skip") -> None:
    (perdure.folder / "ping.json").write_text(json.dumps(PING))
    (perdure.folder / "minutely.yaml").write_text(MINUTELY.replace("concurrencyPolicy: skip", policy))
    perdure.here("apply", "-f", "ping.json", "-f", "minutely.yaml", *more)


def until(perdure: CommandLine, is_done: Any, *more: str) -> list[dict[str, Any]]:
    deadline = time.monotonic() + LONG
    while True:
        rows: list[dict[str, Any]] = perdure.here("ps", "--all", "--json", *more).json
        if is_done(rows):
            return rows
        assert time.monotonic() < deadline, rows
        time.sleep(0.1)


def test_a_nightly_playbook_is_backfilled_and_its_failure_alerts(perdure: CommandLine) -> None:
    """The journey of the guide: a Playbook with retries that fails, its schedule, a backfill, and the alert."""
    perdure("apply", *written(perdure, FAILING))
    times = perdure("schedule", "next", "nightly", "3").out.splitlines()
    assert len(times) == 3 and all(
        re.fullmatch(r"\d{4}-\d\d-\d\dT03:30\+0[12]:00  starts 03:3\d:\d\d", time) for time in times
    )
    command = ("schedule", "backfill", "nightly", "--from", "2026-05-01", "--to", "2026-05-02")
    assert perdure(*command, "--dry-run").out.split() == ["2026-05-01T03:30+02:00", "2026-05-02T03:30+02:00"]
    assert perdure(*command, "--json").json["times"] == ["2026-05-01T01:30:00.000000Z", "2026-05-02T01:30:00.000000Z"]
    assert perdure(*command, "--json").json["times"] == []
    perdure.start("serve")

    def over(rows: list[dict[str, Any]]) -> bool:
        return len([row for row in rows if row["name"] == "alert" and row["ended_at"]]) == 2

    rows = until(perdure, over)
    failed = {row["id"]: row for row in rows if row["name"] == "nightly"}
    assert [row["status"] for row in failed.values()] == ["failed", "failed"]
    alerts = [row for row in rows if row["name"] == "alert"]
    assert {row["labels"]["perdure.dev/alert-for"] for row in alerts} == set(failed)
    (value,) = {perdure.here("run", "alert", "--input", _told("nightly", "failed")).out.strip()}
    assert value.strip('"') == "ops: nightly failed"


def _told(name: str, status: str) -> str:
    return json.dumps({"channel": "ops", "failedRun": {"name": name, "status": status}})


def test_a_killed_server_loses_no_time_and_starts_none_twice(perdure: CommandLine) -> None:
    """SRV-042: killed while it starts the times of a backfill, one after the other, and started again."""
    minutely(perdure)
    perdure.here("schedule", "backfill", "minutely", "--from", "2026-05-01T10:00", "--to", "2026-05-01T10:05")
    first = perdure.start("serve")
    for _ in range(2):
        first.hear("schedule minute: Created")
    first.kill()
    perdure.start("serve")
    rows = until(perdure, lambda rows: len(_backfilled(rows)) == 6 and all(row["ended_at"] for row in rows))
    assert _backfilled(rows) == [f"2026-05-01T10:{minute:02}:00Z" for minute in range(6)]
    assert perdure.here("schedule", "list", "--json").json[0]["waiting"] == 0


@pytest.mark.deep
def test_a_schedule_of_every_minute_fires_each_minute_once_over_a_kill(perdure: CommandLine) -> None:
    """SRV-042 in real time: the server is killed when it has started a minute, and another one serves the next."""
    minutely(perdure, policy="catchUpWindow: 10m")
    perdure.timeout = 300.0
    first = perdure.start("serve")
    first.hear("schedule minute: Created")
    first.kill()
    second = perdure.start("serve")
    second.hear("schedule minute: Created")
    second.kill()
    third = perdure.start("serve")
    third.hear("serving")
    rows = until(perdure, lambda rows: len(rows) >= 2 and all(row["ended_at"] for row in rows))
    times = sorted(datetime.fromisoformat(row["labels"]["perdure.dev/scheduled-at"]) for row in rows)

    assert len(set(times)) == len(times), "each minute once"
    assert [later - earlier for earlier, later in pairwise(times)] == [timedelta(minutes=1)] * (len(times) - 1)


def _backfilled(rows: list[dict[str, Any]]) -> list[str]:
    times = [row["labels"]["perdure.dev/scheduled-at"] for row in rows if row["name"] == "ping"]
    return sorted(time for time in times if time.startswith("2026-05-01"))


def test_two_servers_on_postgresql_start_each_time_once_and_one_is_killed(
    perdure: CommandLine, postgres_url: str
) -> None:
    """SRV-042"""
    store = ("--db", as_url(postgres_url))
    minutely(perdure, *store)
    perdure.here("schedule", "backfill", "minutely", "--from", "2026-05-01T10:00", "--to", "2026-05-01T10:05", *store)
    first, second = (perdure.start("serve", "--lease", "3s", *store) for _ in range(2))
    second.hear("serving")
    first.hear("serving")
    until(perdure, lambda rows: len(_backfilled(rows)) >= 2, *store)
    first.kill()
    rows = until(perdure, lambda rows: len(_backfilled(rows)) == 6 and all(row["ended_at"] for row in rows), *store)
    assert _backfilled(rows) == [f"2026-05-01T10:{minute:02}:00Z" for minute in range(6)]


def test_schedules_are_listed_paused_and_unpaused(perdure: CommandLine) -> None:
    perdure.here("apply", *written(perdure))
    (listed,) = perdure("schedule", "list", "--json").json
    assert (listed["name"], listed["cron"], listed["timezone"]) == ("nightly/night", "30 3 * * *", "Europe/Oslo")
    assert (listed["overlap"], listed["catch_up_seconds"], listed["jitter_seconds"]) == ("skip", 21_600, 300)
    assert listed["starts"] == "etl/nightly" and listed["paused"] is None and len(listed["next"]) == 1
    perdure("schedule", "pause", "nightly", "--reason", "moving", "--by", "Ada")
    assert "unpause" in perdure("schedule", "pause", "nightly/night", code=9).err
    (listed,) = perdure.here("schedule", "list", "--json").json
    assert (listed["paused"]["by"], listed["paused"]["reason"], listed["next"]) == ("Ada", "moving", [])
    assert "paused" in perdure.here("schedule", "list").out
    assert "paused: none of them is started" in perdure.here("schedule", "next", "nightly").err
    assert "next: " in perdure("schedule", "unpause", "nightly").err
    perdure.here("apply", *written(perdure))
    assert perdure.here("schedule", "list", "--json").json[0]["paused"] is None


def test_what_cannot_be_done_with_a_schedule_is_refused(perdure: CommandLine) -> None:
    perdure.here("apply", *written(perdure))
    assert "did you mean 'nightly/night'" in perdure("schedule", "next", "nightly/nigth", code=8).err
    assert perdure("schedule", "next", "x", "--json", code=8).error["code"] == "RESOURCE-NOT-FOUND"
    perdure.here("schedule", "backfill", "nightly", "--from", "2026-05-02", "--to", "2026-05-01", code=2)
    perdure.here("schedule", "backfill", "nightly", "--from", "1h", "--to", "2126-05-01", code=2)
    perdure.here("schedule", "backfill", "nightly", "--from", "soon", "--to", "1h", code=2)
    perdure("schedule", "next", "nightly", "0", code=2)
    perdure("schedule", code=2)


@pytest.mark.parametrize("columns", [80, 140])
def test_the_list_fits_a_terminal(perdure: CommandLine, columns: int) -> None:
    perdure.here("apply", *written(perdure))
    code, seen = in_terminal(perdure.folder, "schedule", "list", columns=columns)
    lines = _screen(seen, columns)
    assert code == 0 and all(len(line) <= columns for line in lines)
    assert any("nightly/night" in line and "30 3 * * *" in line and "T03:30" in line for line in lines)


def test_runs_of_every_language_are_removed_by_the_operators_rules(perdure: CommandLine) -> None:
    """By language, document and status; what no rule fits stays."""
    perdure.here("apply", *written(perdure))
    perdure.here("run", "etl/nightly")
    perdure.here("run", "alert", "--input", _told("a", "b"))
    perdure.here("run", "alert", "--input", "{}", code=3)

    def left(*rules: dict[str, Any]) -> list[tuple[str, str]]:
        perdure("prune", PERDURE_RETENTION=json.dumps(rules))
        return sorted((row["name"], row["status"]) for row in perdure.here("ps", "--all", "--json").json)

    everything = [("alert", "failed"), ("alert", "succeeded"), ("nightly", "succeeded")]
    assert left() == everything
    assert left({"keep": "1h"}) == everything
    assert left({"keep": "forever", "document": "al*"}, {"keep": "0s", "language": "flow"}) == everything
    assert left({"keep": "0s", "namespace": "other"}) == everything
    assert left({"keep": "0s", "status": "succeeded", "language": "flow"}) == [everything[0], everything[2]]
    (perdure.folder / "settings.toml").write_text('[[retention]]\nkeep = "0s"\nstatus = ["failed", "timed_out"]\n')
    perdure("prune", PERDURE_CONFIG="settings.toml")
    assert left() == [everything[2]]
    assert left({"keep": "0s"}) == []


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"keep": "soon"}, "'soon' is not a duration"),
        ({"keep": "1d", "stauts": "failed"}, "stauts"),
        ({"keep": "1d", "status": "running"}, "'running' is not how a run ends"),
        ({}, "keep"),
    ],
)
def test_a_rule_that_cannot_be_read_removes_nothing(perdure: CommandLine, rule: Any, message: str) -> None:
    perdure.here("apply", *written(perdure))
    assert message in perdure("prune", PERDURE_RETENTION=json.dumps([rule]), code=None).err
