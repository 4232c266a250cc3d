"""The edge of the command line: one JSON value whatever happens, and words that fit what has happened."""

import signal
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine
from tests.dialects.playbook.world import playbook

HALF = playbook("""
executor: {spec: {policy: {completion: {on_failure: partial}}}}
workflow:
  - step: fork
    next: {spec: {mode: inclusive}, arcs: [{step: good}, {step: bad}]}
  - {step: good, tool: {kind: noop, result: 1}}
  - {step: bad, tool: {kind: shell, cmds: exit 3}}
""")
AT_ONCE = playbook("workflow: [{step: a, tool: {kind: noop}}]")


def _file(perdure: CommandLine, text: str, name: str = "book.yaml") -> str:
    (perdure.folder / name).write_text(text)
    return name


def test_a_partial_run_is_called_so(perdure: CommandLine) -> None:
    """PBK-137 PBK-138: exit code 0, and never `succeeded`."""
    done = perdure("run", _file(perdure, HALF))
    (row,) = perdure.here("ps", "--json").json
    head = perdure.here("show", row["id"]).out

    assert "is partial" in done.err and "succeeded" not in done.err
    assert row["status"] == "partial" and "partial" in perdure.here("ps").out
    assert "status    partial" in head and "succeeded" not in head
    assert [run["id"] for run in perdure.here("ps", "--status", "partial", "--json").json] == [row["id"]]
    assert perdure.here("show", row["id"], "--json").json["status"] == "partial"
    assert "has already ended, partial" in perdure.here("cancel", row["id"], code=9).err


def test_a_partial_child_gives_its_caller_a_result(perdure: CommandLine) -> None:
    """PBK-202: ok, with its status."""
    _file(perdure, HALF.replace("tests/test", "tests/half"), "half.yaml")
    caller = _file(perdure, playbook("workflow: [{step: a, tool: {kind: playbook, path: tests/half}}]"))
    answer = perdure("run", caller, "--apply", "half.yaml", "--json").json

    assert answer["status"] == "success" and answer["result"]["status"] == "partial"


@pytest.mark.parametrize("text", ["[1, 2]", "3", '"text"', "true"])
def test_an_input_that_is_no_map_is_refused_before_anything_is_stored(perdure: CommandLine, text: str) -> None:
    """PBK-011."""
    done = perdure("run", _file(perdure, AT_ONCE), "--input", text, "--json", code=2)

    assert done.error["code"] == "INPUT-UNFIT" and "must be a map" in done.error["message"]
    assert sorted(path.name for path in perdure.folder.iterdir()) == ["book.yaml"]


def test_no_input_and_null_are_maps_without_members(perdure: CommandLine) -> None:
    """PBK-011."""
    assert perdure.here("run", _file(perdure, AT_ONCE), "--input", "null", "--json").json["status"] == "success"


def test_what_has_ended_is_told_in_whole_sentences(perdure: CommandLine) -> None:
    book = _file(perdure, playbook("workflow: [{step: a, tool: {kind: python, code: 'pass'}}]"))
    run = perdure.here("run", book, "--detach").out.strip()
    perdure.here("cancel", run)
    perdure.here("resume", run, code=4)

    assert "the run has already been cancelled" in perdure.here("patch", run, "--ctx", '{"a": 1}', code=9).err


def test_a_detached_run_that_ends_at_once_has_ended(perdure: CommandLine) -> None:
    book = _file(perdure, AT_ONCE)
    done = perdure("run", book, "--detach")
    answer = perdure("run", book, "--detach", "--json").json

    assert "it has succeeded already" in done.err and "no live process" not in done.err
    assert answer["status"] == "succeeded" and answer["resume"] is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_one_json_value(perdure: CommandLine, number: signal.Signals) -> None:
    """Architecture §4: with --json stdout holds exactly one value."""
    live = perdure.start("run", perdure.drill({"sleep": "60s"}, {"return": 1}), "--json")
    run = live.run
    live.send(number)
    done = live.end()

    assert done.error["code"] == "INTERRUPTED" and done.error["run"] == run
    assert f"perdure resume {run}" in done.error["hint"]


def test_a_resume_that_is_stopped_leaves_one_json_value(perdure: CommandLine) -> None:
    run = perdure.here("run", perdure.drill({"sleep": "60s"}, {"return": 1}), "--detach").out.strip()
    live = perdure.start("resume", run, "--json")
    live.hear("waits for a timer")
    live.send(signal.SIGINT)

    assert live.end().error["code"] == "INTERRUPTED"


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--json"),
        ("run", "x.yaml", "--json", "--nope"),
        ("ps", "--limit", "many", "--json"),
        ("nonsense", "--json"),
        ("--json",),
        ("run", "x.yaml", "--input", "{", "--json"),
        ("show", "--json"),
        ("check", "empty", "--json"),
        ("run", "empty", "--json"),
    ],
)
def test_a_usage_error_is_one_json_value(perdure: CommandLine, words: tuple[str, ...]) -> None:
    """Architecture §4."""
    (perdure.folder / "empty").mkdir()
    done = perdure(*words, code=2)

    assert done.error["code"] == "USAGE" and done.error["message"]
    assert "perdure: " in done.err and "hint: " in done.err


def test_a_folder_is_checked_document_by_document(perdure: CommandLine, tmp_path: Path) -> None:
    """Findings of all its documents; what is no document is passed over, and said to be."""
    folder = tmp_path / "books"
    (folder / "deep").mkdir(parents=True)
    (folder / "good.yaml").write_text(AT_ONCE)
    (folder / "deep" / "bad.yml").write_text(AT_ONCE.replace("step: a", "stp: a"))
    (folder / "data.json").write_text('{"some": "data"}')
    (folder / "note.txt").write_text("nothing")
    done = perdure.here("check", "books", "--json", code=7)

    assert {problem["file"] for problem in done.json["problems"]} == {"books/deep/bad.yml"}
    assert "data.json: not in a known language; skipped" in done.err and "2 documents checked" in done.err


def test_users_do_not_hear_of_languages_of_tests(perdure: CommandLine) -> None:
    (perdure.folder / "data.json").write_text('{"some": "data"}')
    errors = perdure.here("check", "data.json", code=7).out + perdure.here("run", "data.json", code=7).err
    errors += perdure.here("apply", "-f", "data.json", code=7).err

    assert "(expected one of flow, playbook, story)" in errors and "drill" not in errors
