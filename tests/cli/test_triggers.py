"""Starting Stories from the command line: requests, tokens and conflicts, in real processes."""

import asyncio
import json
import signal
from pathlib import Path

from tests.cli.commandline import PATIENCE, CommandLine

from perdure.kernel.json_values.values import RunId
from perdure.wiring import Observer

STORY = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: orders}
spec:
  steps: [{name: say, ref: {name: echo}, with: {id: "{{ inputs.id }}"}}]
  output: {id: "{{ steps.say.output.id }}"}
"""

RUN = """\
apiVersion: runs.bubustack.io/v1alpha1
kind: StoryRun
metadata: {name: mine}
spec: {storyRef: {name: orders}, inputs: {id: 7}}
"""


def write(folder: Path, text: str, name: str) -> str:
    (folder / name).write_text(text)
    return name


def applied(perdure: CommandLine) -> CommandLine:
    perdure.here("apply", "-f", write(perdure.folder, STORY, "story.yaml"))
    return perdure


def test_a_run_is_applied_like_any_resource(perdure: CommandLine) -> None:
    """STY-047 STY-049"""
    applied(perdure)
    file = write(perdure.folder, RUN, "run.yaml")
    done = perdure("apply", "-f", file)
    assert done.out == "storyrun.runs.bubustack.io/mine created\n"
    assert "perdure resume" in done.err
    assert perdure.here("get", "storyrun", "mine", "--json").json["status"]["phase"] == "Running"
    assert perdure("apply", "-f", file).out == "storyrun.runs.bubustack.io/mine unchanged\n"
    other = write(perdure.folder, RUN.replace("id: 7", "id: 8"), "other.yaml")
    assert "immutable" in perdure("apply", "-f", other, code=7).err
    shown = perdure("resume", "mine", "--json").json
    assert (shown["metadata"]["name"], shown["status"]["output"]) == ("mine", {"id": 7})
    assert perdure("apply", "-f", file).out == "storyrun.runs.bubustack.io/mine unchanged\n"


def test_a_story_and_its_run_are_applied_together(perdure: CommandLine) -> None:
    """STY-047: all is judged first; nothing of it is stored when the run is refused."""
    wrong = write(perdure.folder, f"{STORY}---\n{RUN.replace('name: orders}', 'name: order}')}", "wrong.yaml")
    done = perdure("apply", "-f", wrong, code=7)
    assert "referenced story 'default/order' not found" in done.err
    assert perdure.here("get", "stories", "--json").json["items"] == []
    both = write(perdure.folder, f"{STORY}---\n{RUN}", "both.yaml")
    assert perdure("apply", "-f", both).out.split() == [
        "story.bubustack.io/orders", "created", "storyrun.runs.bubustack.io/mine", "created",
    ]  # fmt: skip


def test_a_request_is_decided_and_shown(perdure: CommandLine) -> None:
    """STY-148 STY-149 STY-153"""
    applied(perdure)
    text = json.dumps({"id": 7})
    first = perdure("trigger", "orders", "--input", text, "--token", "T", "--json").json
    again = perdure("trigger", "orders", "--input", text, "--token", "T", "--json").json
    assert first == again and first["status"]["decision"] == "Created"
    perdure("trigger", "orders", "--set", "id=8", "--token", "T", code=9)
    assert "Created" in perdure.here("get", "storytriggers").out
    name = first["status"]["storyRunRef"]["name"]
    assert perdure("resume", name, "--json").json["status"]["output"] == {"id": 7}
    assert len(perdure.here("ps", "--all", "--json").json) == 1
    same = perdure("run", "orders", "--input", text, "--token", "T", "--json").json
    assert same["metadata"]["name"] == name


def test_a_token_with_other_inputs_is_a_conflict_and_changes_nothing(perdure: CommandLine) -> None:
    """STY-153"""
    applied(perdure)
    first = perdure("run", "orders", "--input", '{"id": 7}', "--token", "T", "--json").json
    again = perdure("run", "orders", "--input", '{"id": 7.0}', "--token", "T", "--json").json
    assert first["metadata"]["uid"] == again["metadata"]["uid"] and first["status"] == again["status"]
    perdure("run", "orders", "--input", '{"id": 8}', "--token", "T", code=9)
    rejected = perdure("trigger", "orders", "--input", '{"id": 8}', "--token", "T", "--json", code=9)
    assert rejected.json["status"]["reason"] == "StoryRunConflict"
    assert len(perdure.here("ps", "--all", "--json").json) == 1


def test_what_is_not_there_cannot_be_asked_for(perdure: CommandLine) -> None:
    """STY-051"""
    applied(perdure)
    perdure("trigger", "order", code=8)
    assert "expected 'v9'" in perdure("trigger", "orders", "--version", "v9", code=7).err
    perdure("trigger", code=2)
    perdure("trigger", "orders", "--input", "[1]", code=2)
    assert perdure.here("get", "storytriggers", "--json").json["items"] == []


TICK = """\
apiVersion: bubustack.io/v1alpha1
kind: Impulse
metadata: {name: tick}
spec:
  templateRef: {name: cron}
  storyRef: {name: orders}
  with: {runOnStartup: true, schedules: [{name: now, cron: "@yearly", inputs: {id: 9}}]}
