"""Legacy documents in the words of canonical v10 (PBK-032)."""

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.playbook.document.conversion import convert
from perdure.documents import read_document
from tests.cli.commandline import CommandLine
from tests.dialects.playbook.test_documents import problems_of
from tests.dialects.playbook.world import World

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: t, path: tests/t}\n"

LEGACY = {
    "vars of the root": "vars: {a: 1}\nworkflow: [{step: s, tool: {kind: noop, result: '{{ vars.a }}'}}]",
    "when of a step": "workflow: [{step: s, when: '{{ workload.a }}', tool: {kind: noop}}]",
    "vars of a step": "workflow: [{step: s, tool: {kind: noop, result: 1}, vars: {a: '{{ result }}'}}]",
    "case": (
        "workflow: [{step: s, tool: {kind: noop, result: 1}, case: [{when: '{{ result == 1 }}', then: [{step: b}]}, "
        "{else: [{step: s}]}]}, {step: b, tool: {kind: noop}}]"
    ),
    "retry of a step": "workflow: [{step: s, tool: {kind: http, url: x}, retry: {max_attempts: 3, delay: 2}}]",
    "retry of a task": "workflow: [{step: s, tool: {kind: http, url: x, retry: {retry_on_status: [500]}}}]",
    "sink": "workflow: [{step: s, tool: {kind: noop}, sink: {tool: {kind: sqlite, database: x, command: SELECT 1}}}]",
    "type": "workflow: [{step: s, type: python, code: 'result = 1', args: {a: 1}}]",
    "a kind as text": "workflow: [{step: s, tool: shell, cmds: [true]}]",
    "expr": (
        "workflow: [{step: s, tool: {kind: noop, spec: {policy: {rules: [{expr: '{{ true }}', then: {do: break}}]}}}}]"
    ),
    "set_vars": (
        "workflow: [{step: s, tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: continue, "
        "set_vars: {a: '{{ outcome.result }}'}}}}]}}}}]"
    ),
    "else without then": "workflow: [{step: s, tool: {kind: noop, spec: {policy: {rules: [{else: {do: continue}}]}}}}]",
    "fixed backoff": (
        "workflow: [{step: s, tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: retry, "
        "backoff: fixed}}}]}}}}]"
    ),
    "next as text": "workflow: [{step: s, next: b}, {step: b, tool: {kind: noop}}]",
    "next as a list": "workflow: [{step: s, tool: {kind: noop}, next: [{step: b, when: '{{ 1 }}'}, end]}, {step: b}]",
    "next as a map": "workflow: [{step: s, next: {step: b}}, {step: b, tool: {kind: noop}}]",
    "next_mode": "workflow: [{step: s, spec: {next_mode: inclusive}, next: [b]}, {step: b, tool: {kind: noop}}]",
    "loop": (
        "workflow: [{step: s, loop: {collection: [1], element: n, mode: async, max_in_flight: 2}, tool: {kind: noop}}]"
    ),
    "a list of workbook entries": (
        "workbook: [{name: w, tool: noop}]\nworkflow: [{step: s, tool: {kind: workbook, task: w}}]"
    ),
    "spec of the root": "spec: {n: 1}\nworkflow: [{step: s, tool: {kind: noop, result: '{{ spec.n }}'}}]",
    "nothing to do": "workflow: [{step: s, tool: {kind: noop}}, {step: end}]",
}


@pytest.mark.parametrize("body", LEGACY.values(), ids=LEGACY.keys())
def test_a_legacy_construct_becomes_a_canonical_one(body: str) -> None:
    """PBK-032: it is refused as it is, and accepted afterwards."""
    assert problems_of(HEAD + body)

    converted = convert((HEAD + body).encode())

    assert converted.text is not None
    assert problems_of(converted.text) == []
    assert all(construct.is_done and construct.path for construct in converted.constructs)


