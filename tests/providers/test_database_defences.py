"""What statements of a document cannot do: to the engine's store, to files of the machine, to its memory."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import apsw
import psycopg
import pytest
from tests.postgres import VERSIONS, Server
from tests.workers.scene import (
    Ledger,
    at_work,
    details_of,
    failure_of,
    is_cancelled,
    on_loop,
    outcome_of,
    task,
    value_of,
)

from perdure.kernel.outcomes import Outcome
from perdure.providers.databases.transaction import ROOM
from perdure.providers.policy import SERVER, BadPolicy, Policy, read_policy, use_policy
from perdure.providers.postgres import _PRIVILEGES
from perdure.providers.task_outcomes import RESULT_LIMIT
from perdure.wiring import Engine

FORBIDDEN = ("Provider.Call.Sqlite.Forbidden", False)


@pytest.fixture(autouse=True)
def in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    use_policy(None)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of the engine, beside the databases of tasks."""
    path = tmp_path / "runs.db"

    @on_loop
    async def make() -> None:
        async with Engine(f"sqlite:///{path}"):
            pass

    make()
    (tmp_path / "runs.db-wal").write_bytes(b"")
    return path


async def sqlite(**arguments: Any) -> Outcome:
    return await outcome_of("sqlite", arguments)


async def duckdb(**arguments: Any) -> Outcome:
    return await outcome_of("duckdb", arguments)


def test_the_engines_store_is_out_of_reach(store: Path) -> None:
    """Opened, attached, linked, by its write-ahead log or its lock file: none of the store's files is a database."""
    before = store.read_bytes()
    (store.parent / "link.db").symlink_to(store)

    @on_loop
    async def attack() -> None:
        for name in ("runs.db", "link.db", "runs.db-wal", "runs.db-shm", "runs.db-owner-1", "./x/../runs.db"):
            assert failure_of(await sqlite(database=name, command="CREATE TABLE evil(a)"))[0].endswith("Unavailable")
            attach = [f"ATTACH '{name}' AS s", "CREATE TABLE s.evil(a)"]
            assert failure_of(await sqlite(commands=attach)) == FORBIDDEN

    attack()
    assert store.read_bytes() == before
    assert (store.parent / "runs.db-wal").read_bytes() == b""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "commands",
    [
        ["ATTACH '{file}' || '' AS s"],
        ["ATTACH x'{hex}' AS s"],
        ["ATTACH (SELECT '{file}') AS s"],
        [{"command": "ATTACH ? AS s", "params": ["{file}"]}],
        ["ATTACH 'runs.db' AS s"],
    ],
)
@pytest.mark.parametrize("policy", [SERVER, Policy(), Policy(sqlite_folders=["data"])])
def test_a_file_that_is_attached_is_judged_as_sqlite_finds_it(store: Path, commands: list[Any], policy: Policy) -> None:
    """An expression is not known when it is judged; a relative name is found from the working directory."""

    def filled(text: str) -> str:
        return text.format(file=store, hex=str(store).encode().hex())

    (store.parent / "data").mkdir()
    use_policy(policy)
    written = [
        filled(item) if isinstance(item, str) else {**item, "params": [filled(text) for text in item["params"]]}
        for item in commands
    ]

    @on_loop
    async def attack() -> None:
        outcome = await sqlite(commands=[*written, "SELECT name FROM s.sqlite_schema"])
        assert failure_of(outcome) == FORBIDDEN

    attack()


@on_loop
async def test_a_new_store_is_out_of_reach_before_its_log_is_written_back(tmp_path: Path) -> None:
    async with Engine(f"sqlite:///{tmp_path}/new.db"):
        for name in ("new.db", "new.db-wal"):
            assert failure_of(await sqlite(database=name, query="SELECT * FROM runs"))[0].endswith("Unavailable")
        assert failure_of(await sqlite(commands=["ATTACH 'new.db' AS s", "SELECT * FROM s.runs"])) == FORBIDDEN


