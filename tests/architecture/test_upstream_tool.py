"""The tool that counts how documents of other projects are taken, on a copy made for it (`tools/upstream.py`)."""

import asyncio
from pathlib import Path

import pytest
from tools.upstream import LANGUAGES, STORIES, count, earlier_runs, find_documents, page, section, yaml_blocks
from tools.upstream_expectations import CONFIG, read_expectations
from tools.upstream_runs import Accepted, Ran, Why, run_stories, runs_section
from tools.upstream_services import why_not

from perdure.documents import read_document

HEAD = "apiVersion: bubustack.io/v1alpha1\nkind: Story\nmetadata: {name: NAME}\n"
STORY = HEAD + "spec:\n  steps: [{name: s, type: TYPE}]\n"
GATE = STORY.replace("TYPE", "gate")


def copy(folder: Path) -> Path:
    files = {
        "one/good.yaml": GATE.replace("NAME", "good"),
        "one/stray.yaml": GATE.replace("NAME", "stray") + "  colour: planted-text\n",
        "one/config/crd/left-out.yaml": GATE,
        "two/README.md": f"# x\n\n```yaml\n{GATE.replace('NAME', 'block')}```\n\n```sh\n{GATE}```\n",
        "two/scaffold.yaml": HEAD.replace("NAME", "x"),
        "two/other.yaml": "kind: Service\n",
        "two/ours.yaml": STORY.replace("NAME", "ours").replace("TYPE", "planted"),
    }
    for name, text in files.items():
        file = folder / STORIES.owner / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_each_document_is_accepted_or_has_a_reason(tmp_path: Path) -> None:
    documents = list(find_documents(copy(tmp_path), STORIES))
    counted = asyncio.run(count(STORIES, documents))
    assert [document.path for document in counted.accepted] == ["good.yaml", "README.md:3"]
    assert [document.path for document in counted.by_variant["accepted with `admission.lenient`"]] == ["stray.yaml"]
    assert [(document.path, reason) for document, reason in counted.rightly] == [
        ("scaffold.yaml", "a scaffold without a `spec`")
    ]
    ((ours, problem),) = counted.ours
    assert (ours.path, problem.path) == ("ours.yaml", "spec.steps[0].type")

    written = section(STORIES, counted)
    assert "| documents | 5 |" in written and "Of the 4 that are not rightly refused, 3 are taken (75 %)." in written
    assert "| two/ours.yaml | `spec.steps[0].type` |" in written and "| it is not known here |" in written
    assert "planted" not in written, "no text of a document is written"


def test_sections_of_languages_that_are_not_in_the_copy_stay() -> None:
    title = LANGUAGES[0].title
    before = page({title: f"## {title}\n\nold\n"}, "")
    assert page({}, before) == before
    assert "new" in page({title: f"## {title}\n\nnew\n"}, before)


def test_what_is_said_about_runs_stays_until_they_are_run_again(tmp_path: Path) -> None:
    counted = asyncio.run(count(STORIES, list(find_documents(copy(tmp_path), STORIES))))
    ran = [Ran("one/good.yaml", "succeeded", is_expected=True), Ran("two/README.md:3", "not run", reason="needs a | b")]
    with_runs = page({STORIES.title: section(STORIES, counted, runs_section(STORIES.title, ran))}, "")

    again = section(STORIES, counted, earlier_runs(STORIES, with_runs))

    assert "| ended as their authors say | 1 |" in with_runs
    assert "| two/README.md:3 | needs a \\| b |" in with_runs
    assert page({STORIES.title: again}, with_runs) == with_runs


def test_runs_that_end_otherwise_are_told_apart_by_their_reason() -> None:
    ran = [
        Ran("a/good.yaml", "success", is_expected=True, differences=[]),
        Ran("a/part.yaml", "failed", reason="needs a table", why=Why.NOT_ALONE),
        Ran(
            "a/theirs.yaml", "success", reason="its own check is wrong", why=Why.THERE_TOO, differences=["5 steps ran"]
        ),
        Ran("a/rule.yaml", "failed", reason="a number", why=Why.A_RULE),
        Ran("a/far.yaml", "not run", reason="needs a host"),
    ]
    written = "\n".join(runs_section("Playbooks", ran))

    assert "Of the 3 that can be run here, 2 end as upstream says (66 %)." in written
    assert f"| {Why.A_RULE} | 1 |" in written and f"| {Why.OTHERWISE} |" not in written
    assert "For 2 of these documents" in written and "1 of them agree in all of it." in written
    assert "| a/theirs.yaml | 5 steps ran |" in written


