"""Advice at the command line: misspelt options, patches that nobody reads; and the exit code of a cancelled Story."""

from tests.cli.commandline import CommandLine

GATED = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: g, path: g}
workflow:
  - step: a
    spec: {policy: {admit: {rules: [{when: "{{ ctx.approved }}", then: {allow: true}}]}}}
    tool: {kind: noop}
"""
STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: s}
spec: {steps: [{name: ok, type: gate}]}
"""


def test_an_unknown_option_gets_a_guess(perdure: CommandLine) -> None:
    assert "unrecognized arguments: --stric; did you mean --strict?" in perdure("check", "x", "--stric", code=2).err
    assert "did you mean --input?" in perdure("run", "x", "--inptu={}", code=2).err
    assert "did you mean" not in perdure("check", "x", "--zzzzzz", code=2).err


def test_a_patch_of_a_name_that_no_guard_reads_is_warned_of(perdure: CommandLine) -> None:
    (perdure.folder / "g.yaml").write_text(GATED)
    run = perdure.here("run", "g.yaml", "--detach", "--json").json["id"]
    misspelt = perdure.here("patch", run, "--set", "aproved=true")

    assert "warning: no guard of this document reads ctx.aproved; did you mean 'approved'?" in misspelt.err
    assert "warning" not in perdure.here("patch", run, "--set", "approved=true").err


def test_a_cancelled_story_exits_with_4(perdure: CommandLine) -> None:
    (perdure.folder / "s.yaml").write_text(STORY)
    run = perdure.here("run", "s.yaml", "--detach", "--json").json["id"]
    perdure.here("cancel", run)

    assert perdure.here("resume", run, "--json", code=4).json["status"]["phase"] == "Finished"
