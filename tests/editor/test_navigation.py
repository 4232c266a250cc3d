"""Names: where they are declared and used, and how they are renamed."""

from pathlib import Path
from typing import Any

import pytest
from tests.editor.editing import examples, names_of, split

from perdure.editor.navigation import (
    Edit,
    RenameRefused,
    Symbol,
    find_definitions,
    find_references,
    find_renamable,
    outline,
    rename,
)
from perdure.engine.resources.document_validation import DocumentValidator
from perdure.kernel.dialect import Dialect
from perdure.wiring import languages

STORY = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: s}
spec:
  steps:
    - name: build-it
      ref: {name: e1}
    - name: two
      needs: ["build-it"]
      ref: e1
      requires: [steps.build-it.output.x]
      if: '{{ and (eq steps.build_it.output.x "build-it") (index .steps "build-it") .inputs.build_it }}'
      with: {text: "{{ steps[\\"build-it\\"].output }}"}
---
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: other}
spec:
  steps:
    - name: build-it
      ref: {name: e1}
"""
ENGRAM = "apiVersion: bubustack.io/v1alpha1\nkind: Engram\nmetadata:\n  name: e1\nspec: {templateRef: {name: t}}\n"
FLOW = """\
{"$schema": "x", "entrypoint": "go",
 "flows": {"inner": {"entrypoint": "go", "steps": {"go": {"action": "Call", "call": {"flow": "inner"}, "next": "go"}}}},
 "steps": {"go": {"action": "Call", "call": {"flow": "inner"}, "catch": [{"match": {}, "next": "end"}], "next": "end"},
           "end": {"action": "Return", "value": "{{ vars.go }}"}}}
"""
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: x, path: a/b}
executor: {spec: {entry_step: start}}
workflow:
  - step: start
    tool:
      - fetch: {kind: noop, spec: {policy: {rules: [{when: "{{ steps.start.status }}", then: {do: jump, to: fetch}}]}}}
      - name: use
        kind: noop
        args: {x: "{{ results.fetch.x }} {{ ctx.start }} {{ start.x | start }}"}
    next: {arcs: [{step: finish}]}
  - step: finish
    spec: {join: {from: [start]}}
    tool: {kind: playbook, path: a/b}
"""


def changed(text: str, edits: list[Edit]) -> str:
    for edit in sorted(edits, key=lambda edit: -edit.start):
        text = f"{text[: edit.start]}{edit.text}{text[edit.end :]}"
    return text


def uses(language: str, text: str) -> list[str]:
    """The lines, by number, in which the name at the cursor is used."""
    plain, offset = split(text)
    names = names_of(language, plain)
    places = find_references({"f": names}, "f", offset)
    return [f"{names.tree.line_of(place.start)}:{plain[place.start : place.end]}" for place in places]


def test_all_uses_of_a_step_are_found_and_no_others() -> None:
    assert uses("story", STORY.replace('["build-it"]', '["build§-it"]')) == [
        "5:build-it",
        "8:build-it",
        "10:build-it",
        "11:build_it",
        "11:build-it",
        "12:build-it",
    ]
    assert uses("flow", FLOW.replace('"entrypoint": "go",\n', '"entrypoint": "g§o",\n')) == ["0:go", "2:go"]
    assert uses("flow", FLOW.replace('{"flow": "inner"}, "next"', '{"flow": "inn§er"}, "next"')) == [
        "1:inner",
        "1:inner",
        "2:inner",
    ]
    assert uses("playbook", PLAYBOOK.replace("from: [start]", "from: [sta§rt]")) == [
        "3:start",
        "5:start",
        "7:start",
        "10:start",
        "13:start",
    ]
    assert uses("playbook", PLAYBOOK.replace("to: fetch", "to: fet§ch")) == ["7:fetch", "7:fetch", "10:fetch"]


def test_a_definition_may_be_in_another_file() -> None:
    workspace = {"s": names_of("story", STORY), "e": names_of("story", ENGRAM)}
    (place,) = find_definitions(workspace, "s", STORY.index("e1"))

    assert place.address == "e" and ENGRAM[place.start : place.end] == "e1"
    references = find_references(workspace, "e", ENGRAM.index("e1"), with_declarations=False)
    assert [place.address for place in references] == ["s", "s", "s"]
    edits = rename(workspace, "s", STORY.index("e1"), "mailer")
    assert changed(ENGRAM, [edit for edit in edits if edit.address == "e"]) == ENGRAM.replace("e1", "mailer")
    assert "e1" not in changed(STORY, [edit for edit in edits if edit.address == "s"])


