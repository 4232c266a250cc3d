"""Cursor loops over real databases (PBK-114): each row is worked on once, also if the process dies in between."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.commandline import CommandLine
from tests.dialects.playbook.kinds import run
from tests.dialects.playbook.world import EXTENSION, playbook

CLAIMS = {
    "postgres": """
WITH mine AS (SELECT id FROM jobs WHERE claim = '{{ __frame_key }}'),
fresh AS (
  SELECT id FROM jobs WHERE claim IS NULL AND NOT EXISTS (SELECT 1 FROM mine)
  ORDER BY id FOR UPDATE SKIP LOCKED LIMIT {{ __frame_max_rows }}
)
UPDATE jobs SET claim = '{{ __frame_key }}'
FROM (SELECT id FROM mine UNION ALL SELECT id FROM fresh) AS c WHERE jobs.id = c.id RETURNING jobs.id
""",
    "sqlite": """
UPDATE jobs SET claim = '{{ __frame_key }}' WHERE id IN (
  SELECT id FROM jobs WHERE claim = '{{ __frame_key }}' OR claim IS NULL
  ORDER BY claim IS NULL, id LIMIT {{ __frame_max_rows }}
) RETURNING id
""",
    "duckdb": """
UPDATE jobs SET claim = '{{ __frame_key }}' WHERE id IN (
  SELECT id FROM jobs WHERE claim = '{{ __frame_key }}' OR claim IS NULL
  ORDER BY claim IS NULL, id LIMIT {{ __frame_max_rows }}
) RETURNING id
""",
}


def drained(kind: str, place: str, *, setup: str = "", before: str = "", in_flight: int = 2) -> str:
    claim = "\n".join(f"          {line}" for line in f"{before}{CLAIMS[kind]}".strip().split("\n"))
    return playbook(f"""
{EXTENSION}
workflow:
  - step: fill
    tool: {{kind: {kind}, {place}, commands: [{setup}]}}
    next: {{arcs: [{{step: drain}}]}}
  - step: drain
    loop:
      cursor:
        kind: {kind}
        {place}
        claim: |
{claim}
      iterator: job
      spec: {{mode: cursor, max_in_flight: {in_flight}, frame: {{max_rows: 2}}}}
    tool: {{kind: {kind}, {place}, command: "UPDATE jobs SET times = times + 1 WHERE id = {{{{ iter.job.id }}}}"}}
    next: {{arcs: [{{step: look, args: {{stats: "{{{{ event.result.stats }}}}"}}}}]}}
  - step: look
    tool:
      - rows: {{kind: {kind}, {place}, query: "SELECT id, times FROM jobs ORDER BY id"}}
      - all: {{kind: noop, result: {{stats: "{{{{ args.stats }}}}", rows: "{{{{ _prev.rows }}}}"}}}}
""")


FILL = [
    "CREATE TABLE jobs(id INTEGER, claim TEXT, times INTEGER)",
    "INSERT INTO jobs VALUES (1, NULL, 0), (2, NULL, 0), (3, NULL, 0), (4, NULL, 0), (5, NULL, 0)",
]
EACH_ONCE = {
    "stats": {"total": 5, "success": 5, "failed": 0},
    "rows": [{"id": number, "times": 1} for number in range(1, 6)],
}


@pytest.mark.parametrize("kind", ["postgres", "sqlite", "duckdb"])
async def test_a_table_is_drained(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = f"database: {tmp_path}/x.db"
    if kind == "postgres":
        place = f"dsn: '{request.getfixturevalue('postgres_url')}'"
    in_flight = 2 if kind == "postgres" else 1  # the others have one writer at a time

    view = await run(tmp_path, drained(kind, place, setup=", ".join(f'"{text}"' for text in FILL), in_flight=in_flight))

    assert view["result"] == EACH_ONCE


def test_a_process_that_dies_between_a_claim_and_its_record_loses_no_row(tmp_path: Path, postgres_url: str) -> None:
    """The rows are claimed in the database, and the run does not know: the claim is repeated under its key.

    The claim waits for a lock; meanwhile the process is stopped, so that it cannot hear of the answer.
    """
    perdure = CommandLine(tmp_path)
    text = drained("postgres", "auth: queue", setup='"SELECT 1"', before="SELECT pg_advisory_xact_lock(7);")
    (tmp_path / "drain.yaml").write_text(text)
    credential: dict[str, Any] = {"PERDURE_CREDENTIAL_QUEUE": json.dumps({"dsn": postgres_url})}
    with psycopg.connect(postgres_url, autocommit=True) as database:
        for statement in FILL:
            database.execute(statement)
        database.execute("SELECT pg_advisory_lock(7)")
        going = perdure.start("run", "drain.yaml", "--json", **credential)
        _until(lambda: _one(database, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
        going.send(signal.SIGSTOP)
        database.execute("SELECT pg_advisory_unlock(7)")
        _until(lambda: _one(database, "SELECT count(*) FROM jobs WHERE claim IS NOT NULL"))
        assert _one(database, "SELECT sum(times) FROM jobs") == 0
        going.kill()

        perdure("resume", **credential)

        (row,) = perdure.here("ps", "--json", "--all").json
        assert perdure.here("show", row["id"], "--json").json["result"] == EACH_ONCE
        assert _one(database, "SELECT count(DISTINCT claim) FROM jobs") == 3
    history = perdure.here("history", row["id"]).out
    assert "loop.frame.claimed" in history and postgres_url not in history


def _one(database: psycopg.Connection[Any], query: str) -> Any:
    row = database.execute(query).fetchone()
    assert row is not None
    return row[0]


def _until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
