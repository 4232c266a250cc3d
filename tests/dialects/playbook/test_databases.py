"""Database kinds with the real worker: what their outcomes say, and that a task is one transaction (PBK-097, 075)."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from perdure.dialects.playbook import Playbook
from tests.cli.commandline import CommandLine
from tests.dialects.playbook.kinds import outcome, run, task
from tests.dialects.playbook.world import playbook


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgres"])
async def test_a_pipeline_through_a_database(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PBK-097 PBK-092."""
    monkeypatch.chdir(tmp_path)
    dsn = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    place = f"auth: {{dsn: '{dsn}'}}" if dsn else "database: '{{ workload.file }}'"
    places = {"sqlite": ":n, :v", "duckdb": "$n, $v", "postgres": "%(n)s, %(v)s"}[kind]
    text = playbook(f"""
workflow:
  - step: work
    tool:
      - create: {{kind: {kind}, {place}, command: "CREATE TABLE t(n INTEGER, v TEXT)"}}
      - fill:
          kind: {kind}
          {place}
          commands:
            - {{command: "INSERT INTO t VALUES ({places})", params: {{n: 1, v: "{{{{ workload.v }}}}"}}}}
            - {{command: "INSERT INTO t VALUES ({places})", params: {{n: 2, v: null}}}}
      - read: {{kind: {kind}, {place}, query: "SELECT * FROM t WHERE n < {{{{ 1 + 2 }}}} ORDER BY n"}}
      - all: {{kind: noop, result: "{{{{ results }}}}"}}
""")

    view = await run(tmp_path, text, {"v": "it's {{ not }} a template", "file": f"{tmp_path}/x.db"})

    assert view["result"] == {
        "create": {"rows": [], "row_count": 0, "columns": []},
        "fill": {"rows": [], "row_count": 2, "columns": []},
        "read": {
            "rows": [{"n": 1, "v": "it's {{ not }} a template"}, {"n": 2, "v": None}],
            "row_count": 2,
            "columns": ["n", "v"],
        },
    }


async def test_a_document_that_reads_results_of_single_statements_gets_them(tmp_path: Path) -> None:
    """PBK-158: `command_0`, as NoETL names them; other documents do not carry them."""
    text = playbook("""
executor: {spec: {compat: io}}
workflow:
  - step: fill
    tool:
      kind: sqlite
      command: "CREATE TABLE t(n INTEGER); INSERT INTO t VALUES (7); SELECT n FROM t; SELECT 1 AS one"
    next: {arcs: [{step: read}]}
  - step: read
    tool: {kind: noop, result: "{{ [NAMES] }}"}
""")

    folders = [tmp_path / "each", tmp_path / "last"]
    for folder in folders:
        folder.mkdir()

    names = "fill.command_2.rows, fill.data.command_3.rows, fill.rows"
    each = await run(folders[0], text.replace("NAMES", names))
    last = await run(folders[1], text.replace("NAMES", "fill"))

    assert each["result"] == [[{"n": 7}], [{"one": 1}], [{"one": 1}]]
    assert last["result"] == [{"rows": [{"one": 1}], "row_count": 1, "columns": ["one"]}]


@pytest.mark.parametrize(
    ("text", "kind", "state", "retryable"),
    [
        ("CREATE TABLE t(a int UNIQUE); INSERT INTO t VALUES (1), (1)", "db_constraint", "23505", False),
        ("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40P01'; END $$", "db_deadlock", "40P01", True),
        ("SET LOCAL statement_timeout = 50; SELECT pg_sleep(9)", "db_timeout", "57014", True),
        ("SELECT pg_terminate_backend(pg_backend_pid())", "db_connection", "57P01", True),
        ("SELEC 1", "client_error", "42601", False),
        ("COMMIT", "client_error", None, False),
    ],
)
async def test_errors_of_postgres(
    tmp_path: Path, postgres_url: str, text: str, kind: str, state: str | None, retryable: bool
) -> None:
    """PBK-075 PBK-097: `outcome.pg` says the server's own code."""
    seen = await outcome(tmp_path, "postgres", auth={"dsn": postgres_url}, command=text)

    assert seen["status"] == "error" and seen["result"] is None
    assert (seen["error"]["kind"], seen["error"]["retryable"]) == (kind, retryable)
    assert seen["pg"] == {"code": state, "sqlstate": state}
    assert seen["error"]["code"] == (state or "BAD_STATEMENT")


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    """PBK-075."""
    seen = await outcome(tmp_path, "postgres", host="127.0.0.1", port=1, query="SELECT 1")

    assert (seen["error"]["kind"], seen["error"]["retryable"]) == ("db_connection", True)
    assert seen["pg"] == {"code": None, "sqlstate": None}


async def test_a_good_outcome_has_its_helper_too(tmp_path: Path, postgres_url: str) -> None:
    """PBK-076."""
    seen = await outcome(tmp_path, "postgres", auth={"dsn": postgres_url}, query="SELECT 1 AS n")

    assert seen["result"]["rows"] == [{"n": 1}] and seen["pg"] == {"code": None, "sqlstate": None}
    assert "http" not in seen


