"""The catalog on the command line: apply, get, describe, delete, and running what was applied."""

from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine

from perdure.documents import read_document

PLAYBOOK = """\
apiVersion: noetl.io/v10
kind: Playbook
metadata:
  name: Sums  # a comment is kept
  path: math/sums
  labels: {team: blue}
workflow:
- step: start
  tool: {kind: noop}
  set: {ctx.sum: SUM}
"""


def write(folder: Path, name: str = "sums.yaml", value: str = "1") -> str:
    (folder / name).write_text(PLAYBOOK.replace("SUM", value))
    return name


def test_apply_says_what_became_of_each_resource(perdure: CommandLine) -> None:
    """PBK-210."""
    name = write(perdure.folder)

    assert perdure("apply", "-f", name).out == "playbook.noetl.io/math/sums created\n"
    assert perdure.here("apply", "-f", name).out == "playbook.noetl.io/math/sums unchanged\n"
    write(perdure.folder, value="2")
    assert perdure.here("apply", "-f", ".", "--json").json == [
        {
            "kind": "Playbook",
            "namespace": "default",
            "name": "math/sums",
            "result": "configured",
            "generation": 2,
            "file": "sums.yaml",
        }
    ]


def test_apply_reads_standard_input_and_folders(perdure: CommandLine) -> None:
    drill = perdure.drill({"return": 1}, name="one")
    (perdure.folder / "sub").mkdir()
    (perdure.folder / drill).rename(perdure.folder / "sub" / drill)
    write(perdure.folder / "sub")

    assert perdure("apply", "-f", "-", stdin=PLAYBOOK).out == "playbook.noetl.io/math/sums created\n"
    done = perdure("apply", "-f", "sub")
    assert done.out.splitlines() == ["drill.testing.perdure/one created", "playbook.noetl.io/math/sums configured"]
    assert "No such file" in perdure("apply", "-f", "nowhere", code=8).err
    assert "-f" in perdure("apply", code=2).err


def test_nothing_is_stored_when_anything_is_wrong(perdure: CommandLine) -> None:
    write(perdure.folder, "good.yaml")
    (perdure.folder / "bad.yaml").write_text(PLAYBOOK.replace("math/sums", "math/bad").replace("workflow", "werkflow"))
    (perdure.folder / "worse.json").write_text('{"drill": 2, "nam": "x", "steps": []}')
    done = perdure("apply", "-f", "good.yaml", "-f", "bad.yaml", "-f", "worse.json", "--json", code=7)

    assert {problem["file"] for problem in done.error["problems"]} == {"bad.yaml", "worse.json"}
    assert done.error["code"] == "DOC-INVALID"
    assert "bad.yaml:" in done.err and "worse.json:1:14: error: unknown member 'nam'" in done.err
    assert perdure.here("get", "playbooks", "--json").json["items"] == []


def test_get_lists_by_kind_and_label_in_every_form(perdure: CommandLine) -> None:
    perdure.here("apply", "-f", write(perdure.folder), "-f", perdure.drill({"return": 1}, name="one"))
    table = perdure("get", "playbooks").out.splitlines()

    assert table[0].split() == ["NAME", "GENERATION", "AGE"]
    assert table[1].split()[:2] == ["math/sums", "1"]
    assert "team=blue" in perdure.here("get", "pb", "-o", "wide").out
    assert perdure.here("get", "Playbook,drill", "-o", "name").out.splitlines() == [
        "playbook.noetl.io/math/sums",
        "drill.testing.perdure/one",
    ]
    assert perdure.here("get", "pb", "-l", "team=red", "-o", "name").out == ""
    assert perdure.here("get", "pb", "-l", "team=blue", "-o", "name").out == "playbook.noetl.io/math/sums\n"
    assert perdure.here("get", "pb", "--json").json["kind"] == "List"
    version = perdure.here("get", "pb/math/sums", "-o", "json").json
    assert (version["metadata"]["path"], version["metadata"]["generation"]) == ("math/sums", 1)
    assert read_document(perdure.here("get", "pb", "math/sums", "-o", "yaml").out.encode()).data == version


def test_what_was_read_can_be_applied_again(perdure: CommandLine) -> None:
    perdure.here("apply", "-f", perdure.drill({"return": 1}, name="one"), "-f", write(perdure.folder))
    text = perdure.here("get", "pb", "math/sums", "-o", "yaml").out
    (perdure.folder / "copy.yaml").write_text(text.replace("ctx.sum: 1", "ctx.sum: 5"))
    perdure.here("apply", "-f", "copy.yaml")
    (perdure.folder / "late.yaml").write_text(text.replace("ctx.sum: 1", "ctx.sum: 6"))
    done = perdure("apply", "-f", "late.yaml", code=9)

    assert "playbook.noetl.io/math/sums was changed meanwhile" in done.err


def test_a_missing_name_or_kind_says_what_to_do(perdure: CommandLine) -> None:
    perdure.here("apply", "-f", write(perdure.folder))

    assert "there is no playbook.noetl.io/nope" in perdure("get", "playbook", "nope", code=8).err
    assert "did you mean 'playbooks'?" in perdure("get", "playboks", code=8).err
    assert "Playbook" in perdure("get").out
    assert "no resources found" in perdure.here("get", "flows").err
    assert perdure("get", "playbooks", "--db", "sqlite:///elsewhere.db", code=8).out == ""
    assert not (perdure.folder / "elsewhere.db").exists()