@on_loop
async def test_duckdb_gets_no_folder_that_holds_a_store_in_use(tmp_path: Path) -> None:
    """In a folder that is open to it DuckDB reads and writes any file."""
    use_policy(Policy(duckdb_folders=["."]))
    (tmp_path / "deeper").mkdir()
    async with Engine(f"sqlite:///{tmp_path}/deeper/new.db"):
        for text in ("SELECT size FROM read_blob('deeper/new.db')", "COPY (SELECT 1) TO 'deeper/new.db'"):
            assert failure_of(await duckdb(command=text)) == ("Provider.Call.Duckdb.Forbidden", False)


@on_loop
async def test_a_backup_is_as_far_out_of_reach_as_its_store(tmp_path: Path) -> None:
    (tmp_path / "lake" / "deeper").mkdir(parents=True)
    copy = tmp_path / "lake" / "deeper" / "monday"
    use_policy(Policy(duckdb_folders=["lake"], sqlite_folders=["lake"]))
    async with at_work() as worker:
        assert value_of(await worker.run(task("duckdb", {"query": "SELECT 1 AS a"}), Ledger()))
        async with Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
            await engine.store.backup(str(copy))
        for text in (f"SELECT size FROM read_blob('{copy}')", f"COPY (SELECT 1) TO '{copy}'"):
            outcome = await worker.run(task("duckdb", {"command": text}), Ledger())
            assert failure_of(outcome) == ("Provider.Call.Duckdb.Forbidden", False)
        assert failure_of(await sqlite(database="deeper/monday", query="SELECT 1"))[0].endswith("Unavailable")
        copy.unlink()
        assert value_of(await worker.run(task("duckdb", {"query": "SELECT 1 AS a"}), Ledger()))


@pytest.mark.parametrize(
    "text",
    [
        "PRAGMA writable_schema = ON",
        "PRAGMA application_id = 0x50455244",
        "PRAGMA hard_heap_limit = 1000",
        "PRAGMA soft_heap_limit = 1000",
        "PRAGMA temp_store_directory = '/tmp'",
        "PRAGMA mmap_size = 1099511627776",
        "PRAGMA trusted_schema = ON",
        "SELECT load_extension('x')",
        "VACUUM INTO '/tmp/elsewhere.db'",
        "ATTACH 'file:/tmp/elsewhere.db?mode=rwc' AS x",
        "ATTACH '/tmp/elsewhere.db' AS x",
        "ATTACH '../elsewhere.db' AS x",
    ],
)
def test_statements_that_reach_beyond_their_database_are_refused(text: str) -> None:
    @on_loop
    async def attack() -> None:
        code, retryable = failure_of(await sqlite(database="own.db", command=text))
        assert code in (FORBIDDEN[0], "Provider.Call.Sqlite.BadStatement") and retryable is False

    attack()
    assert not Path("/tmp/elsewhere.db").exists() and not Path("../elsewhere.db").exists()


@on_loop
async def test_what_tasks_need_of_sqlite_is_there() -> None:
    commands = [
        "PRAGMA foreign_keys",
        "PRAGMA user_version = 7",
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b)",
        "ATTACH 'second.db' AS two",
        "CREATE TABLE two.u AS SELECT 1 AS a",
        "INSERT INTO t SELECT a, upper('x') FROM two.u",
    ]
    attached = await sqlite(database="own.db", commands=[commands[2]])
    assert value_of(attached)["row_count"] == 0
    assert value_of(await sqlite(database="own.db", query="SELECT name FROM pragma_table_info('t')"))["row_count"] == 2
    assert value_of(await sqlite(database="own.db", query="PRAGMA application_id"))["rows"] == [{"application_id": 0}]


