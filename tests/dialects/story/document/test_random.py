"""Documents with anything anywhere: the judge answers, and what it accepts can be bundled and run."""

import copy
import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.dialects.story.document import validate, validate_resource
from perdure.dialects.story.plan.bundle import bundle
from perdure.dialects.story.plan.settings import DEFAULTS
from perdure.dialects.story.plan.step_graph import StepGraph
from perdure.dialects.story.resources.resource import ResourceIndex
from perdure.kernel.documents.problems import Severity
from tests.dialects.story.document.resource_texts import engram, resource, template

STORY = resource(
    "Story",
    "tale",
    {
        "pattern": "batch",
        "inputsSchema": {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}},
        "policy": {"timeouts": {"story": "5m"}, "retries": {"stepRetryPolicy": {"maxRetries": 2}}, "with": {"a": 1}},
        "steps": [
            {"name": "a", "ref": {"name": "e"}, "with": {"x": "{{ inputs.n }}"}, "execution": {"cache": {"key": "k"}}},
            {"name": "p", "type": "parallel", "needs": ["a"], "with": {"steps": [{"name": "b", "ref": {"name": "e"}}]}},
            {
                "name": "w",
                "type": "wait",
                "with": {"until": "{{ steps.b.output.ok }}", "timeout": "1s"},
                "needs": ["p"],
            },
            {"name": "x", "type": "executeStory", "with": {"storyRef": {"name": "o"}, "with": {"v": "{{ steps.a }}"}}},
            {"name": "s", "type": "sleep", "with": {"duration": "1s"}, "if": "{{ steps.a.output.ok }}"},
        ],
        "compensations": [{"name": "c", "ref": {"name": "e"}, "requires": ["steps.a.output"], "needs": ["a"]}],
        "finally": [{"name": "z", "type": "stop", "with": {"phase": "Failed"}}],
        "output": {"r": "{{ steps.a.output }}"},
        "transports": [{"name": "t", "transportRef": "h", "streaming": {"fanIn": {"mode": "any"}, "lanes": []}}],
    },
)
OTHERS = [
    engram(mode="job", secrets={}, **{"with": {"a": {"b": 1}}}),
    template(inputSchema={"type": "object"}, secretSchema={"s": {"required": False}}),
    resource("StoryRun", "r", {"storyRef": {"name": "tale"}, "inputs": {"n": 1}}),
    resource("StoryTrigger", "t", {"storyRef": "tale", "deliveryIdentity": {"submissionId": "s", "mode": "none"}}),
]

WORDS = st.sampled_from(
    [
        "a",
        "b",
        "p",
        "e",
        "steps.a",
        "{{ steps.a.output }}",
        "{{ steps.c.output }}",
        "{{",
        "1s",
        "-1s",
        "",
        "tale",
        "gate",
        "wait",
    ]
)
NAMES = st.sampled_from(
    ["name", "ref", "type", "needs", "with", "steps", "storyRef", "if", "requires", "$bubuTemplate", "x"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 200) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for step, part in inner for place in places(part, (*path, step)))]


def put(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    if not path:
        return new
    changed = copy.deepcopy(value)
    part = changed
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = new
    return changed


@pytest.mark.sampled(2)
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_a_document_holds_the_judge_answers(data: st.DataObject) -> None:
    """What is accepted has a graph that can run (STY-055), and a bundle that is the same for the same resource."""
    given_one = data.draw(st.sampled_from([STORY, *OTHERS]))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(given_one)))
        given_one = put(given_one, path, data.draw(VALUES))
    known = ResourceIndex([STORY, *OTHERS])
    stored = data.draw(st.sampled_from([None, kept_before(given_one)]))

    kept, problems = validate_resource(given_one, known, DEFAULTS, stored)

    assert all(problem.message and problem.code for problem in problems)
    is_good = kept is not None and not any(problem.severity is Severity.ERROR for problem in problems)
    if is_good and kept is not None and kept["kind"] == "Story" and stored is None:
        assert StepGraph(kept["spec"]).refusal() is None
        assert bundle(kept, known, DEFAULTS) == bundle(json.loads(json.dumps(kept)), known, DEFAULTS)


def kept_before(given_one: Any) -> Any:
    """A resource of the same kind that was stored earlier, if there can be one."""
    same = [
        resource
        for resource in (STORY, *OTHERS)
        if isinstance(given_one, dict) and resource["kind"] == given_one.get("kind")
    ]
    return same[0] if same else None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_problems_of_a_text_stand_inside_of_it(data: st.DataObject) -> None:
    """STY-019"""
    path = data.draw(st.sampled_from([place for place in places(STORY) if place]))
    text = yaml.safe_dump(put(STORY, path, data.draw(VALUES)))

    for problem in validate(text.encode(), ResourceIndex(OTHERS)).problems:
        assert problem.line is not None
        assert 1 <= problem.line <= text.count("\n") + 1
