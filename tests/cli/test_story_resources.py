"""Stories as resources on the command line: applied, run by name, decided, patched and redriven, in real processes."""

import json
from pathlib import Path
from typing import Any

import apsw
from tests.cli.commandline import CommandLine

GATED = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: deploy, labels: {team: blue}}
spec:
  steps:
  - {name: build, ref: {name: echo}, with: {env: "{{ inputs.env }}"}}
  - {name: approve, type: gate, needs: [build]}
  - {name: ship, ref: {name: shipper}, needs: [approve], with: {x: 1}}
  output: {built: "{{ steps.build.output.env }}"}
"""

SHIPPER = """\
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: shipper}
spec: {templateRef: {name: echo}}
"""

PLAIN = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: NAME}
spec:
  steps: [STEP]
"""

CALLS = "{name: sub, type: executeStory, with: {storyRef: {name: inner}}}"
SAYS = "{name: say, ref: {name: echo}, with: {a: 1}}"


def story(name: str, step: str = SAYS) -> str:
    return PLAIN.replace("NAME", name).replace("STEP", step)


def write(folder: Path, *texts: str, name: str = "story.yaml") -> str:
    (folder / name).write_text("---\n".join(texts))
    return name


def gated(perdure: CommandLine) -> str:
    """The name of a StoryRun of the gated Story, recorded and not begun."""
    perdure.here("apply", "-f", write(perdure.folder, GATED, SHIPPER))
    done = perdure.here("run", "deploy", "--input", '{"env": "prod"}', "--detach")
    return str(perdure.here("show", done.out.strip(), "--json").json["metadata"]["name"])


def resumed(perdure: CommandLine, name: str, code: int) -> dict[str, Any]:
    perdure("resume", name, code=code)
    shown = perdure.here("show", name, "--json").json
    assert isinstance(shown, dict)
    return shown


def test_a_story_and_its_engrams_are_applied_from_one_file(perdure: CommandLine) -> None:
    """STY-001: uid, generation and creationTimestamp are the engine's; a missing namespace is `default`."""
    name = write(perdure.folder, GATED, SHIPPER)
    done = perdure("apply", "-f", name)

    assert done.out.splitlines() == ["story.bubustack.io/deploy created", "engram.bubustack.io/shipper created"]
    assert perdure.here("apply", "-f", name).out.splitlines()[0] == "story.bubustack.io/deploy unchanged"
    assert perdure.here("apply", name).out.splitlines()[0] == "story.bubustack.io/deploy unchanged"
    assert "name files or folders" in perdure.here("apply", code=2).err
    shown = perdure.here("get", "story", "deploy", "--json").json["metadata"]
    assert (shown["namespace"], shown["generation"], len(shown["uid"])) == ("default", 1, 36)
    status = perdure.here("get", "story", "deploy", "--json").json["status"]
    assert (status["validationStatus"], status["stepsTotal"]) == ("valid", 3)  # STY-006
    assert perdure.here("get", "stories", "-n", "shop", "-o", "name").out == ""
    assert "NAMESPACE" in perdure.here("get", "stories", "-A").out
    assert perdure.here("get", "stories", "-l", "team=blue", "-o", "name").out == "story.bubustack.io/deploy\n"
    perdure.here("apply", "-f", name, "-n", "shop")
    assert perdure.here("get", "sruns", code=8).out == ""
    assert len(perdure.here("get", "stories", "-A", "--json").json["items"]) == 2


def test_a_list_that_get_has_printed_is_applied_again(perdure: CommandLine) -> None:
    """What `get -o yaml` and kubectl print of several resources is a List."""
    perdure.here("apply", "-f", write(perdure.folder, GATED, SHIPPER, story("other")))
    listed = perdure.here("get", "stories", "-o", "yaml").out
    assert "kind: List" in listed
    perdure.here("apply", "-f", write(perdure.folder, listed.replace("a: 1", "a: 2")))
    again = perdure.here("get", "story", "other", "-o", "json").json
    assert (again["spec"]["steps"][0]["with"], again["metadata"]["generation"]) == ({"a": 2}, 2)
    assert perdure.here("get", "story", "deploy", "-o", "json").json["metadata"]["generation"] == 1
    wrong = perdure.here("check", write(perdure.folder, listed.replace("type: gate", "type: gaate")), code=7)
    assert "items[0].spec.steps[1].type" in wrong.out


