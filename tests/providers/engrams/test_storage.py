"""Files that Engrams share by reference (STY-007, STY-219, STY-221)."""

from pathlib import Path
from typing import Any

import pytest
from tests.providers.engrams.test_engrams import a_task
from tests.workers.scene import Ledger, at_work, details_of, on_loop, task, value_of

from perdure import EngramContext, EngramError
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Failed
from perdure.providers.registry import Registry
from perdure.services.story.engrams import storage
from perdure.services.story.engrams.registry import Engrams

ROWS = {"rows": [{"id": 1}, {"id": 2}]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_STORAGE_DIR", str(tmp_path))
    return tmp_path


@on_loop
async def run(inputs: dict[str, Any], results: list[Any], **more: Any) -> None:
    registry = Registry()

    @Engrams(registry).engram("puts")
    def puts(inputs: dict[str, Any], context: EngramContext) -> dict[str, Any]:
        return {"seen": inputs, "rows": context.store("rows", ROWS), "text": context.store("text", "long")}

    async with at_work(registry) as worker:
        results.append(await worker.run(task("engram:puts@1.0.0", a_task(inputs=inputs, **more)), Ledger()))


def test_what_an_engram_keeps_the_next_one_is_given(folder: Path) -> None:
    """Below `storage.file.path`, named after the StepRun; with a path into it."""
    results: list[Any] = []
    run({}, results, storage={"file": {"path": "team/large"}})
    kept = value_of(results[0])
    reference = {"$bubuStorageRef": "team/large/default/r1/hello-greet/rows.json", "$bubuStorageContentType": "json"}
    assert kept["rows"] == reference
    assert kept["text"]["$bubuStorageContentType"] == "raw"
    file = folder / "team/large/default/r1/hello-greet/rows.json"
    assert jsontext.decode(file.read_bytes()) == {"contentType": "json", "data": ROWS}
    assert [item.name for item in file.parent.iterdir() if item.name.startswith(".")] == []

    run({"all": reference, "ids": {**reference, "$bubuStoragePath": "rows[*].id"}, "t": kept["text"]}, results)

    assert value_of(results[1])["seen"] == {"all": ROWS, "ids": [1, 2], "t": "long"}


@pytest.mark.parametrize("name", ["nothing.json", "../x.json", "/etc/passwd", "a//b.json", "./a.json", "a\\b.json"])
def test_a_reference_that_leads_nowhere_fails_the_step(folder: Path, name: str) -> None:
    results: list[Any] = []
    run({"x": {"$bubuStorageRef": name}}, results)

    assert isinstance(results[0], Failed)
    assert details_of(results[0])["type"] == "storage_error"


def test_a_link_does_not_lead_out(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "r1" / "step").mkdir(parents=True)
    (outside / "r1" / "step" / "x.json").write_text('{"contentType": "json", "data": 1}')
    (folder / "link").symlink_to(outside)

    with pytest.raises(EngramError, match="leads out of the storage"):
        storage.get({"$bubuStorageRef": "link/r1/step/x.json"}, frozenset({"r1"}))


def test_without_storage_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """STY-221: no storage is an error, and says what to do; so is a driver that is not here (STY-007)."""
    monkeypatch.delenv("PERDURE_STORAGE_DIR", raising=False)
    with pytest.raises(EngramError, match="PERDURE_STORAGE_DIR is not set"):
        storage.put({}, "default", "r1", "run-a", "rows", ROWS)
    monkeypatch.delenv("PERDURE_STORAGE_S3", raising=False)
    with pytest.raises(EngramError, match="PERDURE_STORAGE_S3 names none"):
        storage.put({"s3": {"bucket": "b"}}, "default", "r1", "run-a", "rows", ROWS)


def test_a_file_that_is_not_ours(folder: Path) -> None:
    (folder / "default" / "r1" / "step").mkdir(parents=True)
    (folder / "default" / "r1" / "step" / "x.json").write_text("{")
    with pytest.raises(EngramError, match="unknown format"):
        storage.get({"$bubuStorageRef": "default/r1/step/x.json"}, frozenset({"r1"}))


def test_a_reference_leads_to_values_of_its_own_family_of_runs_only(folder: Path) -> None:
    """STY-283: however it came, as an input, an answer or a signal; a fork reads what its past has stored."""
    stranger = storage.put({}, "default", "other", "step", "rows", ROWS)
    below = storage.put({}, "default", "r1", "step", "rows", ROWS)
    results: list[Any] = []
    run({"x": stranger}, results)
    run({"x": below}, results)
    run({"x": stranger}, results, families=["other"])

    assert details_of(results[0])["type"] == "storage_error" and "other runs" in str(results[0])
    assert value_of(results[1])["seen"] == {"x": ROWS}
    assert value_of(results[2])["seen"] == {"x": ROWS}


def test_what_lies_in_storage_is_data_and_names_no_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_SECRET_api_token", "sesame")
    looks = {"$bubuSecretRef": "api:token"}
    results: list[Any] = []
    run({"x": storage.put({}, "default", "r1", "step", "rows", looks), "y": looks}, results)

    assert value_of(results[0])["seen"] == {"x": looks, "y": looks}