EXPECTED = """
playbooks:
- path: fixtures/a
  validation:
    execution_status: completed
    min_steps: 2
    required_steps: [start, end]
    step_validations: {start: {result_checks: [{field: data.text, value: hi}]}}
- path: fixtures/broken
  validation: {execution_status: failed, error_pattern: "no sql"}
"""


def test_what_a_project_expects_of_a_run_is_compared_with_it(tmp_path: Path) -> None:
    (tmp_path / CONFIG).parent.mkdir()
    (tmp_path / CONFIG).write_text(EXPECTED)
    expected = read_expectations([tmp_path, tmp_path / "without"])
    shown = '{"status": "success", "steps": {"start": {"runs": 1}, "end": {"runs": 1}}}'
    history = '[{"event_type": "step.done", "step": "start", "payload": {"result": {"data": {"text": "hi"}}}}]'
    failed = '{"status": "failed", "failures": [{"error": {"message": "No SQL command"}}]}'

    assert expected.differences("fixtures/other.yaml", shown, history) is None
    assert expected.differences("fixtures/a.yaml", shown, history) == []
    assert expected.differences("fixtures/broken.yaml", failed, "") == []
    assert expected.differences("fixtures/broken.yaml", failed.replace("SQL", "table"), "") == ["another error"]
    assert expected.differences("fixtures/a.yaml", failed, "") == [
        "the status is failed, not success",
        "there is no step start, end",
        "0 steps ran, not 2",
        "`data.text` of step start has another value",
    ]


TASKS = {
    '{kind: shell, cmds: [\'if [ -n "$X" ]; then echo "curl x" | grep y; fi\']}': None,
    "{kind: shell, cmds: ['set -e', 'kubectl get pods # docker']}": "needs the program kubectl",
    "{kind: shell, cmds: '$TOOL run'}": "needs programs that variables name",
    "{kind: shell, cmds: ['{{ workload.tool }} run']}": "needs programs that variables name",
    "{kind: http, url: 'https://api.example.org/x'}": "needs the host api.example.org",
    "{kind: http, url: 'https://httpbin.org/get'}": None,
    "{kind: python, code: 'import no_such_module, json'}": "needs the Python package no_such_module",
    "{kind: python, code: 'import subprocess'}": "needs programs that its code starts",
    "{kind: postgres, host: db.data.svc.cluster.local, query: SELECT 1}": "needs the host db.data.svc.cluster.local",
    "{kind: container, runtime: {image: x}}": "needs a container runtime",
}


@pytest.mark.parametrize(("task", "needs"), TASKS.items())
def test_only_what_needs_nothing_from_elsewhere_is_run(task: str, needs: str | None) -> None:
    document = read_document(f"workflow: [{{step: a, tool: {task}}}]".encode()).data

    assert why_not(document, {"httpbin.org": "http://127.0.0.1:1"}) == needs


def test_stories_of_primitives_are_run(tmp_path: Path) -> None:
    engram = GATE.replace("NAME", "x").replace("type: gate", "ref: {name: fetch}")
    documents = [Accepted(tmp_path, "a.yaml", GATE.replace("NAME", "gated")), Accepted(tmp_path, "b.yaml", engram)]

    gate, other = run_stories(documents)

    assert (gate.status, gate.is_expected) == ("succeeded", True)
    assert (other.status, other.reason) == ("not run", "needs the Engrams fetch: images that run in a cluster")


def test_blocks_inside_of_other_fences_are_not_documents() -> None:
    text = "````md\n```yaml\na: 1\n```\n````\n  ```yml\n  b: 2\n  ```\n"
    assert list(yaml_blocks(text)) == [(6, "b: 2\n")]
