"""`perdure impact` and `perdure migrate`: a plan in a file, runs without an owner, copies of the store (ANA-032)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commandline import CommandLine

import perdure


def _story(last: str, name: str = "gate") -> str:
    return f"""
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {{name: orders}}
spec:
  steps:
  - {{name: first, ref: echo, with: {{value: one}}}}
  - {{name: {name}, type: gate, needs: [first]}}
  - {{name: last, ref: echo, needs: [{name}], with: {{value: {last}}}}}
  output: {{value: "{{{{ steps.last.output.value }}}}"}}
"""


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    (tmp_path / "old.yaml").write_text(_story("old"))
    (tmp_path / "new.yaml").write_text(_story("new"))
    return CommandLine(tmp_path)


def _start(folder: Path) -> str:
    """A run that waits at its gate, and no process that owns it."""

    async def perform() -> str:
        async with perdure.Engine(f"sqlite:///{folder}/perdure.db") as engine:
            run = await engine.start(folder / "old.yaml")
            while (await run.status()).value != "waiting":
                await asyncio.sleep(0.01)
            return run.id

    return asyncio.run(perform())


def _finish(line: CommandLine, run: str, gate: str = "gate", db: str = "sqlite:///perdure.db") -> Any:
    line.here("approve", run, gate, "--db", db)
    line.here("resume", run, "--db", db)
    return line.here("show", run, "--json", "--db", db).json


def test_runs_are_moved_by_a_plan(line: CommandLine, tmp_path: Path) -> None:
    run = _start(tmp_path)
    done = line.here("impact", "new.yaml", "--plan", "plan.json")
    assert "1 safe, 0 needs mapping, 0 blocked" in done.out and run in done.out
    assert "perdure migrate --plan plan.json --dry-run" in done.err
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["moves"][0]["runs"] == [run] and plan["document"] == _story("new")
    assert line.here("migrate", "--plan", "plan.json", "--dry-run", "--json").json["counts"]["safe"] == 1
    (tmp_path / "all.json").write_text(line.here("impact", "new.yaml", "--json").out)  # the plan is in it
    assert line.here("migrate", "--plan", "all.json", "--dry-run", "--json").json["counts"]["safe"] == 1
    assert "recorded" in line.here("migrate", "--plan", "plan.json").out
    assert "current: its move is recorded already" in line.here("migrate", "--plan", "plan.json").out
    assert "is recorded, and happens when it is resumed" in line.here("migrate", "--undo", run, code=9).out
    shown = _finish(line, run)
    assert shown["status"]["output"]["value"] == "new"
    assert "storyrun.migrated" in line.here("history", run).out
    line.here("migrate", "--undo", run, code=9)


def test_a_renamed_step_is_mapped_on_the_command_line(line: CommandLine, tmp_path: Path) -> None:
    run = _start(tmp_path)
    (tmp_path / "new.yaml").write_text(_story("new", "ok"))
    done = line.here("impact", "new.yaml", code=7)
    assert "needs mapping" in done.out and "step 'gate'" in done.out
    line.here("impact", "new.yaml", "--map", "gate", code=2)
    line.here("impact", "new.yaml", "--map", "gate=ok", "--plan", "plan.json")
    line.here("migrate", "--plan", "plan.json")
    assert line.here("graph", run, "--json").json["nodes"]
    assert _finish(line, run, "ok")["status"]["output"]["value"] == "new"


def test_both_documents_are_in_copies_and_capsules(line: CommandLine, tmp_path: Path) -> None:
    run = _start(tmp_path)
    line.here("impact", "new.yaml", "--plan", "plan.json")
    line.here("migrate", "--plan", "plan.json")
    _finish(line, run)
    expected = {verb: line.here(verb, run, "--json").json for verb in ("show", "history", "graph", "timeline")}
    line.here("db", "validate")
    line.here("export", run, "--file", "run.perdure")
    line.here("db", "copy", "sqlite:///perdure.db", "sqlite:///copy.db")
    line.here("db", "validate", "--db", "sqlite:///copy.db")
    line.here("backup", "kept.db")
    for verb, facts in expected.items():
        assert line.here("open", "run.perdure", verb, "--json").json == facts
        assert line.here(verb, run, "--json", "--db", "sqlite:///copy.db").json == facts
    line.here("open", "run.perdure", "show", "--at", "3")


def test_what_is_wrong_is_said_before_anything_happens(line: CommandLine, tmp_path: Path) -> None:
    _start(tmp_path)
    line.here("migrate", code=2)
    line.here("migrate", "--plan", "absent.json", code=8)
    (tmp_path / "plan.json").write_text("{}")
    assert "is not a plan" in line.here("migrate", "--plan", "plan.json", code=2).err
    (tmp_path / "bad.yaml").write_text(_story("new").replace("type: gate", "type: gait"))
    line.here("impact", "bad.yaml", code=7)
    assert "0 safe" in line.here("impact", "new.yaml", "-n", "elsewhere").out