def test_resources_of_other_apis_are_passed_over_beside_ours(perdure: CommandLine) -> None:
    """A file for a cluster has a Namespace or a Role beside its Stories; alone it is no Story."""
    role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r}\nrules: []\n"
    done = perdure.here("apply", "-f", write(perdure.folder, story("one"), role))
    assert "story.bubustack.io/one created" in done.out and "role" not in done.out
    assert 'the kind "Role" belongs to another API' in done.err
    assert "in a language known here" in perdure.here("check", write(perdure.folder, role), code=7).out
    stranger = story("two").replace("apiVersion: bubustack.io/v1alpha1", "apiVersion: other.io/v1")
    refused = perdure.here("apply", "-f", write(perdure.folder, story("one"), stranger), code=7)
    assert "unknown apiVersion" in refused.out + refused.err


def test_an_invalid_story_is_refused_with_its_neighbours(perdure: CommandLine) -> None:
    bad = write(perdure.folder, story("bad", "{name: x, ref: {name: echo}, needs: [y]}"), name="bad.yaml")
    done = perdure("apply", "-f", write(perdure.folder, SHIPPER), "-f", bad, code=7)

    assert "step 'x' lists unknown dependency 'y' in needs" in done.err
    assert perdure.here("get", "engrams", "-o", "name").out == ""


def test_the_story_that_no_other_starts_is_run_and_any_can_be_named(perdure: CommandLine) -> None:
    name = write(perdure.folder, story("inner"), story("outer", CALLS))

    assert perdure("run", name, "--json").json["spec"]["storyRef"]["name"] == "outer"
    assert perdure("run", name, "--name", "inner", "--json").json["spec"]["storyRef"]["name"] == "inner"
    assert "there is no Story 'iner'" in perdure("run", name, "--name", "iner", code=7).err
    only = write(perdure.folder, SHIPPER, name="engram.yaml")
    assert "contains nothing that can be run" in perdure("run", only, code=7).err


def test_what_is_given_with_apply_counts_for_one_run_only(perdure: CommandLine) -> None:
    outer, inner = (
        write(perdure.folder, story("outer", CALLS)),
        write(perdure.folder, story("inner"), name="inner.yaml"),
    )
    done = perdure("run", outer, "--apply", inner, "--json")

    assert done.json["status"]["phase"] == "Succeeded"
    assert perdure.here("get", "stories", "-o", "name").out == ""
    assert perdure("check", outer, inner).out == ""


def test_a_catalogued_story_is_run_by_name_in_any_namespace(perdure: CommandLine) -> None:
    hello = story("hello", "{name: ship, ref: {name: shipper}}")
    perdure.here("apply", "-f", write(perdure.folder, hello, SHIPPER), "-n", "shop")

    assert perdure("run", "shop/hello", "--json").json["metadata"]["namespace"] == "shop"
    assert perdure("run", "story/shop/hello", "--json").json["status"]["phase"] == "Succeeded"
    assert "there is no file 'hello'" in perdure("run", "hello", code=8).err


def test_a_gate_is_approved_before_it_is_reached(perdure: CommandLine) -> None:
    name = gated(perdure)
    perdure("approve", name, "approve", "--by", "Ada", "--message", "go")
    shown = resumed(perdure, name, 0)

    assert shown["status"]["phase"] == "Succeeded"
    gate = shown["status"]["gates"]["approve"]
    assert (gate["state"], gate["updatedBy"], gate["message"]) == ("Approved", "Ada", "go")
    assert perdure("approve", name, "approve", code=9).out == ""


def test_a_gate_is_rejected_and_no_other_step_can_be(perdure: CommandLine) -> None:
    name = gated(perdure)
    perdure("reject", name, "approve", "--message", "not on a Friday")

    assert "is not a gate" in perdure("approve", name, "build", code=9).err
    assert resumed(perdure, name, 3)["status"]["phase"] == "Failed"


def test_a_gate_is_decided_by_a_patch_of_the_status(perdure: CommandLine) -> None:
    name = gated(perdure)
    patch = json.dumps({"status": {"gates": {"approve": {"state": "Approved"}}}})
    assert "--subresource status" in perdure("patch", "storyrun", name, "--type", "merge", "-p", patch, code=2).err
    perdure("patch", "storyrun", name, "--subresource", "status", "--type", "merge", "-p", patch)

    assert resumed(perdure, name, 0)["status"]["phase"] == "Succeeded"


def test_a_run_is_cancelled_by_a_patch_of_its_spec_and_nothing_else_of_it_changes(perdure: CommandLine) -> None:
    """STY-049, STY-186, STY-188."""
    name = gated(perdure)
    cancel = '{"spec": {"cancelRequested": true}}'
    assert "spec is immutable" in perdure("patch", "srun", name, "-p", '{"spec": {"inputs": {}}}', code=2).err
    perdure("patch", "storyrun", name, "--type", "merge", "-p", cancel)
    shown = resumed(perdure, name, 4)

    assert (shown["status"]["phase"], shown["spec"]["cancelRequested"]) == ("Finished", True)
    perdure("patch", "storyrun", name, "--type", "merge", "-p", cancel)  # changes nothing any more