def test_a_step_is_renamed_everywhere_as_each_place_writes_it() -> None:
    edits = rename({"f": names_of("story", STORY)}, "f", STORY.index("build-it"), "compile-all")
    first, _, second = changed(STORY, edits).partition("---")

    assert first.replace("compile-all", "build-it").replace("compile_all", "build_it") == STORY.partition("---")[0]
    assert first.count("compile-all") == 5 and first.count("compile_all") == 1
    assert 'x "build-it")' in first and ".inputs.build_it" in first, "texts and other roots stay"
    assert second == STORY.partition("---")[2]


def test_a_name_that_yaml_would_misread_is_quoted() -> None:
    text = changed(PLAYBOOK, rename({"f": names_of("playbook", PLAYBOOK)}, "f", PLAYBOOK.index("finish"), "true"))

    assert '{step: "true"}' in text and '- step: "true"\n' in text


@pytest.mark.parametrize(
    ("language", "text", "name", "words"),
    [
        ("story", STORY.replace("- name: two", "- name: t§wo"), "build-it", "already a step 'build-it'"),
        ("story", STORY.replace("- name: two", "- name: t§wo"), "Two!", "not a valid name"),
        ("story", STORY.replace("- name: two", "- name: t§wo"), "", "not empty"),
        ("story", STORY.replace("- name: two", "- name: t§wo"), "x" * 300, "at most"),
        ("story", STORY.replace("ref: e1", "ref: e§1"), "x", "not declared"),
        ("story", STORY.replace("apiVersion", "api§Version", 1), "x", "no name here"),
        ("flow", FLOW.replace('"end": {', '"en§d": {'), "go", "already a step 'go'"),
        ("playbook", PLAYBOOK.replace("from: [start]", "from: [sta§rt]"), "a-b", "behind a dot"),
    ],
)
def test_a_name_that_cannot_be_is_refused(language: str, text: str, name: str, words: str) -> None:
    plain, offset = split(text)
    with pytest.raises(RenameRefused, match=words):
        rename({"f": names_of(language, plain)}, "f", offset, name)


@pytest.mark.parametrize(("language", "path"), examples(), ids=lambda part: getattr(part, "stem", part))
async def test_an_example_with_a_renamed_step_is_as_good_as_before(language: str, path: Path) -> None:
    """All places are found: a place that was forgotten would be a problem of the document."""
    validator = DocumentValidator(languages())
    text = path.read_text(encoding="utf-8")
    before = await problems(validator, languages()[language], text)
    names = names_of(language, text)
    steps = [use for use in names.uses if use.is_declaration and use.kind == "step"]
    for at, step in enumerate(steps):
        after = changed(text, rename({"f": names}, "f", step.start, f"renamed{at}"))
        assert after != text
        assert await problems(validator, languages()[language], after) == before


async def problems(validator: DocumentValidator, language: Dialect, text: str) -> list[str]:
    return [problem.code for problem in (await validator.validate(language, text.encode())).problems]


def titles(symbols: list[Symbol]) -> list[object]:
    return [[symbol.name, symbol.detail, titles(symbol.children)] for symbol in symbols]


def test_the_outline_shows_what_a_document_declares() -> None:
    assert titles(outline(names_of("playbook", PLAYBOOK))) == [
        ["a/b", "Playbook", [["start", "step", [["fetch", "noop", []], ["use", "noop", []]]], ["finish", "step", []]]]
    ]
    assert titles(outline(names_of("flow", FLOW))) == [
        ["inner", "flow", [["go", "Call", []]]],
        ["go", "Call", []],
        ["end", "Return", []],
    ]
    assert [symbol.name for symbol in outline(names_of("story", STORY))] == ["s", "other"]


def test_a_name_is_renamed_where_it_is_used_and_where_it_is_declared() -> None:
    plain, offset = split(FLOW.replace('"next": "end"}', '"next": "en§d"}', 1))
    place = find_renamable({"f": names_of("flow", plain)}, "f", offset)

    assert plain[place.start : place.end] == "end"


def test_a_name_that_is_written_a_thousand_times_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = "".join(f"    - {{name: a, needs: [a], ref: {{name: e{number}}}}}\n" for number in range(300))
    names = names_of("story", STORY.split("    - name")[0] + steps)
    asked: list[object] = []
    declarations = type(names).declarations

    def ask(names: Any, use: Any) -> Any:
        asked.append(use)
        return declarations(names, use)

    monkeypatch.setattr(type(names), "declarations", ask)

    places = find_references({"here": names}, "here", names.tree.text.index("name: a") + 6, with_declarations=True)

    assert len(places) == 600
    assert len(asked) < 5
