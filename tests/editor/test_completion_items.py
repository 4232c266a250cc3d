"""What is offered while a document is written, in every language, in JSON and YAML, however little is there."""

import pytest
from tests.editor.editing import accept, examples, items_at, names_of, schema_of

from perdure.dialects.flow.steps import ACTIONS
from perdure.dialects.playbook import tools
from perdure.dialects.story.steps import TYPES
from perdure.editor.completion_items import complete
from perdure.editor.document_tree import DocumentTree
from perdure.editor.hover import hover
from perdure.views.resources.document_check import schema_of_language
from perdure.wiring import languages

FLOW = '{"$schema": "x", "entrypoint": "a", "steps": {"a": {"action": "Call", "next": "b"}, "b": {"action": "Pass"§}}}'
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: x, path: a/b}
workload: {city: Oslo}
workflow:
  - step: start
    tool: {kind: noop}
    next:
      arcs:
        - step: finish
  - step: finish
    tool: {kind: noop}
"""
STORY = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: s}
spec:
  steps:
    - name: build-it
      ref: {name: e1}
    - name: two
"""
STEP = '{"steps": {"one": {"action": "Call", §'


@pytest.mark.parametrize(
    ("language", "text", "labels"),
    [
        ("flow", FLOW.replace("§", "").replace('"entrypoint": "a"', '"entrypoint": "§"'), {"a", "b"}),
        ("flow", '{"steps": {"a": {"action": "Ca§', {"Call", "Gather", "Match"}),
        ("flow", '{"steps": {"a": {"action": §}}}', {"Call", "Sleep"}),
        ("flow", STEP, {"call", "next", "catch", "middleware"}),
        ("flow", STEP.replace("§", '"ne§'), {"next"}),
        ("flow", STEP.replace("§", '"next": "§"}, "two": {}}}'), {"one", "two"}),
        ("flow", STEP.replace("§", '"call": {"provider": "§'), {"mwl:provider.call/perdure/http/v1"}),
        (
            "flow",
            STEP.replace("§", '"call": {"provider": "mwl:provider.call/perdure/http/v1", "with": {"§'),
            {"url", "method", "headers"},
        ),
        ("flow", STEP.replace("§", '"assign": {"total": 1}, "output": "{{ vars.§'), {"total"}),
        ("flow", STEP.replace("§", '"output": "{{ st§ }}"'), {"step", "vars", "execution", "failure"}),
        ("flow", STEP.replace("§", '"output": "{{ step.§ }}"'), {"input", "result", "name"}),
        ("flow", "$schema: x\nsteps:\n  a:\n    action: Match\n    §\n  b: {}\n", {"cases", "default", "input"}),
        ("flow", "steps:\n  a:\n    action: Match\n    cases:\n      - §\n", {"when", "next", "output"}),
        (
            "flow",
            '{"flows": {"inner": {"steps": {}}}, "steps": {"a": {"action": "Call", "call": {"flow": "§',
            {"inner"},
        ),
        ("playbook", "§", {"apiVersion", "kind", "workflow", "workload"}),
        ("playbook", f"{PLAYBOOK}  - §", {"step", "tool", "next", "loop"}),
        ("playbook", f"{PLAYBOOK}  - step: z\n    to§", {"tool"}),
        ("playbook", f"{PLAYBOOK}  - step: z\n    tool:\n      kind: §", {"http", "postgres", "echo"}),
        ("playbook", f"{PLAYBOOK}  - step: z\n    tool:\n      kind: http\n      §", {"url", "method", "auth"}),
        ("playbook", f"{PLAYBOOK}  - step: z\n    tool: {{kind: http, §}}", {"url", "method"}),
        ("playbook", f"{PLAYBOOK}  - step: z\n    tool:\n      - fetch:\n          kind: http\n          §", {"url"}),
        ("playbook", PLAYBOOK.replace("- step: finish\n  -", "- step: §\n  -"), {"start", "finish"}),
        ("playbook", f'{PLAYBOOK}  - step: z\n    tool: {{kind: http, url: "{{{{ workload.§', {"city"}),
        ("playbook", f"{PLAYBOOK}  - step: z\n    tool: {{kind: http, url: '{{{{ §", {"workload", "ctx", "steps"}),
        ("playbook", f"{PLAYBOOK}  - step: z\n    next: {{spec: {{mode: §}}}}", {"exclusive", "inclusive"}),
        ("playbook", f"{PLAYBOOK}  - step: z\n    tool:\n      kind: echo\n      args:\n        §", {"value"}),
        ("story", f"{STORY}      §", {"needs", "ref", "type", "with"}),
        ("story", f"{STORY}      needs: [§]", {"build-it", "two"}),
        ("story", f"{STORY}      needs:\n        - §", {"build-it", "two"}),
        ("story", f"{STORY}      type: §", {"gate", "sleep", "executeStory"}),
        ("story", f"{STORY}      type: sleep\n      with:\n        §", {"duration"}),
        ("story", f"{STORY}      if: '{{{{ steps.§", {"build-it"}),
        ("story", f"{STORY}      if: '{{{{ steps.build_it.§", {"output"}),
        ("story", f"{STORY}      if: '{{{{ (index steps \"§", {"build-it"}),
        ("story", f"{STORY}---\napiVersion: bubustack.io/v1alpha1\nkind: §", {"Story", "Engram", "Impulse"}),
        (
            "story",
            f"{STORY}---\napiVersion: bubustack.io/v1alpha1\nkind: Engram\nmetadata:\n  name: e1\nspec:\n  §",
            {"templateRef", "secrets"},
        ),
    ],
)
def test_what_may_stand_there_is_offered(language: str, text: str, labels: set[str]) -> None:
    assert labels <= items_at(language, text).keys()