def test_a_run_is_redriven_by_annotation_once_per_value(perdure: CommandLine) -> None:
    """STY-183, STY-184."""
    name = gated(perdure)
    perdure.here("approve", name, "approve")
    resumed(perdure, name, 0)

    def annotate(key: str, value: str, code: int = 0) -> None:
        note = {"metadata": {"annotations": {f"storyrun.bubustack.io/{key}": value}}}
        perdure("patch", "storyrun", name, "--type", "merge", "-p", json.dumps(note), code=code)

    annotate("redrive-from-step", "ship:t1")
    shown = resumed(perdure, name, 0)
    assert shown["metadata"]["annotations"]["storyrun.bubustack.io/redrive-from-step-observed"] == "ship:t1"
    assert shown["status"]["attempts"] == 2
    annotate("redrive-from-step", "ship:t1")
    assert perdure.row(shown["metadata"]["uid"])["status"] == "succeeded"
    annotate("redrive-from-step", "ship", code=2)
    annotate("redrive-from-step", "nope:t2", code=9)
    annotate("redrive-token", "again")
    perdure.here("approve", name, "approve")  # the earlier decision will be forgotten, though nobody has resumed it yet
    shown = resumed(perdure, name, 0)
    assert shown["metadata"]["annotations"]["storyrun.bubustack.io/redrive-observed"] == "again"


def test_a_step_whose_engram_is_missing_goes_on_when_it_is_applied(perdure: CommandLine) -> None:
    """STY-118: Blocked, and resumed when it appears; in another process, while the run is live."""
    write(perdure.folder, SHIPPER, name="engram.yaml")
    blocked = write(perdure.folder, story("late", "{name: ship, ref: {name: shipper}}"))
    running = perdure.start("run", blocked, "--json")
    run = running.run
    assert "Engram/default/shipper, which is not in the catalog" in perdure("show", run).out
    assert perdure.here("show", run, "--json").json["status"]["stepStates"]["ship"]["phase"] == "Blocked"
    perdure("apply", "-f", "engram.yaml")
    done = running.end()

    assert (done.code, done.json["status"]["phase"]) == (0, "Succeeded")


def test_runs_are_listed_and_described_by_their_own_names(perdure: CommandLine) -> None:
    perdure.here("apply", "-f", write(perdure.folder, story("hello")))
    shown = perdure.here("run", "hello", "--json").json
    name = shown["metadata"]["name"]
    lines = perdure("get", "storyruns").out.splitlines()

    assert lines[0].split() == ["NAME", "PHASE", "STORY", "AGE"]
    assert lines[1].split()[:3] == [name, "Succeeded", "hello"]
    assert perdure.here("get", "steprun", f"{name}-say", "-o", "name").out == f"steprun.runs.bubustack.io/{name}-say\n"
    assert perdure.here("get", "srun", name, "--json").json["metadata"]["name"] == name
    text = perdure("describe", "storyrun", name).out
    assert text.index("Spec") < text.index("Status") < text.index("Conditions") < text.index("Events")
    assert "execution.ended" in perdure("history", name).out
    assert shown["metadata"]["uid"] in perdure.here("describe", "story", "hello").out
    assert "there is nothing to stop" in perdure("cancel", name).err  # STY-188


def test_a_story_tells_what_was_found_of_it_and_who_uses_it(perdure: CommandLine) -> None:
    """STY-006: warnings of admission, Impulses that start it, StoryRuns of it."""
    impulse = """\
apiVersion: catalog.bubustack.io/v1alpha1
kind: ImpulseTemplate
metadata: {name: hook}
spec: {version: 1.0.0, supportedModes: [deployment]}
---
apiVersion: bubustack.io/v1alpha1
kind: Impulse
metadata: {name: NAME}
spec: {templateRef: {name: hook}, storyRef: {name: same}}
"""
    doubtful = story("doubtful", "{name: say, ref: {name: not-there}}")
    perdure.here("apply", "-f", write(perdure.folder, story("same"), doubtful, impulse.replace("NAME", "one")))
    perdure.here("apply", "-f", write(perdure.folder, impulse.replace("NAME", "two")))
    perdure.here("run", "same")
    perdure.here("run", "same")

    answer = perdure.here("get", "story", "same", "-o", "json").json["status"]
    assert (answer["validationStatus"], answer["validationErrors"], answer["validationWarnings"]) == ("valid", [], [])
    assert (answer["stepsTotal"], answer["usageCount"], answer["triggers"]) == (1, 2, 2)
    assert answer["conditions"][0]["type"] == "Ready" and answer["conditions"][0]["status"] == "True"
    listed = perdure.here("get", "stories", "--json").json["items"]
    (warning,) = listed[0]["status"]["validationWarnings"]
    assert "not-there" in warning
    assert [story["status"]["triggers"] for story in listed] == [0, 2]
    assert "usageCount: 2" in perdure.here("describe", "story", "same").out


