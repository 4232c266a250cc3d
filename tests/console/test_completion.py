"""CON-006: what the editor offers depends on the place in the document, by the schemas that the server has."""

from typing import Any

import pytest

from perdure.wiring import languages
from tests.console.compiled_parts import ask_part

FLOW = '{\n  "entrypoint": "a",\n  "steps": {\n    "a": { "action": '
PLAYBOOK = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: p}\nworkflow:\n- step: one\n"
STORY = "apiVersion: bubustack.io/v1alpha1\nkind: Story\nmetadata: {name: s}\nspec:\n"
CASES: dict[str, tuple[str, str, set[str], set[str]]] = {
    "members of a Flow": (
        "flow",
        '{\n  "entrypoint": "a",\n  "',
        {"steps", "flows", "parameters"},
        {"entrypoint", "action"},
    ),
    "actions": ("flow", FLOW + '"', {"Call", "Gather", "Return"}, {"steps"}),
    "members of a Gather": ("flow", FLOW + '"Gather", "', {"over", "calls", "concurrency"}, {"action", "until"}),
    "members of a Sleep": ("flow", FLOW + '"Sleep", "', {"for", "until", "next"}, {"over", "call"}),
    "members of a call": ("flow", FLOW + '"Call", "call": { "', {"provider", "flow", "with"}, {"action", "next"}),
    "a catch clause": ("flow", FLOW + '"Call", "catch": [{ "', {"match", "next"}, {"call"}),
    "after a member that is closed": ("flow", FLOW + '"Call", "call": { "flow": "x" }, "', {"next"}, {"provider"}),
    "members of a Playbook": (
        "playbook",
        "apiVersion: noetl.io/v2\n",
        {"workflow", "workload", "kind"},
        {"apiVersion", "tool"},
    ),
    "a word": ("playbook", "apiVersion: ", {"noetl.io/v2"}, {"kind"}),
    "members of a step": ("playbook", PLAYBOOK + "  ", {"tool", "loop", "next"}, {"step", "workload", "url"}),
    "members of the next step": ("playbook", PLAYBOOK + "  tool: {kind: noop}\n- ", {"step", "tool"}, {"workload"}),
    "a loop": ("playbook", PLAYBOOK + "  loop:\n    in: x\n    ", {"iterator", "spec"}, {"in", "tool"}),
    "a task of a kind": (
        "playbook",
        PLAYBOOK + "  tool:\n    kind: http\n    ",
        {"url", "method"},
        {"kind", "command"},
    ),
    "a task on one line": ("playbook", PLAYBOOK + "  tool: {kind: http, ", {"url"}, {"step"}),
    "a task of a pipeline": ("playbook", PLAYBOOK + "  tool:\n  - name: a\n    kind: python\n    ", {"code"}, {"url"}),
    "kinds": ("playbook", PLAYBOOK + "  tool:\n    kind: ", {"http", "postgres"}, {"url"}),
    "directives": (
        "playbook",
        PLAYBOOK + "  tool:\n    kind: http\n    spec:\n      policy:\n        rules:\n        - else: {then: {do: ",
        {"retry", "jump"},
        {"url"},
    ),
    "an arc": ("playbook", PLAYBOOK + "  next:\n    arcs:\n    - step: x\n      ", {"when", "args"}, {"arcs", "tool"}),
    "members of a Story": ("story", STORY + "  ", {"steps", "inputsSchema", "policy"}, {"needs", "kind"}),
    "members of its steps": ("story", STORY + "  steps:\n  - name: a\n    ", {"needs", "ref", "if"}, {"name", "steps"}),
    "types of steps": ("story", STORY + "  steps:\n  - name: a\n    type: ", {"gate", "parallel"}, {"needs"}),
    "a branch": (
        "story",
        STORY + "  steps:\n  - name: a\n    type: parallel\n    with:\n      steps:\n      - name: b\n        ",
        {"ref", "needs"},
        {"name", "steps"},
    ),
    "the second document": ("story", STORY + "  steps: []\n---\nkind: Engram\nspec:\n  ", {"templateRef"}, {"steps"}),
    "free data": ("playbook", PLAYBOOK + "workload:\n  ", set(), {"step", "tool"}),
}
PROGRAM = """
const { offersAt } = require("./editor/schema.js");
const { schemas, cases } = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
const answers = cases.map(([language, text]) => offersAt(schemas[language], text, text.length) ?? []);
process.stdout.write(JSON.stringify(answers.map((offers) => offers.map((each) => each.label))));
"""


@pytest.fixture(scope="module")
def offered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    schemas = {name: language.document_schema() for name, language in languages().items()}
    cases = [[language, text] for language, text, _, _ in CASES.values()]
    folder = tmp_path_factory.mktemp("completion")
    answers: list[Any] = ask_part(folder, "editor/schema.ts", PROGRAM, {"schemas": schemas, "cases": cases})
    return dict(zip(CASES, answers, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_the_editor_offers_what_fits_the_place(offered: dict[str, list[str]], case: str) -> None:
    _, _, included, unwanted = CASES[case]
    assert included <= set(offered[case]) and not unwanted & set(offered[case]), sorted(offered[case])
