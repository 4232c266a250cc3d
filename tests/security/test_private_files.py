"""Other users of the machine see nothing: also not in files that the command line writes beside the store."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.engine.private_files import write_private
from perdure.providers.object_storage import ObjectStorageFailed, read_object
from tests.cli.commandline import CommandLine

FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "done",
    "steps": {"done": {"action": "Return", "value": "{{ step.input }}"}},
}


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    before = os.umask(0)
    yield line
    os.umask(before)
    line.end_all()


def test_a_recorded_scenario_and_a_report_are_read_by_their_owner_alone(perdure: CommandLine) -> None:
    """They have the input of a run; a capsule and a failing schedule were private, and these files were not."""
    (perdure.folder / "flow.json").write_text(json.dumps(FLOW))
    perdure.here("run", "flow.json", "--input", '"a-value-of-the-run"')
    run = perdure.here("ps", "--all", "--json").json[0]["id"]
    perdure.here("export", run, "--file", "capsule")

    perdure.here("open", "--scenario", "kept", "capsule")
    perdure.here("test", "kept", "--junit", "report.xml")

    written = [*perdure.folder.glob("kept/*"), perdure.folder / "report.xml"]
    assert len(written) >= 4
    assert any("a-value-of-the-run" in file.read_text() for file in written)
    assert {file.stat().st_mode & 0o777 for file in written} == {0o600}
    assert (perdure.folder / "kept").stat().st_mode & 0o777 == 0o700


def test_a_private_file_takes_the_place_of_one_that_was_planted(tmp_path: Path) -> None:
    """Whoever created it first keeps it open, and would read what is written to it."""
    place = tmp_path / "report"
    place.write_text("planted")
    with place.open() as planted:
        write_private(place, b"private")
        assert planted.read() == "planted"
    assert place.read_bytes() == b"private"
    assert [file.name for file in tmp_path.iterdir()] == ["report"]


def test_a_private_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_private(tmp_path / "folder", b"private")
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


def test_a_device_is_written_to() -> None:
    write_private(Path(os.devnull), b"anything")
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize("address", ["https://AKIA:hunter22hunter22@host/bucket", "https://AKIA:hunter22@host/a/b"])
def test_keys_in_the_address_of_a_bucket_are_refused_and_not_shown(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure of a task had the whole setting, and is recorded."""
    monkeypatch.setenv("SOME_BUCKETS", address)
    with pytest.raises(ObjectStorageFailed) as failure:
        read_object("SOME_BUCKETS", "s3://bucket/key")
    assert "SOME_BUCKETS contains an entry that is not" in str(failure.value)
    assert "hunter22" not in str(failure.value)