def test_what_was_applied_is_run_by_name_and_version(perdure: CommandLine) -> None:
    perdure.here("apply", "-f", write(perdure.folder))
    perdure.here("apply", "-f", write(perdure.folder, value="2"))
    (perdure.folder / "sums.yaml").unlink()

    assert perdure("run", "math/sums", "--json").json["ctx"] == {"sum": 2}
    assert perdure("run", "math/sums@1", "--json").json["ctx"] == {"sum": 1}
    assert perdure("run", "playbook/math/sums@2", "--json").json["ctx"] == {"sum": 2}
    assert "has no version 3; the latest is 2" in perdure("run", "math/sums@3", code=8).err
    assert "there is no file 'math/other', and nothing in the catalog" in perdure("run", "math/other", code=8).err
    assert "nowhere.yaml: No such file" in perdure("run", "nowhere.yaml", code=8).err


def test_describe_tells_what_it_says_its_versions_and_its_runs(perdure: CommandLine) -> None:
    perdure.here("apply", "-f", write(perdure.folder))
    perdure.here("apply", "-f", write(perdure.folder, value="2"))
    run = perdure.here("run", "math/sums", "--json").json["execution_id"]
    text = perdure("describe", "playbook", "math/sums").out

    assert "Name        math/sums" in text and "Labels      team=blue" in text
    assert "ctx.sum: 2" in text
    assert text.index("Versions") < text.index("Runs") < text.index(run)
    description = perdure.here("describe", "pb/math/sums", "--json").json
    assert [version["generation"] for version in description["versions"]] == [1, 2]
    assert [run["id"] for run in description["runs"]] == [run]
    assert perdure("describe", "playbook", "nope", code=8).out == ""


def test_delete_takes_all_of_them_or_none(perdure: CommandLine) -> None:
    name = write(perdure.folder)
    perdure.here("apply", "-f", name, "-f", perdure.drill({"return": 1}, name="one"))

    assert (
        "there is no playbook.noetl.io/nope; nothing was removed"
        in perdure("delete", "playbook", "math/sums", "nope", code=8).err
    )
    assert perdure.here("get", "pb", "-o", "name").out == "playbook.noetl.io/math/sums\n"
    assert perdure("delete", "-f", name).out == "playbook.noetl.io/math/sums deleted\n"
    assert perdure.here("delete", "pb", "math/sums", "--ignore-not-found").out == ""
    assert perdure.here("delete", "drill", "one", "--json").json == [
        {"kind": "Drill", "namespace": None, "name": "one"}
    ]
    assert perdure("delete", code=2).out == ""


# Runs as resources.


def test_runs_are_listed_described_and_changed_as_resources(perdure: CommandLine) -> None:
    document = perdure.drill({"signal": "go"}, name="waiter")
    run = perdure.here("run", document, "--detach").out.strip()
    other = perdure.here("run", document, "--detach", "--label", "drill/name=by-name").out.strip()

    lines = perdure("get", "drillruns").out.splitlines()
    assert lines[0].split() == ["NAME", "PHASE"]
    assert sorted(line.split()[0] for line in lines[1:]) == sorted([run, other])
    assert perdure.here("get", "dr", "by-name", "-o", "name").out == f"drillrun.testing.perdure/{other}\n"
    text = perdure("describe", "drillrun", run).out
    assert "phase: waiting" in text and "RunStarted" in text
    patch = '{"spec": {"cancelRequested": true}}'
    perdure("patch", "drillrun", "by-name", "--type", "merge", "-p", patch)
    perdure("resume", other, code=4)
    assert perdure.row(other)["status"] == "cancelled"
    perdure("patch", f"drillrun/{other}", "--type", "merge", "-p", patch)  # STY-188: changes nothing any more
    assert "only spec.cancelRequested" in perdure("patch", "dr", run, "-p", '{"spec": {"x": 1}}', code=2).err
    assert "--subresource status" in perdure.here("patch", "dr", run, "-p", '{"status": {}}', code=2).err
    assert "is a run" in perdure.here("delete", "dr", run, code=2).err
    assert "there is no drillrun" in perdure.here("get", "dr", "nope", code=8).err


def test_a_run_that_waits_for_a_resource_goes_on_when_another_process_applies_it(perdure: CommandLine) -> None:
    """Without a poll of the run's own: the grant is a letter to the process that drives it."""
    running = perdure.start(
        "run", perdure.drill({"resource": "Playbook/default/math/sums", "save": "result"}), "--json"
    )
    run = running.run
    show = perdure("show", run)
    assert "Playbook/default/math/sums, which is not in the catalog (see `perdure apply`)" in show.out
    perdure.here("apply", "-f", write(perdure.folder))
    done = running.end()

    assert done.code == 0
    assert done.json["variables"]["result"]["metadata"]["path"] == "math/sums"


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_a_gate_is_decided_once_the_word_is_on_disk(perdure: CommandLine, verb: str) -> None:
    """What a gate is, is the language's business; one that knows none refuses the word, and nothing is kept."""
    run = perdure.here("run", perdure.drill({"signal": "go"}), "--detach").out.strip()

    assert "a drill cannot be asked to 'gate'" in perdure(verb, run, "ok", "--by", "Ada", code=9).err
    assert perdure(verb, "nope", "ok", code=8).out == ""
    assert perdure(verb, run, code=2).out == ""