async def test_a_time_limit_undoes_the_task(tmp_path: Path, postgres_url: str) -> None:
    """PBK-193 PBK-097."""
    auth = {"dsn": postgres_url}
    await outcome(tmp_path, "postgres", auth=auth, command="CREATE TABLE t(a int)")
    late = ["INSERT INTO t VALUES (1)", "SELECT pg_sleep(60)"]

    seen = await outcome(tmp_path, "postgres", auth=auth, commands=late, spec={"timeout": "300ms"})

    assert (seen["error"]["kind"], seen["error"]["retryable"]) == ("timeout", True)
    result = await outcome(tmp_path, "postgres", auth=auth, query="SELECT count(*) AS n FROM t")
    assert result["result"]["rows"] == [{"n": 0}]


@pytest.mark.parametrize(
    ("kind", "fields", "error"),
    [
        ("sqlite", {"command": "CREATE TABLE t(a UNIQUE); INSERT INTO t VALUES (1), (1)"}, "db_constraint"),
        ("sqlite", {"query": "SELECT * FROM nowhere"}, "client_error"),
        ("sqlite", {"query": "SELECT 1", "database": "/nowhere/at/all.db"}, "storage_access"),
        ("sqlite", {"query": "SELECT 1", "auth": "no_such_credential"}, "auth"),
        ("sqlite", {"query": ["SELECT 1"]}, "schema"),
        ("sqlite", {"script": {"uri": "gone.sql"}}, "not_found"),
        ("duckdb", {"command": "CREATE TABLE t(a INT UNIQUE); INSERT INTO t VALUES (1), (1)"}, "db_constraint"),
        ("duckdb", {"query": "SELEC 1"}, "client_error"),
    ],
)
async def test_errors_of_files(tmp_path: Path, kind: str, fields: Any, error: str) -> None:
    """PBK-075 PBK-097."""
    seen = await outcome(tmp_path, kind, **fields)

    assert (seen["error"]["kind"], seen["error"]["retryable"], seen["result"]) == (error, False, None)
    assert "pg" not in seen


async def test_sql_from_a_file_beside_the_document(tmp_path: Path) -> None:
    """PBK-092 PBK-097: a script is never a template; its values come by name from `args`, or from `params`."""
    (tmp_path / "find.sql").write_text("SELECT :who AS who, '{{ workload.x }}' AS text")
    by_args = {"script": {"uri": "{{ workload.name }}.sql"}, "args": {"who": "Ada"}}
    by_params = {"script": {"uri": "find.sql"}, "params": {"who": "Grace"}, "query": "SELECT 1"}

    for fields, who in ((by_args, "Ada"), (by_params, "Grace")):
        seen = await outcome(tmp_path, "sqlite", {"name": "find"}, **fields)
        assert seen["result"]["rows"] == [{"who": who, "text": "{{ workload.x }}"}]


def test_a_killed_engine_leaves_nothing_half_written_and_goes_on(tmp_path: Path, postgres_url: str) -> None:
    """PBK-097 PBK-195: the statement behind the insert waits for a lock of ours when the engine dies."""
    commands = ["INSERT INTO t VALUES (1)", "SELECT pg_advisory_xact_lock(42)"]
    (tmp_path / "book.yaml").write_text(task("postgres", dsn=postgres_url, commands=commands))
    perdure = CommandLine(tmp_path)
    with psycopg.connect(postgres_url, autocommit=True) as ours:
        ours.execute("CREATE TABLE t(a int)")
        ours.execute("SELECT pg_advisory_lock(42)")
        victim = perdure.start("run", "book.yaml")
        while not ours.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory'").fetchone():
            assert victim.process.poll() is None
        victim.process.kill()
        perdure.end_all()
        assert ours.execute("SELECT count(*) FROM t").fetchone() == (0,)

        ours.execute("SELECT pg_advisory_unlock(42)")
        [row] = perdure.here("ps", "--json").json
        perdure.here("resume", row["id"])
        assert ours.execute("SELECT count(*) FROM t").fetchone() == (1,)
    assert perdure.here("show", row["id"], "--json").json["status"] == "success"


def problems(text: str, lacks: Any = lambda kind: None) -> list[tuple[str, str, str]]:
    problems = Playbook(lacks=lacks).parse(text.encode()).problems
    return [(item.code, item.message, item.hint) for item in problems]


def test_a_task_without_statements_is_refused() -> None:
    """PBK-097 PBK-020."""
    [(code, message, _)] = problems(task("postgres", params=[1]))

    assert code == "PBK-020" and "needs 'command' or 'commands' or 'query'" in message


@pytest.mark.parametrize(
    ("script", "expectation"),
    [
        ({"source": {"type": "file"}}, "lacks 'uri'"),
        ({"uri": ""}, "must not be empty"),
        ({"uri": "a.sql", "source": {"type": "gcs"}}, "must be one of file, http, https, s3"),
        ({"uri": "a.sql", "folder": "/"}, "no member 'folder'"),
        (["a.sql"], "must be a map"),
    ],
)
def test_a_script_that_says_nothing_usable_is_refused(script: Any, expectation: str) -> None:
    """PBK-092."""
    [(code, message, _)] = problems(task("sqlite", script=script))

    assert code == "PBK-092" and expectation in message


def test_a_missing_library_is_a_warning_of_check() -> None:
    """PBK-101."""
    lacks = {"postgres": "perdure[postgres]"}.get

    [(code, message, hint)] = problems(task("postgres", query="SELECT 1"), lacks)

    assert (code, "cannot be used on this machine" in message) == ("PBK-101", True)
    assert "pip install 'perdure[postgres]'" in hint