@pytest.mark.parametrize(
    ("language", "text", "label", "after"),
    [
        ("flow", '{"steps": {"a": {"act§', "action", '{"steps": {"a": {"action": '),
        ("flow", '{"steps": {"a": {"act§"', "action", '{"steps": {"a": {"action": '),
        ("flow", '{"steps": {"a": {"§": 1}}}', "action", '{"steps": {"a": {"action": 1}}}'),
        ("flow", '{"steps": {"a": {"action": §}}}', "Call", '{"steps": {"a": {"action": "Call"}}}'),
        ("flow", "steps:\n  a:\n    action: C§ll\n", "Call", "steps:\n  a:\n    action: Call\n"),
        ("playbook", "workflow:\n  - st§\n", "step", "workflow:\n  - step: \n"),
        (
            "playbook",
            "workflow:\n  - step: a\n    tool: {k§}\n",
            "kind",
            "workflow:\n  - step: a\n    tool: {kind: }\n",
        ),
        (
            "story",
            f"{STORY}      if: '{{{{ steps.bu§ }}}}'",
            "build-it",
            f"{STORY}      if: '{{{{ steps.build_it }}}}'",
        ),
    ],
)
def test_what_is_chosen_is_written_as_the_place_needs_it(language: str, text: str, label: str, after: str) -> None:
    assert accept(language, text, label) == after


def test_members_that_are_there_are_not_offered_again_and_required_ones_come_first() -> None:
    items = items_at("flow", FLOW.replace('"Pass"§', '"Call", "next": "a", §'))

    assert "next" not in items and "action" not in items
    assert items["call"].is_first and not items["catch"].is_first
    assert "required" in items["call"].detail and items["call"].text


def test_names_of_other_files_are_offered_where_they_are_known() -> None:
    other = names_of("story", STORY.replace("kind: Story", "kind: Engram").replace("name: s", "name: sender"))

    assert "sender" in items_at("story", STORY.replace("name: e1", "name: §"), other)
    assert "sender" not in items_at("story", f"{STORY}      needs: [§]", other)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("language", "path"), examples(), ids=lambda part: getattr(part, "stem", part))
def test_any_beginning_of_an_example_can_be_completed_and_explained(language: str, path: object) -> None:
    """While one types, a document is a beginning of itself, with or without what comes after."""
    text = path.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    count = 0
    for offset in range(0, len(text), max(len(text) // 25, 1)):
        count += bool(complete(text[:offset], offset, schema_of(language)))
        count += bool(complete(text, offset, schema_of(language)))
        hover(names_of(language, text[:offset]), offset // 2)
    assert count > 0


def test_every_kind_of_step_and_task_has_its_meaning() -> None:
    """So that hover explains each of them, and none that there is not."""
    flow = schema_of("flow").root["$defs"]["step"]["properties"]["action"]["x-perdure"]["words"]
    story = schema_of("story").root["$defs"]["step"]["properties"]["type"]["x-perdure"]["words"]
    playbook = schema_of("playbook").root["$defs"]["task"]["properties"]["kind"]["x-perdure"]["words"]

    assert flow.keys() == ACTIONS.keys()
    assert story.keys() == TYPES.keys()
    assert playbook.keys() == {*tools.KINDS, tools.WORKBOOK}


def test_printed_schemas_are_without_what_only_this_package_reads() -> None:
    for name in ("flow", "playbook", "story"):
        assert "x-perdure" not in str(schema_of_language(languages(), name))
        assert "x-perdure" in str(schema_of(name).root)


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("flow", '{"steps": {"a": {"act": "nothing§"}}}', None),
        ("flow", '{"steps": {"a": {"acti§on": "Call"}}}', ("What the Step does", "`Call`", "required")),
        ("flow", '{"steps": {"a": {"action": "Ma§tch"}}}', ("first case", "MWL-210")),
        ("flow", '{"steps": {"a": {"action": "Call", "next": "b§b"}, "bb": {"action": "Return"}}}', ("Return", "bb")),
        ("flow", '{"steps": {"a": {"action": "Pass", "output": "{{ fra§me.input }}"}}}', ("call of the Flow",)),
        ("playbook", f"{PLAYBOOK}  - step: z\n    to§ol:\n      kind: http\n", ("one task",)),
        ("playbook", f"{PLAYBOOK}  - step: z\n    tool:\n      kind: ht§tp\n", ("PBK-095",)),
        ("playbook", f"{PLAYBOOK}  - step: z\n    tool:\n      kind: ec§ho\n", ("Return `value`",)),
        ("story", f"{STORY}      type: ga§te\n", ("STY-101",)),
        ("story", f"{STORY}      nee§ds: []\n", ("must have ended",)),
    ],
)
def test_fields_kinds_and_names_are_explained(language: str, text: str, words: tuple[str, ...] | None) -> None:
    offset = text.index("§")
    about = hover(names_of(language, text.replace("§", "")), offset)

    if words is None:
        assert about is None
    else:
        assert about is not None and about.start <= offset <= about.end
        assert all(word in about.text for word in words)


def test_a_document_that_is_too_large_has_no_completion() -> None:
    assert complete("a: 1\n" * 100_000, 10, schema_of("playbook")) == []
    assert DocumentTree("a: 1\n" * 100_000).roots == []
