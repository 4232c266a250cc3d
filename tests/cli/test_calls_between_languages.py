"""Each language calls the others: a child run, one tree, one result, and one cancel."""

import json
from typing import Any

import pytest
from tests.cli.commandline import CommandLine

FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "a",
    "steps": {"a": {"action": "Return", "value": "{{ {'from': 'flow', 'got': frame.input.n} }}"}},
}
FAILING = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "a",
    "steps": {"a": {"action": "Raise", "result": {"type": "error", "code": "My.Problem", "message": "out of stock"}}},
}
SLEEPING = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "a",
    "steps": {
        "a": {"action": "Sleep", "for": "PT1H", "next": "b"},
        "b": {"action": "Return", "value": 1},
    },
}
BOOK = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: book, path: book}
workload: {n: 0}
workflow: [{step: only, tool: {kind: noop, result: "{{ workload.n }}"}}]
"""

WAITING = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: slow, path: slow}
workflow:
  - step: gate
    spec: {policy: {admit: {rules: [{when: "{{ ctx.go }}", then: {allow: true}}]}}}
    tool: {kind: noop}
"""


def put(perdure: CommandLine, name: str, content: Any) -> str:
    text = content if isinstance(content, str) else json.dumps(content)
    (perdure.folder / name).write_text(text)
    return name


def story(block: str) -> str:
    return f"""
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {{name: caller}}
spec:
  steps:
    - {{name: call, type: executeStory, with: {block}}}
  output: {{answer: "{{{{ steps.call.output }}}}"}}
"""


def called(
    perdure: CommandLine, block: str, child: str, *, code: int = 0, more: str = "", words: tuple[str, ...] = ()
) -> Any:
    file = put(perdure, "caller.yaml", story(block))
    return perdure.here("run", file, "--apply", child, "--json", code=code).json


def test_a_story_calls_a_flow_and_reads_its_result(perdure: CommandLine) -> None:
    child = put(perdure, "sums.json", FLOW)
    run = called(perdure, "{documentRef: {language: flow, name: sums}, with: {n: 7}}", child)
    assert run["status"]["phase"] == "Succeeded", run["status"]
    assert run["status"]["output"] == {"answer": {"result": {"from": "flow", "got": 7}}}
    below, above = perdure.here("ps", "--children", "--json").json
    assert (below["language"], below["name"], below["parent"]) == ("flow", "sums", above["id"])
    assert run["status"]["stepStates"]["call"]["subStoryRunName"] == below["id"], "one history leads to the other"


def test_a_story_calls_a_playbook(perdure: CommandLine) -> None:
    child = put(perdure, "book.yaml", BOOK)
    run = called(perdure, "{documentRef: {language: playbook, name: book}, with: {n: 3}}", child)
    answer = run["status"]["output"]["answer"]
    assert (answer["status"], answer["result"]) == ("success", 3)


@pytest.mark.parametrize("way", ["applied with the run", "in the catalog"])
def test_documents_of_two_languages_may_have_one_name(perdure: CommandLine, way: str) -> None:
    """SRV-041: `documentRef` names the language, so the other document is not meant."""
    (perdure.folder / "docs").mkdir()
    put(perdure, "docs/sums.json", FLOW)
    put(perdure, "docs/book.yaml", BOOK.replace(" book", " sums"))
    if way == "in the catalog":
        perdure.here("apply", "-f", "docs")
    for language, answers in (("flow", {"from": "flow", "got": 7}), ("playbook", 7)):
        file = put(
            perdure, "caller.yaml", story(f"{{documentRef: {{language: {language}, name: sums}}, with: {{n: 7}}}}")
        )
        words = ("--apply", "docs") if way == "applied with the run" else ()
        run = perdure.here("run", file, *words, "--json").json
        assert run["status"]["output"]["answer"]["result"] == answers, run["status"]


def test_a_failure_of_the_flow_is_the_steps_failure(perdure: CommandLine) -> None:
    child = put(perdure, "bad.json", FAILING)
    run = called(perdure, "{documentRef: {language: flow, name: bad}}", child, code=3)
    state = run["status"]["stepStates"]["call"]
    assert state["phase"] == "Failed" and "My.Problem: out of stock" in state["message"]


def test_what_is_not_there_fails_the_step(perdure: CommandLine) -> None:
    child = put(perdure, "book.yaml", BOOK)
    run = called(perdure, "{documentRef: {language: flow, name: book}}", child, code=3)
    message = run["status"]["stepStates"]["call"]["message"]
    assert "there is no flow 'book'; the playbook of that name is not meant" in message