def test_equal_names_in_two_namespaces_are_told_apart(perdure: CommandLine) -> None:
    """STY-001 STY-014: of Stories, their runs, and what belongs to those."""
    run = (
        "apiVersion: runs.bubustack.io/v1alpha1\nkind: StoryRun\n"
        "metadata: {name: once}\nspec: {storyRef: {name: same}}\n"
    )
    for namespace in ("blue", "red"):
        text = story("same").replace("a: 1", f"a: {namespace}")
        engram = SHIPPER.replace("shipper", "echo")
        perdure("apply", "-f", write(perdure.folder, text, engram, run), "-n", namespace)

    for namespace in ("blue", "red"):
        answer = perdure.here("describe", "story", "same", "-n", namespace, "--json").json
        (mine,) = answer["runs"]
        of_run = perdure.here("describe", "storyrun", "once", "-n", namespace, "--json").json
        assert of_run["runs"][0]["id"] == mine["id"] == of_run["resource"]["metadata"]["uid"]
        of_step = perdure.here("get", "steprun", "once-say", "-n", namespace, "-o", "json").json
        assert of_step["spec"]["input"] == {"a": namespace}
    assert "there is no" in perdure.here("describe", "storyrun", "once", code=8).err
    assert len(perdure.here("get", "storyruns", "-A", "--json").json["items"]) == 2
    cut = perdure.here("get", "storyruns", "-A", "--limit", "1", "-o", "name")
    assert len(cut.out.splitlines()) == 1 and "--limit N gives more" in cut.err


def test_the_name_of_a_sub_run_means_that_of_the_latest_life(perdure: CommandLine) -> None:
    """STY-014 STY-088 STY-183: a redriven parent starts its sub-run anew, under the same name."""
    perdure.here("apply", "-f", write(perdure.folder, story("inner"), story("outer", CALLS)))
    run = perdure("run", "outer", "--json").json["metadata"]
    perdure.here("redrive", run["uid"])
    perdure("resume", run["uid"])

    child = perdure.here("show", run["uid"], "--json").json["status"]["stepStates"]["sub"]["subStoryRunName"]
    shown = perdure.here("show", child, "--json").json
    lives = [live for live in perdure.here("ps", "--all", "--json").json if live["parent"] == run["uid"]]
    assert [row["id"] for row in lives] == [shown["metadata"]["uid"]]  # those of earlier lives are removed
    assert perdure.here("get", "storyrun", child, "-o", "json").json["metadata"]["uid"] == shown["metadata"]["uid"]


def test_a_deleted_run_goes_when_its_open_sub_runs_have_stopped(perdure: CommandLine) -> None:
    """STY-091 STY-191: whoever resumes the store next has it done."""
    gate = "{name: sub, type: executeStory, with: {storyRef: {name: inner}, waitForCompletion: false}}"
    perdure.here("apply", "-f", write(perdure.folder, story("inner", "{name: g, type: gate}"), story("outer", gate)))
    name = perdure.here("run", "outer", "--detach").out.strip()
    perdure("resume")
    outer = next(row for row in perdure.here("ps", "--all", "--json").json if row["id"] == name)
    assert outer["status"] == "succeeded"
    shown = perdure.here("show", name, "--json").json["metadata"]["name"]
    done = perdure("delete", "storyrun", shown)
    assert "as soon as its sub-runs have stopped" in done.err
    assert "was removed" in perdure("resume").err
    assert perdure.here("ps", "--all", "--json").json == []


def test_finding_a_run_by_name_reads_no_other(perdure: CommandLine) -> None:
    """However many runs there are, a name leads to its own by an index."""
    perdure.here("apply", "-f", write(perdure.folder, story("same")))
    names = []
    for _ in range(3):
        done = perdure.here("run", "same", "--detach")
        names.append(perdure.here("show", done.out.strip(), "--json").json["metadata"]["name"])
    connection = apsw.Connection(str(perdure.folder / "perdure.db"))
    plan = connection.execute(
        "EXPLAIN QUERY PLAN SELECT id FROM runs"
        " WHERE number IN (SELECT run FROM run_labels WHERE name = ? AND value = ?)",
        ("bubustack.io/storyrun", names[1]),
    )
    steps = [str(row[3]) for row in plan]
    connection.close()

    assert all(step.startswith(("SEARCH", "LIST SUBQUERY")) or "BLOOM" in step for step in steps), steps
    assert perdure.here("get", "storyrun", names[1], "-o", "json").json["metadata"]["name"] == names[1]
