"""Every verb works on PostgreSQL, and what is wrong with an address or a server is told with what to do."""

import json
import shutil
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from tests import postgres
from tests.cli.commandline import CommandLine, Done
from tests.dialects.playbook.world import playbook
from tests.dialects.story.world import engram, story, template
from tests.postgres import VERSIONS, Server
from tests.stores.test_postgres import as_url

from perdure.cli.verbs import UNLISTED, VERBS

STORY = story("steps: [{name: ask, type: gate}, {name: say, ref: {name: echo}, needs: [ask], with: {n: 1}}]", "orders")
GATED = playbook("""
workflow:
  - step: s
    spec: {policy: {admit: {rules: [{when: "{{ ctx.go }}", then: {allow: true}}]}}}
    tool: {kind: noop, result: 5}
""")


@pytest.fixture(params=VERSIONS)
def server(request: pytest.FixtureRequest, postgres_server: Callable[[int], Server]) -> Server:
    return postgres_server(request.param)


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    with server.database() as address:
        yield as_url(address)


class OnDatabase:
    """The command line on a database; which verbs were used."""

    def __init__(self, perdure: CommandLine, url: str) -> None:
        self.perdure = perdure
        self.url = url
        self.used: set[str] = set()

    def __call__(self, verb: str, *words: str, code: int = 0) -> Done:
        self.used.add(verb)
        return self.perdure.here(verb, *words, "--db", self.url, code=code)

    def write(self, name: str, *texts: object) -> str:
        documents = [text if isinstance(text, str) else json.dumps(text) for text in texts]
        (self.perdure.folder / name).write_text("\n---\n".join(documents))
        return name


@pytest.mark.sampled(2)
def test_every_verb_works_on_a_database(perdure: CommandLine, url: str) -> None:
    on = OnDatabase(perdure, url)
    on("db", "migrate")
    hello = perdure.drill({"call": "echo", "input": {"x": 1}, "save": "a"}, {"return": "$a"}, name="hello")
    assert json.loads(on("run", hello).out) == {"x": 1}
    waits = on("run", perdure.drill({"signal": "go", "save": "w"}, {"return": "$w"}), "--detach").out.strip()
    assert {row["status"] for row in on("ps", "--json").json} == {"succeeded", "waiting"}
    assert waits in on("show", waits).out
    assert "go" in on("why", waits).out
    assert on("status", waits, "--json").json["execution_id"] == waits
    fork = on("fork", waits, "--detach").out.strip()
    assert fork != waits
    on("signal", waits, "go", '"heard"')
    assert on("db", "status", "--json").json["inbox"]["letters"] == 1
    assert on("resume", waits).out == "heard\n"
    assert "RunEnded" in on("history", waits).out
    on("cancel", fork)
    on("resume", fork, code=4)

    gated = on("run", on.write("gated.yaml", GATED), "--detach").out.strip()
    on("pause", gated)
    on("unpause", gated)
    assert gated in on("impact", on.write("newer.yaml", GATED.replace("result: 5", "result: 6")), "--json").out
    assert "was not moved" in on("migrate", "--undo", gated, "--dry-run", code=9).out
    on("patch", gated, "--ctx", '{"go": true}')
    on("resume", gated)
    assert on("result", "get", gated, "--json").json == 5

    on("apply", "-f", on.write("orders.json", STORY, engram("echo"), template("echo")))
    assert "orders" in on("get", "stories").out
    assert "orders" in on("describe", "story", "orders").out
    approved, rejected = [
        on("trigger", "orders", "--token", token, "--json").json["status"]["storyRunRef"]["name"] for token in "ab"
    ]
    on("approve", approved, "ask")
    on("reject", rejected, "ask")
    on("resume", code=3)
    assert on("show", approved, "--json").json["status"]["phase"] == "Succeeded"
    assert on("show", rejected, "--json").json["status"]["phase"] == "Failed"
    on("redrive", rejected)
    on("delete", "engram", "echo")

    on("schedule", "list")
    on("wait", approved, "--for", "ended")
    assert on("logs", gated, "--json").json == []
    assert "succeeded" in on("top", "--once").out
    token = on("token", "create", "--name", "tour", "--role", "viewer", "--json").json
    assert token["role"] == "viewer" and token["token"]
    on("audit", "verify")
    assert on("secrets", "rekey", "--json").json == {"rekeyed": 0, "secrets": 0}

    on("check", hello)
    on("graph", "gated.yaml")
    assert "ask" in on("timeline", approved).out
    assert on("evaluate", approved, "ask", "{{ inputs }}", "--json").json["step"] == "ask"
    on("providers")
    on("diff", approved, "--at", "1", "--json")
    on("forecast", approved, "--json")
    on("export", approved, "--file", "run.perdure")
    on("open", "run.perdure")
    assert on("replay", "--with", "gated.yaml", gated, "--json").json["runs"][0]["verdict"] == "same"
    assert on("prune", "--older-than", "0", "--dry-run", "--json").json["ripe"] > 0
    on("prune", "--older-than", "0")
    on("prune")
    assert "pg_dump" in on("backup", "copy.db", code=1).err
    on("db", "validate")
    assert on("db", "recount", "--json").json["repaired"] == 0
    on("db", "copy", url, "sqlite:///home.db")
    perdure.here("db", "validate", "--db", "sqlite:///home.db")
    serving = perdure.start("serve", "--db", url)
    on.used.add("serve")
    serving.hear("serving")
    assert on("db", "status", "--json").json["owners"][0]["live"]
    serving.send(signal.SIGTERM)
    assert serving.end().code == 0
    assert on("db", "status", "--json").json["owners"] == []

    assert on("effects", waits, "--json", code=8).json["error"]["code"] == "RUN-NOT-FOUND"  # it was pruned
    assert on("settle", waits, "key", "--not-done", "--json", code=8).json["error"]["code"] == "RUN-NOT-FOUND"
    assert {*VERBS, *UNLISTED} - on.used <= {
        "ca",
        "completion",
        "config",
        "conformance",
        "context",
        "convert",
        "init",
        "kubeconfig",
        "lsp",
        "mcp",
        "restore",
        "schema",
        "sim",
        "test",
        "worker",
    }, "which need no store"