"""


async def _ended(perdure: CommandLine, runs: list[RunId]) -> None:
    async with Observer(f"sqlite:///{perdure.folder / 'perdure.db'}") as observer:
        await asyncio.wait_for(asyncio.gather(*[observer.wait(run) for run in runs]), PATIENCE)


def test_serve_takes_up_runs_decides_requests_and_keeps_schedules(perdure: CommandLine) -> None:
    """STY-149 STY-160: one process does it all, until Ctrl-C."""
    applied(perdure)
    perdure.here("apply", "-f", write(perdure.folder, RUN, "run.yaml"))
    perdure.here("apply", "-f", write(perdure.folder, TICK, "tick.yaml"))
    perdure.here("trigger", "orders", "--set", "id=8", "--token", "T")
    serving = perdure.start("serve")
    serving.hear("schedule now: Created")
    rows = perdure.here("ps", "--all", "--json").json
    asyncio.run(_ended(perdure, [row["id"] for row in rows]))
    serving.send(signal.SIGINT)
    assert serving.end().code == 0
    shown = [perdure.here("show", row["id"], "--json").json for row in perdure.here("ps", "--all", "--json").json]
    assert sorted(impulse["status"]["output"]["id"] for impulse in shown) == [7, 8, 9]
    status = perdure.here("get", "impulse", "tick", "--json").json["status"]
    assert (status["phase"], status["storiesLaunched"]) == ("Running", 1)


def test_prune_follows_the_policies_of_stories(perdure: CommandLine) -> None:
    """STY-189 STY-190"""
    policy = "spec:\n  policy: {execution: {job: {ttlSecondsAfterFinished: 0, storyRunRetentionSeconds: KEPT}}}"
    for kept, count in ((0, 1), (-1, 0)):
        text = STORY.replace("spec:", policy.replace("KEPT", str(kept)), 1)
        perdure.here("run", write(perdure.folder, text, "story.yaml"), "--input", '{"id": 1}', "--token", str(kept))
        perdure("prune", "--json")
        rows = perdure.here("ps", "--all", "--json").json
        assert len([row for row in rows if row["id"].startswith(f"orders-{abs(kept)}")]) == count
    (row,) = perdure.here("ps", "--all", "--json").json
    shown = perdure.here("show", row["id"], "--json").json
    assert shown["stepRuns"] == {} and shown["status"]["stepStates"]["say"]["output"] == {"id": 1}


def test_a_run_is_deleted_when_it_has_ended(perdure: CommandLine) -> None:
    """STY-191"""
    applied(perdure)
    perdure.here("apply", "-f", write(perdure.folder, RUN, "run.yaml"))
    assert "has not ended" in perdure("delete", "storyrun", "mine", code=9).err
    perdure("resume", "mine")
    assert perdure("delete", "-f", "run.yaml").out == "storyrun.runs.bubustack.io/mine deleted\n"
    assert perdure.here("ps", "--all", "--json").json == []
    perdure("delete", "storyrun", "mine", code=8)
    perdure.here("apply", "-f", "run.yaml")
