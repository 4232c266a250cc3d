"""A backup of unknown origin brings data, and nothing that goes on working in the store."""

import asyncio
from pathlib import Path

import apsw
import pytest

import perdure
from perdure.stores.errors import StoreCorrupt
from perdure.stores.sqlite.restore import restore


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    async def make() -> None:
        async with perdure.Engine(f"sqlite:///{tmp_path}/made.db"):
            pass

    asyncio.run(make())
    return tmp_path / "made.db"


@pytest.mark.parametrize("name", ["approve", "run_labelled"])
def test_a_trigger_of_somebody_else_is_not_restored(backup: Path, tmp_path: Path, name: str) -> None:
    """Also under the name of one that a store has."""
    connection = apsw.Connection(str(backup))
    connection.execute(f"DROP TRIGGER IF EXISTS {name}")
    connection.execute(f"CREATE TRIGGER {name} AFTER INSERT ON inbox BEGIN DELETE FROM inbox; END")
    connection.close()

    with pytest.raises(StoreCorrupt, match=f"has triggers that are not Perdure's: {name}"):
        restore(backup, tmp_path / "runs.db")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["made.db"]


def test_what_perdure_has_made_is_restored(backup: Path, tmp_path: Path) -> None:
    assert restore(backup, tmp_path / "runs.db") == (tmp_path / "runs.db").stat().st_size
