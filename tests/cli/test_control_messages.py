"""`signal`, `cancel`, `redrive`: durable when they return, heard at once by a live owner."""

import pytest
from tests.cli.commandline import CommandLine

ASKS = ({"signal": "go", "save": "said"}, {"return": "$said"})


def test_a_signal_from_another_process_reaches_a_live_run_quickly(perdure: CommandLine) -> None:
    live = perdure.start("run", perdure.drill(*ASKS))
    run = live.run
    live.hear("waits for signal 'go'")
    sent = perdure("signal", run, "go", '{"by": "Ada"}')
    done = live.end()

    assert "resume" not in sent.err
    assert done.code == 0
    assert done.json == {"by": "Ada"}


def test_a_cancel_from_another_process_ends_a_live_run(perdure: CommandLine) -> None:
    live = perdure.start("run", perdure.drill(*ASKS), "--json")
    run = live.run
    sent = perdure("cancel", run, "--reason", "no more", "--wait")
    done = live.end()

    assert "cancelled: no more" in sent.err
    assert done.code == 4
    assert done.json["outcome"] == {"type": "cancelled", "reason": "no more"}


def test_without_an_owner_it_is_recorded_and_counts_on_resume(perdure: CommandLine) -> None:
    run = perdure.here("run", perdure.drill(*ASKS), "--detach").out.strip()
    done = perdure("signal", run, "go", "1", "--json")

    assert done.json == {"id": run, "recorded": True, "live": False, "decided": False, "remarks": []}
    assert "takes effect when the run is resumed" in done.err
    assert perdure.here("resume", run).out == "1\n"
    other = perdure.here("run", perdure.drill(*ASKS), "--detach").out.strip()
    waited = perdure("cancel", other, "--wait", code=6)
    assert "has no live owner" in waited.err
    assert "cancelled" in perdure.here("resume", other, code=4).err


def test_a_key_counts_once_and_other_content_is_a_conflict(perdure: CommandLine) -> None:
    file = perdure.drill({"signal": "a"}, {"signal": "never"})
    run = perdure.here("run", file, "--detach").out.strip()
    perdure("signal", run, "a", "1", "--key", "k")
    perdure.here("resume", run)

    perdure("signal", run, "a", "1", "--key", "k")
    assert "'k' was used before for something else" in perdure("signal", run, "a", "2", "--key", "k", code=9).err


def test_an_ended_run_refuses_and_can_be_reopened(perdure: CommandLine) -> None:
    run = perdure.here("run", perdure.drill({"call": "echo", "with": {"value": 5}}), "--json").json["id"]

    assert "the run has already succeeded" in perdure("signal", run, "go", code=9).err
    assert perdure("cancel", run, "--json", code=9).error["code"] == "CONFLICT"
    perdure("redrive", run, "--key", "again")
    assert "reopened (incarnation 2)" in perdure.here("resume", run).err
    assert "life" in perdure.here("show", run).out
    assert perdure("redrive", run, "--key", "again").code == 0  # said before: nothing new


@pytest.mark.parametrize("words", [("show",), ("history",), ("cancel",), ("signal", "go"), ("redrive",), ("fork",)])
def test_an_unknown_run_is_not_found(perdure: CommandLine, words: tuple[str, ...]) -> None:
    (perdure.folder / "perdure.db").touch()
    verb, *rest = words
    done = perdure.here(verb, "nowhere", *rest, "--json", code=8)

    assert done.error["code"] == "RUN-NOT-FOUND"
    assert "perdure ps --all" in done.error["hint"]


def test_an_ambiguous_beginning_is_refused_with_the_candidates(perdure: CommandLine) -> None:
    file = perdure.drill({"return": 1})
    runs = sorted(perdure.here("run", file, "--detach").out.strip() for _ in range(2))

    assert ", ".join(runs) in perdure.here("show", "0", code=8).err


NAP = """{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a",
"steps": {"a": {"action": "Sleep", "for": "PT1H", "next": "b"}, "b": {"action": "Return"}}}"""
GATED = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: gated, path: gated}
workflow:
  - step: a
    spec: {policy: {admit: {rules: [{when: "{{ ctx.ok }}", then: {allow: true}}]}}}
    tool: {kind: noop}
"""


def test_a_redrive_of_an_open_run_says_that_it_is_open(perdure: CommandLine) -> None:
    for name, text in {"nap.json": NAP, "gated.yaml": GATED}.items():
        (perdure.folder / name).write_text(text)
        perdure.here("run", name, "--detach")
        done = perdure.here("redrive", "@latest", code=9)
        assert "the run is open; only a run that has ended can be redriven" in done.err, name