def test_a_timeout_and_a_cancel_reach_the_flow(perdure: CommandLine) -> None:
    child = put(perdure, "slow.json", SLEEPING)
    text = story("{documentRef: {language: flow, name: slow}}")
    put(perdure, "short.yaml", text.replace("spec:\n", "spec:\n  policy: {timeouts: {story: 500ms}}\n"))
    perdure("run", "short.yaml", "--apply", child, code=5)
    assert children(perdure) == {"cancelled"}

    put(perdure, "long.yaml", text)
    perdure("run", "long.yaml", "--apply", child, "--wait-timeout", "1s", code=6)
    assert children(perdure) == {"cancelled", "waiting"}
    perdure("cancel", "@latest")
    perdure("resume", code=None)
    assert children(perdure) == {"cancelled"}


@pytest.mark.parametrize("language", ["flow", "playbook"])
def test_a_step_s_own_timeout_stops_what_it_calls(perdure: CommandLine, language: str) -> None:
    """The step is `Timeout`, its dependents run if that is allowed, its compensation runs if it is not."""
    child = put(perdure, "slow.json", SLEEPING) if language == "flow" else put(perdure, "slow.yaml", WAITING)
    target = f"{{documentRef: {{language: {language}, name: slow}}}}"
    call = f"type: executeStory, with: {target}, execution: {{timeout: 300ms}}"
    text = f"""
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {{name: caller}}
spec:
  steps:
    - {{name: a, {call}, allowFailure: true}}
    - {{name: after, type: condition, needs: [a]}}
    - {{name: b, {call}, needs: [after]}}
  compensations: [{{name: undo, type: condition}}]
"""
    put(perdure, "caller.yaml", text)
    shown = perdure.here("run", "caller.yaml", "--apply", child, "--json", code=3).json["status"]
    phases = {name: state["phase"] for name, state in shown["stepStates"].items()}
    assert phases == {"a": "Timeout", "after": "Succeeded", "b": "Timeout", "undo": "Succeeded"}
    assert shown["phase"] == "Compensated"
    assert children(perdure) == {"cancelled"}


def children(perdure: CommandLine) -> set[str]:
    return {row["status"] for row in perdure.here("ps", "--children", "--json").json if row["parent"]}


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("{documentRef: {language: cobol, name: x}}", "is not a language (expected flow or playbook)"),
        ("{documentRef: {language: story, name: x}}", "a Story is named by 'storyRef'"),
        ("{documentRef: {language: flow}}", "must be a text without template"),
        ("{documentRef: {language: flow, name: x}, storyRef: {name: y}}", "'storyRef' or 'documentRef', not both"),
        ("{documentRef: {language: playbook, name: x}, arguments: {a: 1}}", "'arguments' are for a Flow"),
    ],
)
def test_check_says_what_is_wrong_with_a_call(perdure: CommandLine, block: str, expected: str) -> None:
    file = put(perdure, "caller.yaml", story(block))
    done = perdure.here("check", file, code=7)
    assert expected in done.out + done.err


def test_a_flow_and_a_playbook_call_the_others(perdure: CommandLine) -> None:
    put(
        perdure,
        "told.yaml",
        "apiVersion: bubustack.io/v1alpha1\nkind: Story\nmetadata: {name: told}\nspec:\n"
        "  steps: [{name: nap, type: sleep, with: {duration: 1ms}}]\n  output: {said: 'yes'}\n",
    )
    book, sums = put(perdure, "book.yaml", BOOK), put(perdure, "sums.json", FLOW)
    run = {"provider": "mwl:provider.call/perdure/run/v1"}
    steps = {
        "book": {
            "action": "Call",
            "call": {**run, "with": {"path": "book"}},
            "assign": {"b": "{{ step.result.value.result }}"},
            "next": "told",
        },
        "told": {"action": "Call", "call": {**run, "with": {"path": "told"}}, "next": "done"},
        "done": {"action": "Return", "value": "{{ [vars.b, step.input] }}"},
    }
    put(perdure, "top.json", {"$schema": FLOW["$schema"], "entrypoint": "book", "steps": steps})
    done = perdure.here("run", "top.json", "--apply", book, "--apply", "told.yaml", "--json", code=None)
    assert done.code == 0, done.out
    put(
        perdure,
        "top.yaml",
        """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: top, path: top}
workflow:
  - {step: sums, tool: {kind: playbook, path: sums, args: {n: 4}}, next: {arcs: [{step: told}]}}
  - {step: told, tool: {kind: playbook, path: told}}
""",
    )
    shown = perdure.here("run", "top.yaml", "--apply", sums, "--apply", "told.yaml", "--json").json
    assert shown["status"] == "success"
    languages = {row["language"] for row in perdure.here("ps", "--children", "--json").json if row["parent"]}
    assert languages == {"story", "flow", "playbook"}
