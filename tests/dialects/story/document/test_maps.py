"""Stories that a map runs, named or written in place: judged where the map is (STY-271, STY-042, STY-079)."""

from perdure.dialects.story.document import validate
from tests.dialects.story.document.resource_texts import errors, resource, shelf, steps, warnings

ADAPTER = resource("Engram", "m", {"templateRef": {"name": "map-reduce-adapter"}})
TEMPLATE = resource("EngramTemplate", "map-reduce-adapter", {"version": "1.0.0", "supportedModes": ["job"]})
PLAIN = resource("Engram", "e", {"templateRef": {"name": "t"}})
OTHER = resource("EngramTemplate", "t", {"version": "1.0.0", "supportedModes": ["job"]})
KNOWN = shelf(ADAPTER, TEMPLATE, PLAIN, OTHER)


def mapping(story: str, ref: str = "m") -> str:
    return steps(f"{{name: x, ref: {ref}, with: {{items: [1], map: {story}}}}}")


def test_a_story_in_place_is_judged_as_any_other() -> None:
    text = mapping(
        '{story: {steps: [{name: a, ref: e, needs: [b], with: {x: "{{ inputs.item | nonsense }}"}}], paralel: 1}}'
    )

    assert sorted(path for path, _, _ in errors(text, KNOWN)) == [
        "spec.steps[0].with.map.story.paralel",
        "spec.steps[0].with.map.story.steps[0].needs[0]",
        "spec.steps[0].with.map.story.steps[0].with.x",
    ]


def test_its_names_and_templates_are_its_own() -> None:
    text = mapping(
        '{story: {steps: [{name: x, ref: e, with: {n: "{{ inputs.item }}"}}], output: {n: "{{ steps.x.output.n }}"}}}'
    )

    assert errors(text, KNOWN) == [] and warnings(text, KNOWN) == []


def test_a_story_inside_is_batch() -> None:
    text = mapping("{story: {pattern: streaming, steps: [{name: a, ref: e}]}}")

    assert [message for _, message, _ in errors(text, KNOWN)] == ["a Story inside a step must be a batch story"]


def test_what_another_engram_calls_a_story_is_its_own_business() -> None:
    text = mapping("{story: {steps: [{anything: goes}]}}", ref="e")

    assert errors(text, KNOWN) == []


def test_a_story_that_is_named_and_missing_is_told() -> None:
    problems = warnings(mapping("{storyRef: {name: each}}"), KNOWN)

    assert [(path, code) for path, _, code in problems] == [("spec.steps[0].with.map.storyRef", "ReferenceNotFound")]


def test_a_streaming_story_of_items_is_told() -> None:
    """STR-037: the step will fail; the Story may be another one by then."""
    topology = resource("Story", "each", {"pattern": "streaming", "steps": [{"name": "a", "ref": {"name": "e"}}]})
    problems = warnings(mapping("{storyRef: {name: each}}"), shelf(ADAPTER, TEMPLATE, PLAIN, OTHER, topology))

    assert [(path, code) for path, _, code in problems] == [("spec.steps[0].with.map.storyRef", "InvalidConfiguration")]


def test_a_story_of_another_namespace_is_refused() -> None:
    """STY-042 STY-250"""
    problems = errors(mapping("{storyRef: {name: each, namespace: far}}"), KNOWN)

    assert [message for _, message, _ in problems] == ["cross-namespace StoryRef references are not allowed"]


def test_a_map_may_start_its_own_story_with_less() -> None:
    text = mapping("{storyRef: {name: tale}}")

    assert validate(text.encode(), KNOWN).problems == ()
