"""Legacy documents in the words of canonical v10 (PBK-032)."""

import json
from pathlib import Path

import pytest

from perdure.dialects.playbook.document.conversion import convert
from perdure.documents import read_document
from tests.cli.commandline import CommandLine
from tests.dialects.playbook.test_documents import problems_of

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


UNCONVERTED = {
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
    assert "exists already" in refused.err
    told = json.loads(perdure.here("convert", "hopeless.yaml", "--json", code=7).out)
    assert [construct["converted"] for construct in told["constructs"]] == [False]
    assert told["problems"][0]["path"] == "workflow[0].pipe"
