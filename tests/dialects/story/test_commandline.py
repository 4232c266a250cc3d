"""Stories from the command line, in real processes with real Engrams: exit codes, steering, recovery from a kill."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commandline import CommandLine

ENGRAMS = """
import time
from pathlib import Path

import perdure


@perdure.engram("mark")
def mark(inputs, context):
    with Path("marks.txt").open("a") as file:
        file.write(f"{context.step} {context.attempt}\\n")
    context.emit_signal("marked", inputs.get("n", 0))
    while inputs.get("until") and not Path(inputs["until"]).exists():
        time.sleep(0.01)
        if context.cancelled:
            return {"stopped": True}
    return {"n": inputs.get("n", 0)}


@perdure.engram("shaky")
def shaky(inputs, context):
    if context.attempt < 3:
        raise perdure.EngramError("busy", exit_code=429)
    return {"attempt": context.attempt, "key": context.idempotency_key}


@perdure.engram("broken")
def broken(inputs, context):
    raise ValueError("no such thing")


@perdure.engram("once")
def once(inputs, context):
    done = context.effect_once("charge", lambda: {"id": 7})
    context.record_effect("mail", "sent", {"to": "ada"})
    return {"charged": done}


@perdure.engram("puts")
def puts(inputs, context):
    return {"rows": context.store("rows", list(range(inputs["n"])))}
"""


def story(spec: str, name: str = "test") -> str:
    body = "\n".join(f"  {line}" for line in spec.strip().splitlines())
    return f"apiVersion: bubustack.io/v1alpha1\nkind: Story\nmetadata: {{name: {name}}}\nspec:\n{body}\n"


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    (tmp_path / "engrams.py").write_text(ENGRAMS)
    line = CommandLine(tmp_path)
    yield line
    line.end_all()


def run(perdure: CommandLine, tmp_path: Path, spec: str, *more: str, code: int = 0) -> Any:
    (tmp_path / "story.yaml").write_text(story(spec))
    return perdure("run", "story.yaml", "--load", "engrams.py", "--json", *more, code=code).json


@pytest.mark.parametrize(
    ("spec", "code", "phase"),
    [
        ("steps: [{name: a, ref: mark}]", 0, "Succeeded"),
        ("steps: [{name: a, ref: broken}]", 3, "Failed"),
        ("steps: [{name: a, ref: broken}]\ncompensations: [{name: b, ref: mark}]", 3, "Compensated"),
        ("steps: [{name: a, type: stop, with: {phase: Canceled}}]", 4, "Canceled"),
        ("steps: [{name: a, type: stop, with: {mode: cancel}}]", 3, "Finished"),
        ("policy: {timeouts: {story: 50ms}}\nsteps: [{name: a, type: sleep, with: {duration: 1m}}]", 5, "Timeout"),
    ],
)
def test_exit_codes_follow_the_phase(perdure: CommandLine, tmp_path: Path, spec: str, code: int, phase: str) -> None:
    assert run(perdure, tmp_path, spec, code=code)["status"]["phase"] == phase


def test_cancelling_what_has_ended_is_no_conflict(perdure: CommandLine, tmp_path: Path) -> None:
    """STY-188."""
    name = run(perdure, tmp_path, "steps: [{name: a, ref: mark}]")["metadata"]["name"]
    before = perdure("show", name, "--json").out

    perdure("cancel", name)

    assert perdure("show", name, "--json").out == before


def test_a_real_engram_fails_retries_signals_and_records_its_effects(perdure: CommandLine, tmp_path: Path) -> None:
    """STY-124 STY-125 STY-016 STY-164 STY-167 STY-173 STY-163."""
    spec = """