# What is wrong, and what to do.

VERBS_TRIED = [
    ("ps",),
    ("show", "x"),
    ("run", "drill.json"),
    ("apply", "-f", "drill.json"),
    ("get", "stories"),
    ("resume",),
    ("serve",),
    ("prune", "--older-than", "1d"),
    ("db", "status"),
    ("db", "migrate"),
    ("db", "validate"),
    ("db", "recount"),
    ("db", "copy", "sqlite:///perdure.db"),
]


def refused(perdure: CommandLine, url: str, code: str, *words: str, verbs: list[tuple[str, ...]] = VERBS_TRIED) -> None:
    """Every verb tells of it in the same way, and never the password."""
    perdure.here("run", perdure.drill({"return": 1}))
    for verb in verbs:
        address = (url,) if verb[:2] == ("db", "copy") else ("--db", url)
        done = perdure.here(*verb, *address, "--json", code=EXITS.get(code, 1))
        assert done.error["code"] == code, (verb, done)
        assert all(text in done.error["message"] + done.error["hint"] for text in words), (verb, done.error)
        assert "Traceback" not in done.err and "s3cret" not in done.err + done.out


EXITS = {"STORE-MISSING": 8, "STORE-ACCESS-DENIED": 10, "STORE-RIGHTS-MISSING": 10}


@pytest.mark.parametrize("url", ["postgresql:/nowhere", "postgresql://host:port/x", "postgresql://h/x?nonsense=1"])
def test_a_bad_address(perdure: CommandLine, url: str) -> None:
    refused(perdure, url, "STORE-URL", "postgresql://user@host:5432/database")


def test_an_unknown_kind_of_address(perdure: CommandLine) -> None:
    refused(perdure, "mysql://x", "STORE-URL", "sqlite:///runs.db", "postgresql://")