@on_loop
async def test_files_lie_below_the_folders_that_the_operator_names(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    use_policy(Policy(sqlite_folders=[str(tmp_path / "data")]))
    assert value_of(await sqlite(database="own.db", command="CREATE TABLE t(a)"))["row_count"] == 0
    assert (tmp_path / "data" / "own.db").exists()
    for name in ("../own.db", str(tmp_path / "own.db"), "/etc/passwd"):
        assert failure_of(await sqlite(database=name, command="CREATE TABLE t(a)")) == FORBIDDEN
    use_policy(SERVER)
    assert failure_of(await sqlite(database="own.db", query="SELECT 1")) == FORBIDDEN
    assert value_of(await sqlite(query="SELECT 1 AS a"))["rows"] == [{"a": 1}]


COUNTED = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n {limit}) "
SMALL = Policy(sqlite_memory="64MB", duckdb_memory="64MB")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("provider", "text"),
    [
        ("sqlite", "SELECT zeroblob(1000000000)"),
        ("sqlite", "SELECT hex(zeroblob(500000000))"),
        ("sqlite", COUNTED.format(limit="") + "SELECT randomblob(1000000) FROM n"),
        ("sqlite", COUNTED.format(limit="LIMIT 400") + "SELECT i FROM n ORDER BY randomblob(1000000)"),
        ("sqlite", COUNTED.format(limit="LIMIT 400") + "SELECT count(DISTINCT randomblob(1000000)) FROM n"),
        ("sqlite", COUNTED.format(limit="LIMIT 400") + "SELECT printf('%.*c', 1000000, i) AS x, 1 FROM n GROUP BY 1"),
        ("sqlite", "CREATE TABLE t AS " + COUNTED.format(limit="LIMIT 40") + "SELECT zeroblob(60000000) FROM n"),
        ("sqlite", "SELECT " + ", ".join(["zeroblob(60000000)"] * 16)),
        ("sqlite", "SELECT " + " + ".join(f"length(hex(zeroblob({30_000_000 + i})))" for i in range(16))),
        ("duckdb", "SELECT list(i) FROM range(100000000) t(i)"),
        ("duckdb", "SELECT repeat('x', 1000000) FROM range(100000)"),
        ("duckdb", "SELECT list_sort(range(200000000))"),
        ("duckdb", "SELECT string_split(repeat('a,', 100000000), ',')"),
        ("duckdb", "SELECT list_transform(range(30000000), lambda x: repeat('y', 1000))"),
        ("duckdb", "SELECT [[[i] for i in range(3000000)] for j in range(1000)]"),
    ],
)
def test_memory_of_statements_is_bounded_outside_of_the_engine(provider: str, text: str) -> None:
    """Whatever the library counts or not: the statement ends, and the engine's own process has not felt it."""

    @on_loop
    async def attack() -> None:
        use_policy(SMALL)
        async with at_work() as worker:
            assert value_of(await worker.run(task(provider, {"query": "SELECT 1 AS a"}), Ledger()))
            before = peak_memory(forget=True)
            outcome = await worker.run(task(provider, {"command": text}), Ledger())
            assert peak_memory() - before < RESULT_LIMIT
            assert failure_of(outcome) == (f"Provider.Call.{provider.title()}.TooLarge", False)
            assert value_of(await worker.run(task(provider, {"query": "SELECT 2 AS a"}), Ledger()))

    attack()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the limits of another process")
@pytest.mark.parametrize(("provider", "memory"), [("sqlite", 512_000_000), ("duckdb", 1_000_000_000)])
def test_the_operating_system_bounds_the_process_of_statements(provider: str, memory: int) -> None:
    endless = {
        "sqlite": COUNTED.format(limit="") + "SELECT count(*) FROM n",
        "duckdb": "SELECT count(*) FROM range(1000000000) a, range(1000000) b WHERE (a.range + b.range) % 7 = 3",
    }

    @on_loop
    async def look() -> None:
        async with at_work() as worker:
            item = task(provider, {"query": endless[provider]})
            running = asyncio.create_task(worker.run(item, Ledger()))
            while not (limits := set(limits_below(os.getpid()))):
                await asyncio.sleep(0.005)
            worker.cancel(item)
            assert is_cancelled(await running)
        assert limits == {memory + ROOM}

    look()