def test_what_is_converted_means_what_it_meant() -> None:
    converted = convert((HEAD + LEGACY["case"]).encode())

    assert converted.text is not None
    (step, _) = read_document(converted.text.encode()).data["workflow"]
    assert step["next"] == {
        "spec": {"mode": "exclusive"},
        "arcs": [{"step": "b", "when": "{{ output.data == 1 }}"}, {"step": "s"}],
    }


def steps_of(body: str, workload: object = None) -> dict[str, Any]:
    """The steps that the converted document runs, with what they have set in `ctx` by their names."""
    converted = convert((HEAD + body).encode())
    assert converted.text is not None
    assert problems_of(converted.text) == []
    shown = World(converted.text, workload).run()
    assert shown["status"] == "success"
    return {name: shown["ctx"].get(name) for name in shown["steps"]}


STARTED = "[{step: a, args: {n: '{{ result.n }}'}}, {next: [{step: b, data: {n: '{{ result.n + 1 }}'}}]}]"
BEHIND = """,
  {step: a, tool: {kind: noop}, set: {ctx.a: '{{ args.n }}'}},
  {step: b, tool: {kind: noop}, set: {ctx.b: '{{ args.n }}'}},
  {step: c, tool: {kind: noop}}, {step: d, tool: {kind: noop}}]"""
FIRST = "workflow: [{step: s, tool: {kind: noop, result: {n: 1}}, "


@pytest.mark.parametrize(
    ("routing", "n", "expected"),
    [
        ("case: [{when: '{{ workload.n == 1 }}', then: " + STARTED + "}, {else: [c]}]", 1, {"a": 1, "b": 2}),
        ("case: [{when: '{{ workload.n == 1 }}', then: " + STARTED + "}, {else: [c]}]", 2, {"c": None}),
        ("case: [{when: '{{ workload.n == 1 }}', then: " + STARTED + "}]", 1, {"a": 1, "b": 2}),
        ("case: [{when: '{{ workload.n == 1 }}', then: " + STARTED + "}], next: [c, d]", 1, {"a": 1, "b": 2}),
        ("case: [{when: '{{ workload.n == 1 }}', then: " + STARTED + "}], next: [c, d]", 2, {"c": None, "d": None}),
        ("next: [{when: '{{ workload.n == 1 }}', then: [{step: c}], else: [c, d]}]", 2, {"c": None, "d": None}),
        ("next: [{step: c, when: '{{ workload.n == 1 }}'}, {step: d, when: '{{ true }}'}]", 1, {"c": None}),
        ("next: [c, d]", 1, {"c": None, "d": None}),
        ("spec: {next_mode: inclusive}, next: [{step: c, when: '{{ true }}'}, d]", 1, {"c": None, "d": None}),
        ("spec: {next_mode: inclusive}, next: {arcs: [{step: c}, {step: d}]}", 1, {"c": None, "d": None}),
    ],
)
def test_all_steps_of_the_first_choice_that_holds_run(routing: str, n: int, expected: dict[str, Any]) -> None:
    """PBK-032: one choice is taken, and all of its steps start, with what they are given."""
    ran = steps_of(FIRST + routing + "}" + BEHIND, {"n": n})

    assert {name: result for name, result in ran.items() if name in "abcd"} == expected


@pytest.mark.parametrize(
    ("guard", "workload", "holds"),
    [
        ("{{ workload.name }} == live", {"name": "live"}, True),
        ("{{ workload.name }} == 'live'", {"name": "test"}, False),
        ("{{ workload.name }} != live", {"name": "test"}, True),
        ("{{ workload.name }} == true", {"name": True}, True),
        ("{{ workload.name }} != true", {"name": True}, False),
        ("{{ workload.name }} == 3", {"name": 3}, True),
    ],
)
def test_a_text_beside_a_template_is_compared_with_it(guard: str, workload: object, holds: bool) -> None:
    """PBK-029: as a text of a canonical document it would always be true."""
    choice = json.dumps([{"when": guard, "then": [{"step": "c"}]}, {"else": [{"step": "d"}]}])

    ran = steps_of(f"{FIRST}case: {choice}}}{BEHIND}", workload)

    assert ("c" in ran, "d" in ran) == (holds, not holds)


