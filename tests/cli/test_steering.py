"""`redrive`, `fork --at-failure` and `wait` of Flows, Playbooks and Stories, and how runs are named."""

import json
from collections.abc import Mapping

import pytest
from tests.cli.commandline import CommandLine

WORK = """
import pathlib, perdure

@perdure.provider("first")
def first() -> str:
    note("first")
    return "one"

@perdure.provider("second")
def second(amount: int = 0) -> str:
    note(f"second {amount}")
    if not pathlib.Path("mended").exists() and amount < 5:
        raise RuntimeError("not mended")
    return "two"

def note(text):
    with open("done.txt", "a") as file:
        file.write(text + "\\n")
"""


def flow(*, amount: str = "{{ int(frame.input.amount) }}", second: str = "b") -> str:
    steps = {
        "a": {"action": "Call", "call": {"provider": "mwl:provider.call/perdure/first/v1"}, "next": second},
        second: {
            "action": "Call",
            "call": {"provider": "mwl:provider.call/perdure/second/v1", "with": {"amount": amount}},
            "next": "done",
        },
        "done": {"action": "Return", "value": "{{ step.input }}"},
    }
    return json.dumps({"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a", "steps": steps})


PLAYBOOK = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: pay, path: pay}
workload: {amount: 1}
workflow:
  - step: a
    tool: {kind: first}
    next: {arcs: [{step: b, when: "{{ event.name == 'step.done' }}"}]}
  - step: b
    tool: {kind: second, amount: "{{ workload.amount }}"}