def limits_below(parent: int) -> Iterator[int]:
    """The limits of memory that processes below this one have."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            above = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            output = (process / "limits").read_text()
        except OSError:  # it has ended meanwhile
            continue
        limit = next(line.split()[3] for line in output.splitlines() if line.startswith("Max data size"))
        if above == parent and limit != "unlimited":
            yield int(limit)
            yield from limits_below(int(process.name))


@on_loop
async def test_the_operator_bounds_the_time_of_statements() -> None:
    use_policy(Policy(database_seconds=0.2))
    endless = COUNTED.format(limit="") + "SELECT count(*) FROM n"

    assert failure_of(await sqlite(query=endless)) == ("Provider.Call.Sqlite.Timeout", True)
    assert failure_of(await sqlite(query=endless, timeout=600)) == ("Provider.Call.Sqlite.Timeout", True)


@pytest.mark.parametrize("memory", ["80%", "much", "", "-1GB"])
def test_a_size_that_is_none_is_refused(memory: str) -> None:
    with pytest.raises(BadPolicy, match="not a size"):
        read_policy({"PERDURE_POLICY": json.dumps({"duckdb_memory": memory})})


@pytest.mark.parametrize(("setting", "mode"), [("", 0o600), ("0660", 0o660)])
def test_files_that_tasks_create_are_their_owners(
    setting: str, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting:
        monkeypatch.setenv("PERDURE_FILE_MODE", setting)
    use_policy(Policy(duckdb_folders=[str(tmp_path)], sqlite_folders=[str(tmp_path)]))
    before = os.umask(0)

    @on_loop
    async def create() -> None:
        assert value_of(await sqlite(database="a.db", commands=["CREATE TABLE t(a)", "INSERT INTO t VALUES (1)"]))
        assert value_of(await duckdb(database="b.duckdb", command=f"COPY (SELECT 1) TO '{tmp_path}/c.csv'"))

    try:
        create()
    finally:
        os.umask(before)
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == dict.fromkeys(
        ("a.db", "b.duckdb", "c.csv"), mode
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM '/etc/passwd'",
        "COPY (SELECT 1) TO 'out.csv'",
        "ATTACH 'other.duckdb' AS o",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET memory_limit = '100GB'",
        "SET threads = 64",
        "SELECT * FROM read_csv('http://127.0.0.1:9/x.csv')",
    ],
)
def test_duckdb_reaches_nothing_outside(text: str) -> None:
    @on_loop
    async def attack() -> None:
        code, retryable = failure_of(await duckdb(command=text))
        assert code.startswith("Provider.Call.Duckdb.") and retryable is False

    attack()
    assert list(Path().iterdir()) == []


@on_loop
async def test_duckdb_uses_the_folders_that_the_operator_opens(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    (folder / "in.csv").write_text("a\n1\n2\n")
    use_policy(Policy(duckdb_folders=[str(folder)]))
    text = f"SELECT sum(a)::INT AS n FROM read_csv('{folder}/in.csv')"

    assert value_of(await duckdb(database="own.duckdb", query=text))["rows"] == [{"n": 3}]
    assert (folder / "own.duckdb").exists()
    assert failure_of(await duckdb(query="SELECT * FROM read_text('/etc/hostname')"))[1] is False
    assert failure_of(await duckdb(database=str(tmp_path / "x.duckdb"), query=text))[0].endswith("Forbidden")


def peak_memory(*, forget: bool = False) -> int:
    """The most bytes that this process has had, where the system tells; with `forget`, from now on."""
    if sys.platform != "linux":
        return 0
    if forget:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


class TestPostgres:
    """With a real server, as a role that may do everything there."""

    @pytest.fixture(autouse=True)
    def address(self, postgres_url: str) -> None:
        self.url = postgres_url

    async def postgres(self, text: str, **rest: Any) -> Outcome:
        return await outcome_of("postgres", {"dsn": self.url, "command": text, **rest})

    @pytest.mark.parametrize(
        "text",
        [
            "COPY (SELECT 1) TO PROGRAM 'cat > /tmp/perdure-evil'",
            "copy t from program 'id'",
            "COPY t(a, b) FROM '/etc/passwd'",
            "COPY (SELECT 'to stdout') TO '/tmp/perdure-evil'",
            "SELECT pg_read_file('/etc/passwd')",
            "SELECT lo_import('/etc/passwd')",
            "SELECT * FROM pg_ls_dir('/')",
            "DO $$ BEGIN PERFORM pg_read_file('/etc/passwd'); END $$",
        ],
    )
    def test_programs_and_files_of_the_server_need_the_operators_word(self, text: str) -> None:
        @on_loop
        async def attack() -> None:
            assert failure_of(await self.postgres(text)) == ("Provider.Call.Postgres.Forbidden", False)

        attack()
        assert not Path("/tmp/perdure-evil").exists()

    def test_the_operator_can_allow_them(self) -> None:
        @on_loop
        async def ask() -> None:
            use_policy(Policy(postgres_server_files=True))
            assert value_of(await self.postgres("SELECT (pg_stat_file('PG_VERSION')).size > 0 AS it"))["rows"] == [
                {"it": True}
            ]

        ask()

    def test_a_server_refuses_roles_that_may_run_programs_there_and_addresses_that_are_not_opened(self) -> None:
        @on_loop
        async def ask() -> None:
            use_policy(SERVER)
            assert failure_of(await self.postgres("SELECT 1"))[0] == "Provider.Call.Postgres.AddressRefused"
            use_policy(Policy(network="closed", addresses=["127.0.0.1", "localhost", "::1"]))
            if "host=" not in self.url and "@/" not in self.url:
                assert failure_of(await self.postgres("SELECT 1"))[0] == "Provider.Call.Postgres.Forbidden"

        ask()

    @pytest.mark.parametrize("setting", ["sslkeylogfile", "oauth_issuer", "sslrootcert", "service", "replication"])
    def test_on_a_closed_network_a_connection_has_no_setting_that_names_files_or_addresses(self, setting: str) -> None:
        """`sslkeylogfile` writes, so that no network is open enough for it."""

        @on_loop
        async def attack() -> None:
            for policy in (SERVER, Policy())[: 2 if setting == "sslkeylogfile" else 1]:
                use_policy(policy)
                outcome = await outcome_of("postgres", {"dsn": self.url, "auth": {setting: "x"}, "query": "SELECT 1"})
                assert failure_of(outcome) == ("Provider.Call.Postgres.Forbidden", False)

        attack()

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ("-c search_path=disguise,pg_catalog", "SELECT 1 AS a"),
            ("-c session_authorization={user}", "SET SESSION AUTHORIZATION {admin}"),
        ],
    )
    def test_what_a_role_may_do_is_read_from_the_server_itself(self, options: str, text: str) -> None:
        """Not from a table of the same name that a document has made, nor of another role that it pretends to be."""
        user = f"perdure_{uuid4().hex[:8]}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            admin = connection.info.user
            connection.execute(f"CREATE ROLE {user}")
            connection.execute("CREATE SCHEMA disguise")
            connection.execute("CREATE VIEW disguise.pg_roles AS SELECT * FROM pg_catalog.pg_roles WHERE false")

        @on_loop
        async def attack() -> None:
            use_policy(Policy(network="closed", addresses=["127.0.0.1", "localhost", "::1"]))
            named = options.format(user=user)
            outcome = await self.postgres(text.format(admin=admin), auth={"options": named})
            assert failure_of(outcome)[0] == "Provider.Call.Postgres.Forbidden"

        try:
            attack()
        finally:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute("DROP SCHEMA disguise CASCADE")
                connection.execute(f"DROP ROLE {user}")

    @pytest.mark.parametrize("version", VERSIONS)
    def test_before_version_16_a_role_that_may_create_roles_may_take_any_other_one(
        self, version: int, postgres_server: Callable[[int], Server]
    ) -> None:
        user = f"perdure_{uuid4().hex[:8]}"
        with psycopg.connect(postgres_server(version).conninfo, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {user} CREATEROLE")
            try:
                connection.execute(f"SET SESSION AUTHORIZATION {user}")
                may_take = connection.info.server_version < 160000
                assert connection.execute(_PRIVILEGES).fetchone() == (may_take,)
            finally:
                connection.execute("RESET SESSION AUTHORIZATION")
                connection.execute(f"DROP ROLE {user}")

    @pytest.mark.parametrize("message", ["{user} LOGIN", "{user} LOGIN IN ROLE {admin}"])
    def test_what_a_role_may_become_counts_as_well(self, message: str) -> None:
        """A connection that begins as a lesser role (RESET ROLE), or as a member of a greater one (SET ROLE)."""
        name = f"perdure_{uuid4().hex[:8]}"
        user, admin = f"{name}_user", f"{name}_admin"
        with psycopg.connect(self.url, autocommit=True) as connection:
            mine = connection.execute("SELECT session_user").fetchone()
            assert mine is not None
            connection.execute(f"CREATE ROLE {admin} SUPERUSER")
            connection.execute("CREATE ROLE " + message.format(user=user, admin=admin))
            options = "" if "IN ROLE" in message else f"-c role={user}"
            who = user if "IN ROLE" in message else mine[0]
            privileges = psycopg.connect(self.url, options=options, autocommit=True)
            try:
                if "IN ROLE" in message:
                    privileges.execute(f"SET SESSION AUTHORIZATION {who}")
                assert privileges.execute(_PRIVILEGES).fetchone() == (True,)
            finally:
                privileges.close()
                connection.execute(f"DROP ROLE {user}")
                connection.execute(f"DROP ROLE {admin}")

    @pytest.mark.parametrize(
        "text",
        [
            "SELECT repeat('x', 1000000) FROM generate_series(1, 10000)",
            "/* a */ SELECT repeat('x', 1000000) FROM generate_series(1, 500)",
            "-- a\n(SELECT repeat('x', 1000000) FROM generate_series(1, 500))",
            "INSERT INTO pg_temp.t SELECT repeat('x', 1000000) FROM generate_series(1, 500) RETURNING a",
        ],
    )
    def test_a_large_result_is_refused_while_it_is_read(self, text: str) -> None:
        """However it is written: what comes all at once is counted too late."""

        @on_loop
        async def attack() -> None:
            await self.postgres("SELECT 1")
            before = peak_memory(forget=True)
            commands = ["CREATE TEMP TABLE t (a text)", text]
            outcome = await outcome_of("postgres", {"dsn": self.url, "commands": commands})
            assert peak_memory() - before < 4 * RESULT_LIMIT
            assert failure_of(outcome) == ("Provider.Call.Postgres.TooLarge", False)
            assert details_of(outcome)["limit"] == RESULT_LIMIT

        attack()

    def test_a_statement_without_rows_may_have_the_word_returning(self) -> None:
        @on_loop
        async def ask() -> None:
            commands = ["CREATE TEMP TABLE t (a text)", "INSERT INTO t VALUES ('returning'), ('b')"]
            outcome = await outcome_of("postgres", {"dsn": self.url, "commands": commands})
            assert value_of(outcome)["row_count"] == 2

        ask()


def test_apsw_asks_the_authorizer_for_every_statement() -> None:
    """What the defence rests on: a trigger or a view asks as well."""
    asked: list[str | None] = []

    def authorize(what: int, first: str | None, *_: str | None) -> int:
        asked.append(first)
        return int(apsw.SQLITE_OK)

    connection = apsw.Connection(":memory:")
    connection.authorizer = authorize
    connection.execute("PRAGMA user_version")

    assert "user_version" in asked
