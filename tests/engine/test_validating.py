"""A store that holds together has no findings; one that was damaged is told of, and where."""

from importlib import import_module
from pathlib import Path
from typing import Any

import apsw
import pytest
from bench.languages.language import Language
from bench.registry import LANGUAGES

from perdure.engine.runs import run_views
from perdure.engine.store_validation import StoreValidator
from perdure.kernel import inputs
from perdure.kernel.codec import encode_turns
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.stores.admin import OrphanRow
from perdure.stores.commit_types import Committed, Message, NewRun, RunSummary, Transition
from perdure.stores.sqlite.admin import SqliteAdmin
from perdure.testing.world import World
from perdure.wiring import languages
from tests.engine.meter import metered
from tests.engine.test_work_bounds import FUNCTIONS

KID = {"drill": 1, "name": "kid", "steps": [{"sleep": "1h"}, {"return": "$input"}]}
SCENES: dict[str, list[dict[str, Any]]] = {
    "sleeping": [{"sleep": "1h"}, {"return": 1}],
    "large": [{"call": "big", "save": "x"}, {"sleep": "1h"}, {"return": "$x"}],
    "waiting": [{"permit": "door", "limit": 1, "do": [{"sleep": "1h"}]}],
    "behind": [{"permit": "door", "limit": 1, "do": [{"sleep": "1h"}]}],
    "offered": [{"call": "remote", "pool": "far"}],
    "busy": [{"call": "slow"}],
    "family": [{"child": KID, "input": 2}],
    "asking": [{"signal": "go"}],
    "over": [{"call": "echo"}, {"return": 2}],
}


async def store(folder: Path) -> Path:
    async with World(folder, functions={"big": lambda arguments, input: "x" * 100_000}, held={"slow"}) as world:
        for name, steps in SCENES.items():
            await world.start({"drill": 1, "name": name, "steps": steps}, token=name)
        await world.crash()
        return world.path


def findings(path: Path) -> list[OrphanRow]:
    with SqliteAdmin(path, lambda: 1).snapshot() as reading:
        return list(StoreValidator(reading, languages()).findings())


async def test_a_store_in_order_has_no_findings(tmp_path: Path) -> None:
    path = await store(tmp_path)
    with SqliteAdmin(path, lambda: 1).snapshot() as reading:
        validator = StoreValidator(reading, languages())
        assert list(validator.findings()) == []

    assert validator.read.runs == len(SCENES) + 1
    assert validator.read.events > 20


async def test_engines_may_go_on_meanwhile(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.start({"drill": 1, "name": "x", "steps": [{"sleep": "1h"}]})
        assert findings(world.path) == []


RUN = "(SELECT number FROM runs WHERE name = '{}')"

DAMAGES = [
    ("DELETE FROM log WHERE run = {large} AND seq = (SELECT min(seq) FROM log WHERE run = {large})", "runs", "a gap"),
    ("DELETE FROM log WHERE run = {over}", "runs", "no history at all"),
    ("UPDATE log SET body = x'00' WHERE run = {sleeping}", "runs", "cannot be read"),
    ("DELETE FROM large_values", "runs", "large value"),
    ("UPDATE large_values SET text = x'01'", "large values", "is not what it was"),
    ("DELETE FROM programs WHERE digest = (SELECT program FROM runs WHERE name = 'over')", "documents", "not there"),
    ("UPDATE programs SET text = CAST(text || x'20' AS BLOB)", "documents", "when it was pinned"),
    ("UPDATE runs SET status = 'failed' WHERE name = 'over'", "runs", "its row says failed, its history succeeded"),
    ("UPDATE runs SET ended_at = NULL WHERE name = 'over'", "runs", "its row says"),
    ("UPDATE runs SET due = NULL WHERE name = 'sleeping'", "runs", "nothing would wake it in time"),
    ("UPDATE runs SET has_work = 0 WHERE name = 'busy'", "runs", "no restart would continue it"),
    ("UPDATE runs SET language = 'latin' WHERE name = 'over'", "runs", "'latin', which is not loaded here"),
    ("DELETE FROM runs WHERE name = 'offered'", "tasks", "task 1 of a run that is not there"),
    ("DELETE FROM runs WHERE name = 'offered'", "log rows", "that is not there"),
    ("DELETE FROM runs WHERE name = 'waiting'", "permits", "of a run that is not there"),
    (
        "UPDATE permits SET run = (SELECT id FROM runs WHERE name = 'over') WHERE granted",
        "permits",
        "of a run that has ended",
    ),
    ("UPDATE permits SET permit = permit + 100 WHERE granted", "permits", "which it does not ask for"),
    ("UPDATE tasks SET task = 77", "tasks", "which is not open"),
    ("INSERT INTO inbox VALUES (99, 1, 'nobody', 5, x'9206a161', 0)", "letters", "(Signal) to a run that is not there"),
    ("INSERT INTO inbox SELECT 99, 1, id, 5, x'ff', 0 FROM runs WHERE name = 'over'", "letters", "cannot be read"),
    ("INSERT INTO editions VALUES ('u', 3, x'', x'', 1)", "editions", "generation 3 of an entry (u)"),
    ("INSERT INTO snapshots VALUES (999, 1, x'')", "snapshots", "(number 999)"),
]


@pytest.mark.parametrize(("damage", "what", "message"), DAMAGES, ids=[damage for damage, _, _ in DAMAGES])
async def test_damage_is_told_of(tmp_path: Path, damage: str, what: str, message: str) -> None:
    path = await store(tmp_path)
    connection = apsw.Connection(str(path))
    connection.execute(damage.format(**{name: RUN.format(name) for name in SCENES}))
    assert connection.total_changes()
    connection.close()

    assert [finding for finding in findings(path) if finding.what == what and message in finding.message], findings(
        path
    )


@pytest.mark.parametrize("spoken", LANGUAGES)
async def test_a_run_that_can_never_move_is_told_of(tmp_path: Path, spoken: str) -> None:
    """As a fork inside a turn was: its last event asks for a reaction that nobody makes."""
    language: Language = import_module(f"bench.languages.{spoken}").LANGUAGE
    async with metered(tmp_path, FUNCTIONS) as (engine, _, _):
        run = await engine.start(language.sequence(2, "echo"), language.given({"i": 1, "n": ""}))
        await run.result()
        row = await engine.find(run.id)
        turns = await run_views.turns(engine.store, engine.languages[row.language], run.id)
        lives = {RunId("moves"): turns[:1], RunId("never"): [*turns[:1], (turns[1][0], turns[1][1][:1])]}
        new = NewRun(row.language, row.name, row.program, None, {}, b"", 1)
        summary = RunSummary(Status.RUNNING, True, None)
        for id, lived in lives.items():
            seq = sum(len(events) for _, events in lived)
            past = Transition(id, row.partition, seq, encode_turns(lived), create=new, summary=summary)
            assert isinstance(await engine.store.commit([past]), Committed)
        assert [
            (finding.run, "can never continue" in finding.message) for finding in findings(tmp_path / "runs.db")
        ] == [("never", True)]
        await engine.store.send(Message(RunId("never"), 2, inputs.encode(inputs.Wake())))

        assert findings(tmp_path / "runs.db") == [], "something is on its way to it"


async def test_a_damaged_page_is_told_of(tmp_path: Path) -> None:
    path = await store(tmp_path)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'log_of_run'").get
    size = connection.pragma("page_size")
    connection.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * size + 3)
        file.write(b"\x00\x01")  # the number of cells

    assert findings(path)[0].what == "store"