"""


def put(perdure: CommandLine, name: str, text: str) -> str:
    (perdure.folder / name).write_text(text)
    return name


def write(perdure: CommandLine, language: str) -> str:
    put(perdure, "work.py", WORK)
    return put(perdure, "pay.json", flow()) if language == "flow" else put(perdure, "pay.yaml", PLAYBOOK)


def failed(perdure: CommandLine, language: str) -> str:
    file = write(perdure, language)
    perdure("run", file, "--load", "work.py", "--set", "amount=1", code=3)
    return str(perdure.here("ps", "--json").json[0]["id"])


def done(perdure: CommandLine) -> list[str]:
    return (perdure.folder / "done.txt").read_text().splitlines()


@pytest.mark.parametrize("language", ["flow", "playbook"])
def test_a_failed_run_is_redriven_at_its_step(perdure: CommandLine, language: str) -> None:
    run = failed(perdure, language)
    put(perdure, "mended", "")
    perdure.here("redrive", "@latest")
    assert "reopened" in perdure("resume", run[:8], "--load", "work.py").err
    assert perdure.here("wait", run).out.strip() == "succeeded"
    assert done(perdure) == ["first", "second 1", "second 1"]
    assert "nothing to redrive" in perdure.here("redrive", run, code=9).err


@pytest.mark.parametrize("language", ["flow", "playbook"])
def test_a_fork_at_the_failure_has_another_input_and_both_name_each_other(perdure: CommandLine, language: str) -> None:
    run = failed(perdure, language)
    words = ("--input", '{"amount": 7}', "--load", "work.py")
    fork = perdure("fork", run, "--at-failure", *words, "--detach").out.strip()
    perdure("resume", fork, "--load", "work.py")
    assert done(perdure) == ["first", "second 1", "second 7"]
    assert perdure.here("status", fork, "--json").json["forked_from"] == run
    assert perdure.here("status", run, "--json").json["forks"] == [fork]
    assert perdure.here("ps", "--json").json[1]["status"] == "failed", "the run itself is as it was"
    assert "--at-failure" in perdure("fork", run, *words, code=2).err


def test_a_newer_document_must_have_the_step_that_failed(perdure: CommandLine) -> None:
    run = failed(perdure, "flow")
    put(perdure, "other.json", flow(second="elsewhere"))
    refused = perdure("fork", run, "--at-failure", "--document", "other.json", "--load", "work.py", code=9)
    assert "does not have the Step 'b'" in refused.err
    put(perdure, "newer.json", flow(amount="{{ 9 }}"))
    perdure("fork", run, "--at-failure", "--document", "newer.json", "--load", "work.py")
    assert done(perdure) == ["first", "second 1", "second 9"]
    put(perdure, "book.yaml", PLAYBOOK)
    refused = perdure("fork", run, "--at-failure", "--document", "book.yaml", "--load", "work.py", code=9)
    assert "is a document of language 'playbook'" in refused.err


BAD = {"provider": "mwl:provider.call/mwl/mock/v1", "with": {"failure": {"code": "Bad"}}}
ENDS = {"done": {"action": "Return"}}


def _outer(step: Mapping[str, object], **flows: object) -> str:
    head = {"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a"}
    return json.dumps({**head, "steps": {"a": {**step, "next": "done"}, **ENDS}, "flows": flows})


def _inner(name: str) -> dict[str, object]:
    return {"entrypoint": name, "steps": {name: {"action": "Call", "call": BAD, "next": "done"}, **ENDS}}


def _tasks(*labels: str, more: str = "") -> str:
    tasks = {"one": "one: {kind: noop}", "two": 'two: {kind: noop, result: "{{ 1 // 0 }}"}'}
    lines = "".join(f"      - {tasks[label]}\n" for label in labels)
    head = "apiVersion: noetl.io/v10\nkind: Playbook\nmetadata: {name: p, path: p}\nworkflow:\n"
    return f"{head}  - step: s\n{more}    tool:\n{lines}"


NESTED = {"action": "Call", "call": {"flow": "Inner"}}


@pytest.mark.parametrize(
    ("older", "newer", "missing"),
    [
        (_outer(NESTED, Inner=_inner("x")), _outer(NESTED, Inner=_inner("y")), "the Step 'x' of the Flow /flows/Inner"),
        (
            _outer({"action": "Gather", "over": [1], "call": BAD}),
            _outer({"action": "Call", "call": BAD}),
            "a Gather as Step 'a'",
        ),
        (_tasks("one", "two"), _tasks("two", "one"), "the task 'two' at position 2 of step 's'"),
        (_tasks("two", more="    loop: {in: [1], iterator: i}\n"), _tasks("two"), "the step 's' with its loop"),
    ],
    ids=["a Step of an inner Flow", "a Gather", "a task elsewhere in its pipeline", "a loop"],
)
def test_a_fork_is_refused_if_a_place_of_the_run_is_not_in_the_newer_document(
    perdure: CommandLine, older: str, newer: str, missing: str
) -> None:
    perdure.here("run", put(perdure, "older.txt", older), code=3)
    before = perdure.here("ps", "--json").json
    refused = perdure.here("fork", "@latest", "--at-failure", "--document", put(perdure, "newer.txt", newer), code=9)

    assert f"newer.txt does not have {missing}" in refused.err and "Keep the names" in refused.err
    assert [row["id"] for row in perdure.here("ps", "--json").json] == [row["id"] for row in before]


@pytest.mark.parametrize("language", ["flow", "playbook"])
def test_wait_for_a_step_a_phase_or_the_end(perdure: CommandLine, language: str) -> None:
    run = failed(perdure, language)
    assert perdure.here("wait", run, "--for", "step=a").out.strip() == "failed"
    assert perdure.here("wait", run, "--for", "phase=failed", "--json").json == {
        "id": run,
        "status": "failed",
        "for": "phase=failed",
        "met": True,
    }
    assert "does not come any more" in perdure.here("wait", run, "--for", "phase=succeeded", code=9).err
    assert "cannot be waited for" in perdure("wait", run, "--for", "tea", code=2).err
    later = perdure("run", write(perdure, language), "--load", "work.py", "--detach").out.strip()
    late = perdure.here("wait", later, "--for", "ended", "--timeout", "200ms", code=6)
    assert "perdure resume" in late.err and "within" in late.err


def test_wait_for_a_step_and_a_phase_of_a_story(perdure: CommandLine) -> None:
    put(
        perdure,
        "gate.yaml",
        """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: gated}
spec:
  steps:
    - {name: nap, type: sleep, with: {duration: 1ms}}
    - {name: ok, type: gate, needs: [nap]}
""",
    )
    perdure.here("run", "gate.yaml", "--wait-timeout", "1s", code=6)
    assert perdure.here("wait", "@latest", "--for", "step=nap", "--timeout", "5s").code == 0
    assert perdure.here("wait", "@latest", "--for", "phase=Running", "--timeout", "5s").code == 0


def test_texts_stay_texts_and_there_may_be_no_latest_run(perdure: CommandLine) -> None:
    file = perdure.drill({"return": 1}, name="first")
    perdure.here("run", file, "--set", "a=1", "--set-string", "b=1", "--set-string", "c.d=true")
    events = perdure.here("history", "@latest", "--raw", "--json").json
    assert events[0]["input"] == {"a": 1, "b": "1", "c": {"d": "true"}}