policy: {retries: {stepRetryPolicy: {delay: 10ms}}}
steps:
- {name: a, ref: shaky}
- {name: b, ref: once}
- {name: c, ref: mark, needs: [a, b], with: {n: 4}}
- {name: d, ref: broken, needs: [c], allowFailure: true}
output: {a: "{{ steps.a.output.attempt }}", c: "{{ steps.c.signals.marked }}", b: "{{ steps.b.output.charged.id }}"}
"""
    shown = run(perdure, tmp_path, spec)

    assert shown["status"]["output"] == {"a": 3, "c": 4, "b": 7}
    steps = {name: step_run["status"] for name, step_run in shown["stepRuns"].items()}
    assert (steps["a"]["retries"], steps["a"]["exitClass"]) == (2, "success")
    assert shown["stepRuns"]["a"]["status"]["output"]["key"].endswith("/step/a")
    assert [(effect["key"], effect["status"]) for effect in steps["b"]["effects"]] == [
        ("charge", "succeeded"),
        ("mail", "sent"),
    ]
    assert steps["d"]["error"]["message"] == "no such thing"
    assert (steps["d"]["exitCode"], steps["d"]["exitClass"]) == (1, "terminal")
    assert shown["status"]["allowedFailures"] == ["d"]


def test_a_killed_process_costs_a_restart_and_no_retry(perdure: CommandLine, tmp_path: Path) -> None:
    """STY-179 STY-180 STY-181 STY-182 STY-272."""
    spec = "steps: [{name: a, ref: mark}, {name: b, ref: mark, needs: [a], with: {until: go}}]"
    (tmp_path / "story.yaml").write_text(story(spec))
    running = perdure.start("run", "story.yaml", "--load", "engrams.py")
    marks = tmp_path / "marks.txt"
    while not marks.exists() or "b 1" not in marks.read_text():
        assert running.process.poll() is None
    running.kill()
    (tmp_path / "go").touch()
    (row,) = perdure.here("ps", "--json").json
    perdure("resume", row["id"], "--load", "engrams.py")

    shown = perdure.here("show", row["id"], "--json").json
    assert shown["status"]["phase"] == "Succeeded"
    assert marks.read_text().splitlines() == ["a 1", "b 1", "b 1"]
    again = shown["stepRuns"]["b"]
    assert again["metadata"]["annotations"]["runs.bubustack.io/restart-count"] == "1"
    assert again["status"]["retries"] == 0
    assert "runs.bubustack.io/restart-count" not in shown["stepRuns"]["a"]["metadata"]["annotations"]


def test_a_run_is_redriven_whole_and_from_a_step(perdure: CommandLine, tmp_path: Path) -> None:
    """STY-183 STY-184."""
    shown = run(perdure, tmp_path, "steps: [{name: a, ref: mark}, {name: b, ref: mark, needs: [a]}]")
    name = shown["metadata"]["name"]
    perdure.here("redrive", name, "--from", "b", "--key", "t1")
    perdure("resume", name, "--load", "engrams.py")
    marks = tmp_path / "marks.txt"
    assert marks.read_text().split() == ["a", "1", "b", "1", "b", "1"]
    perdure.here("redrive", name)
    perdure("resume", name, "--load", "engrams.py")

    again = perdure.here("show", name, "--json").json
    assert again["status"]["attempts"] == 3
    assert marks.read_text().split() == ["a", "1", "b", "1", "b", "1", "a", "1", "b", "1"]
    perdure.here("redrive", name, "--from", "ghost", code=9)


def test_a_missing_engram_blocks_visibly(perdure: CommandLine, tmp_path: Path) -> None:
    """STY-118 STY-009."""
    (tmp_path / "story.yaml").write_text(story("steps: [{name: a, ref: ghost}]"))
    id = perdure.here("run", "story.yaml", "--detach").out.strip()

    shown = perdure.here("show", id, "--json").json
    assert shown["status"]["stepStates"] == {} or shown["status"]["stepStates"]["a"]["phase"] == "Blocked"


def test_the_history_is_told_in_the_languages_words(perdure: CommandLine, tmp_path: Path) -> None:
    """STY-264."""
    shown = run(perdure, tmp_path, "steps: [{name: a, ref: mark}]")
    answer = perdure.here("history", shown["metadata"]["uid"], "--json").json

    assert [event["event_type"] for event in answer][:3] == ["storyrun.created", "storyrun.phase", "steprun.created"]
    assert answer[-1]["payload"]["phase"] == "Succeeded"


def test_an_operator_sets_what_holds_for_all_stories(perdure: CommandLine, tmp_path: Path) -> None:
    """STY-118 STY-008: and hears at once of a setting that does not exist."""
    (tmp_path / "story.yaml").write_text(story("steps: [{name: a, ref: ghost}]"))
    (tmp_path / "settings.yaml").write_text("references.missing: fail\n")
    shown = perdure("run", "story.yaml", "--json", code=3, PERDURE_STORY_SETTINGS="settings.yaml").json
    assert shown["status"]["stepStates"]["a"]["phase"] == "Failed"

    wrong = perdure("run", "story.yaml", code=1, PERDURE_STORY_SETTINGS='{"retry.max-retires": 1}')
    assert "did you mean 'retry.max-retries'?" in wrong.err


def test_a_story_is_drawn_and_shown_to_people(perdure: CommandLine, tmp_path: Path) -> None:
    spec = """
steps: [{name: a, ref: echo}, {name: b, type: gate, needs: [a]}]
finally: [{name: tidy, ref: echo, needs: [b]}]
"""
    (tmp_path / "story.yaml").write_text(story(spec))
    drawn = perdure.here("graph", "story.yaml").out
    assert "engram echo" in drawn and "finally" in drawn
    id = perdure.here("run", "story.yaml", "--detach").out.strip()
    perdure.here("approve", id, "b", "--by", "Ada")
    perdure.here("resume", id)

    shown = perdure.here("show", id, "-o", "yaml").out
    assert "phase: Succeeded" in shown and "updatedBy: Ada" in shown


STORED = """
policy: {storage: {file: {path: large}}}
steps:
- {name: a, ref: puts, with: {n: 4}}
- {name: looks, ref: echo, with: {n: "{{ len steps.a.output.rows }}", third: "{{ steps.a.output.rows[2] }}"}}
- name: m
  ref: map-reduce-adapter
  with:
    items: "{{ steps.a.output.rows }}"
    map: {story: {steps: [{name: x, ref: echo}], output: {n: "{{ inputs.item }}"}}, inlineResultsLimit: 9}
output:
  {n: "{{ steps.looks.output.n }}", third: "{{ steps.looks.output.third }}", mapped: "{{ steps.m.output.results }}"}
"""


def test_what_an_engram_stores_is_read_by_steps_templates_and_maps(perdure: CommandLine, tmp_path: Path) -> None:
    """STY-007 STY-207 STY-208 STY-271: files below the storage's folder, and helper steps that look into them."""
    (tmp_path / "story.yaml").write_text(story(STORED))
    folder = tmp_path / "storage"
    ended = perdure("run", "story.yaml", "--load", "engrams.py", "--json", PERDURE_STORAGE_DIR=str(folder))

    assert ended.json["status"]["output"] == {"n": 4, "third": 2, "mapped": [{"n": n} for n in range(4)]}
    assert {"materialize-step-input-looks", "materialize-map-items-m"} <= ended.json["stepRuns"].keys()
    assert len(list((folder / "large").rglob("rows.json"))) == 1