def test_attempts_of_a_legacy_retry_wait_as_it_says() -> None:
    converted = convert((HEAD + "workflow: [{step: s, tool: {kind: http, url: x}, retry: {delay: 2}}]").encode())
    retried = convert(
        (HEAD + "workflow: [{step: s, tool: {kind: http, url: x, retry: {retry_on: [timeout]}}}]").encode()
    )

    assert converted.text is not None
    assert retried.text is not None
    assert "backoff: none" in converted.text, "without a multiplier they all wait equally long"
    assert "output.error.kind in [''timeout'']" in retried.text


UNCONVERTED = {
    "a guard in a choice": FIRST + "case: [{when: '{{ 1 }}', then: [{step: c, when: '{{ 0 }}'}, d]}]}" + BEHIND,
    "a guard that is a text": FIRST + "case: [{when: '{{ 1 }} > 0 and {{ 1 }} > 2', then: [c]}]}" + BEHIND,
    "case beside arcs": FIRST + "case: [{when: '{{ 1 }}', then: [c]}], next: {arcs: [{step: d}]}}" + BEHIND,
    "when beside admit": (
        "workflow: [{step: s, when: '{{ 1 }}', tool: {kind: noop}, "
        "spec: {policy: {admit: {rules: [{else: {then: {allow: true}}}]}}}}]"
    ),
    "pages by retry": "workflow: [{step: s, tool: {kind: http, url: x, retry: {on_success: {while: '{{ 1 }}'}}}}]",
    "a list of unknown targets": FIRST + "next: [c, {to: d}]}" + BEHIND,
    "more than a sink's task": (
        "workflow: [{step: s, tool: {kind: noop}, sink: {tool: {kind: noop}, when: '{{ 1 }}'}}]"
    ),
    "pagination": "workflow: [{step: s, loop: {in: [], iterator: n, pagination: {}}, tool: {kind: noop}}]",
    "pipe": "workflow: [{step: s, tool: {kind: noop}, pipe: []}]",
    "actions of a case": "workflow: [{step: s, tool: {kind: noop}, case: [{when: '{{ true }}', then: {do: retry}}]}]",
    "an unknown kind": "workflow: [{step: s, tool: {kind: iterator}}]",
}


@pytest.mark.parametrize("body", UNCONVERTED.values(), ids=UNCONVERTED.keys())
def test_what_has_no_counterpart_stays_and_is_reported(body: str) -> None:
    """PBK-032: never to silence."""
    converted = convert((HEAD + body).encode())

    assert [construct.is_done for construct in converted.constructs].count(False) == 1
    assert problems_of(converted.text or HEAD + body)


def test_a_canonical_document_stays_as_it_is() -> None:
    text = HEAD + "workflow: [{step: s, tool: {kind: noop}, next: {arcs: []}}]"
    assert convert(text.encode()).text is None
    assert convert(b"{{").text is None


def test_the_command_converts_checks_and_reports(tmp_path: Path) -> None:
    perdure = CommandLine(tmp_path)
    (tmp_path / "legacy.yaml").write_text(HEAD + LEGACY["next as text"])
    (tmp_path / "hopeless.yaml").write_text(HEAD + UNCONVERTED["pipe"])

    done = perdure.here("convert", "legacy.yaml", "-o", "playbook.yaml")
    assert "legacy.yaml: workflow[0].next: a router with `arcs`" in done.err
    assert "2 converted, 0 not converted; the result has 0 errors" in done.err
    assert perdure.here("check", "playbook.yaml").code == 0
    refused = perdure.here("convert", "legacy.yaml", "-o", "playbook.yaml", code=2)
    assert "already exists" in refused.err
    report = json.loads(perdure.here("convert", "hopeless.yaml", "--json", code=7).out)
    assert [construct["converted"] for construct in report["constructs"]] == [False]
    assert report["problems"][0]["path"] == "workflow[0].pipe"