def test_a_server_that_does_not_answer(perdure: CommandLine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://me:s3cret@127.0.0.1:{taken.getsockname()[1]}/x"
        verbs = [(*verb, "--wait", "0") if verb == ("serve",) else verb for verb in VERBS_TRIED]
        refused(perdure, url, "STORE-UNREACHABLE", "***", "Check that the server runs", verbs=verbs)


def test_a_database_that_does_not_exist(perdure: CommandLine, url: str) -> None:
    verbs = [verb for verb in VERBS_TRIED if verb != ("ps",)]  # which lists nothing, and exits with 8 as well
    refused(perdure, url + "_not", "STORE-MISSING", "does not exist", "createdb", verbs=verbs)


def test_a_database_without_a_store(perdure: CommandLine, url: str) -> None:
    looking: list[tuple[str, ...]] = [
        ("show", "x"),
        ("history", "x"),
        ("db", "status"),
        ("db", "validate"),
        ("resume",),
    ]
    refused(perdure, url, "STORE-MISSING", "there is no Perdure store", verbs=looking)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regnamespace('perdure')").fetchone() == (None,), "a look creates nothing"


def test_a_schema_that_is_newer(perdure: CommandLine, url: str) -> None:
    perdure.here("db", "migrate", "--db", url)
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE perdure.schema SET version = 99, compatible = 99")
    refused(perdure, url, "STORE-NEWER", "schema 99", "Upgrade Perdure")


def test_a_newer_schema_that_older_programs_can_work_with(perdure: CommandLine, url: str) -> None:
    perdure.here("db", "migrate", "--db", url)
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE perdure.schema SET version = 99")
    perdure.here("run", perdure.drill({"return": 1}), "--db", url)

    answer = perdure.here("db", "status", "--db", url, "--json").json["schema"]
    assert answer["version"] == 99 and answer["up_to_date"]
    assert "there is nothing to do" in perdure.here("db", "migrate", "--db", url).err


@contextmanager
def role(url: str, name: str) -> Iterator[str]:
    """The same address for another role, which may do nothing yet."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN")
        try:
            yield url.replace("postgres@", f"{name}@")
        finally:
            connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_a_role_that_may_not_make_tables(perdure: CommandLine, url: str) -> None:
    making: list[tuple[str, ...]] = [("run", "drill.json"), ("serve",), ("db", "migrate")]
    with role(url, "meek_one") as meek:
        refused(perdure, meek, "STORE-RIGHTS-MISSING", "perdure db migrate", verbs=making)


def test_a_role_that_may_not_use_the_tables(perdure: CommandLine, url: str) -> None:
    perdure.here("db", "migrate", "--db", url)
    with role(url, "meek_two") as meek:
        refused(perdure, meek, "STORE-RIGHTS-MISSING", "permission denied", "docs/reference/postgres.md")


def grants(name: str) -> str:
    """The least that an engine needs, as the page has it."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "postgres.md").read_text(encoding="utf-8")
    block = page.partition("## Rights")[2].partition("```sql\n")[2].partition("```")[0]
    lines = [line for line in block.splitlines() if "SCHEMA perdure" in line]
    assert len(lines) >= 3
    return "\n".join(lines).replace("TO perdure;", f"TO {name};")


def test_a_role_with_the_rights_that_the_page_lists_can_do_everything_but_migrate(
    perdure: CommandLine, url: str
) -> None:
    perdure.here("db", "migrate", "--db", url)
    with role(url, "meek_three") as meek:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(grants("meek_three"))
        file = perdure.drill({"child": {"drill": 1, "name": "kid", "steps": []}}, {"return": "done"})
        assert perdure.here("run", file, "--db", meek).out == "done\n"
        perdure.here("db", "validate", "--db", meek)
        perdure.here("db", "status", "--db", meek)
        perdure.here("prune", "--older-than", "0", "--db", meek)
        perdure.here("db", "copy", meek, "sqlite:///all.db")
        serving = perdure.start("serve", "--db", meek)
        serving.hear("serving")
        serving.send(signal.SIGTERM)
        assert serving.end().code == 0
        with psycopg.connect(meek) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE perdure.mine (x int)")


@pytest.fixture(scope="module")
def own() -> Iterator[postgres.OwnServer]:
    if postgres.binaries(18) is None:
        pytest.skip("there is no PostgreSQL 18 on this machine to change the settings of")
    with postgres.own_server(18) as server:
        yield server


def test_a_wrong_password(perdure: CommandLine, own: postgres.OwnServer) -> None:
    with psycopg.connect(f"postgresql://postgres@127.0.0.1:{own.port}/postgres", autocommit=True) as connection:
        connection.execute("CREATE ROLE ada LOGIN SUPERUSER PASSWORD 'right'")
        row = connection.execute("SHOW hba_file").fetchone()
        assert row is not None
        rules = Path(row[0])
        rules.write_text("host all ada 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        connection.execute("SELECT pg_reload_conf()")
    address = f"postgresql://ada:{{}}@127.0.0.1:{own.port}/postgres"

    refused(perdure, address.format("s3cret"), "STORE-ACCESS-DENIED", "password authentication failed", "PGPASSWORD")
    refused(perdure, address.format("s3cret").replace(":s3cret", ""), "STORE-ACCESS-DENIED", "password")
    unknown = address.format("s3cret").replace("ada", "nobody_knows")
    refused(perdure, unknown, "STORE-ACCESS-DENIED", "does not exist")
    assert perdure.here("run", perdure.drill({"return": 1}), "--db", address.format("right")).out == "1\n"


def test_a_server_that_may_lose_what_it_acknowledged(perdure: CommandLine, own: postgres.OwnServer) -> None:
    url = f"postgresql://postgres@127.0.0.1:{own.port}/postgres"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
        try:
            refused(perdure, url, "STORE-NOT-DURABLE", "fsync")
        finally:
            connection.execute("ALTER SYSTEM RESET fsync")
            connection.execute("SELECT pg_reload_conf()")


@contextmanager
def old_server() -> Iterator[str]:
    """Something that greets like PostgreSQL 14 does, which is all that a client needs to hear."""

    def message(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack("!i", len(body) + 4) + body

    greeting = (
        message(b"R", struct.pack("!i", 0))
        + message(b"S", b"server_version\x0014.9\x00")
        + message(b"S", b"client_encoding\x00UTF8\x00")
        + message(b"Z", b"I")
    )

    def greet(listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                while len(head := connection.recv(8)) == 8:
                    length, code = struct.unpack("!ii", head)
                    connection.recv(length - 8)
                    if code == 3 << 16:
                        connection.sendall(greeting)
                        connection.recv(100)  # farewell, or the next question
                        break
                    connection.sendall(b"N")  # no encryption

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        threading.Thread(target=greet, args=(listening,), daemon=True).start()
        yield f"postgresql://me@127.0.0.1:{listening.getsockname()[1]}/x"
        listening.shutdown(socket.SHUT_RDWR)


def test_a_server_that_is_too_old(perdure: CommandLine) -> None:
    with old_server() as url:
        refused(perdure, url, "STORE-SERVER-UNFIT", "PostgreSQL 14", "15 or newer")


def test_a_driver_that_is_not_installed(perdure: CommandLine) -> None:
    (perdure.folder / "bare").mkdir()
    (perdure.folder / "bare" / "psycopg.py").write_text("raise ImportError('No module named psycopg')\n")
    for verb in (("ps",), ("db", "status")):
        done = perdure(*verb, "--db", "postgresql://x/y", "--json", code=1, PYTHONPATH=str(perdure.folder / "bare"))
        assert done.error["code"] == "STORE-DRIVER-MISSING"
        assert "pip install 'perdure[postgres]'" in done.error["hint"]
    shutil.rmtree(perdure.folder / "bare")
