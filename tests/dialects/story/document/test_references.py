"""Engrams that steps use, in this namespace and in others (STY-009, 011, 037, 041, 042, 250)."""

from typing import Any

import pytest

from perdure.dialects.story.plan.settings import Settings
from perdure.dialects.story.resources.resource import Resource, ResourceIndex
from tests.dialects.story.document.resource_texts import engram, errors, resource, shelf, steps, template, warnings

INVALID = "ValidationFailed"
STEP = steps("{name: a, ref: e}")


def test_a_missing_engram_is_a_warning_and_its_missing_template_an_error() -> None:
    """STY-041"""
    assert errors(STEP) == []
    assert warnings(STEP) == [
        (
            "spec.steps[0].ref",
            "step 'a': there is no Engram 'default/e' yet: the step will wait for it",
            "ReferenceNotFound",
        )
    ]
    assert errors(STEP, shelf(engram())) == [
        ("spec.steps[0].ref", "step 'a': EngramTemplate 't' of Engram 'default/e' not found", "EngramReferenceInvalid")
    ]
    assert warnings(STEP, shelf(engram(), template())) == []
    assert errors(STEP, shelf(engram(), template())) == []


def test_branches_use_engrams_too() -> None:
    """STY-041"""
    text = steps("{name: p, type: parallel, with: {steps: [{name: b, ref: e}]}}")

    assert [path for path, _, _ in errors(text, shelf(engram()))] == ["spec.steps[0].with.steps[0].ref"]


def test_a_pin_that_does_not_fit_is_a_warning() -> None:
    """STY-253: the step will fail."""
    text = steps("{name: a, ref: {name: e, version: v2}}")

    assert warnings(text, shelf(engram(version="v1"), template())) == [
        (
            "spec.steps[0].ref",
            "step 'a': Engram 'default/e' has version 'v1', expected 'v2': the step will fail",
            "EngramReferenceInvalid",
        )
    ]
    assert warnings(text, shelf(engram(version="v2"), template())) == []


def test_a_uid_that_does_not_fit_is_a_warning() -> None:
    """STY-002"""
    text = steps("{name: a, ref: {name: e, uid: u-2}}")

    ((path, message, _),) = warnings(text, shelf({**engram(), "metadata": {"name": "e", "uid": "u-1"}}, template()))

    assert path == "spec.steps[0].ref"
    assert message == "step 'a': Engram 'default/e' is not the one with uid 'u-2': the step will fail"


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "m": {"type": "string", "default": "x"},
        "o": {"type": "object", "properties": {"p": {"type": "boolean"}}},
    },
    "required": ["n", "m"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("members", "path", "message"),
    [
        ("{}", "with", 'does not accept this value: "n" is a required property'),
        ("{n: x}", "with.n", 'does not accept this value: n: "x" is not of type "integer"'),
        ("{n: 1, o: {p: 3}}", "with.o.p", 'does not accept this value: o.p: 3 is not of type "boolean"'),
        ("{n: 'about {{ inputs.n }}'}", "with.n", 'is not of type "integer"'),
        ("{n: 1, q: 2}", "with", "('q' was unexpected)"),
    ],
)
def test_input_that_cannot_fit_the_template_is_refused(members: str, path: str, message: str) -> None:
    """STY-041"""
    known = shelf(engram(), template(inputSchema=SCHEMA))

    ((place, text, code),) = errors(steps(f"{{name: a, ref: e, with: {members}}}"), known)

    assert (place, code) == (f"spec.steps[0].{path}", INVALID)
    assert text.startswith("step 'a': the template's input schema ")
    assert message in text


@pytest.mark.parametrize(
    "members",
    [
        "{n: 1}",
        "{n: '{{ inputs.n }}', o: '{{ steps.a.output }}'}",
        "{n: {$bubuStorageRef: x}, o: {p: {$bubuSecretRef: 'a:b'}}}",
        "{n: {$bubuTemplate: inputs.n}}",
    ],
)
def test_input_that_may_fit_is_accepted(members: str) -> None:
    """STY-041: and defaults are filled in first (STY-210)."""
    known = shelf(engram(), template(inputSchema=SCHEMA))

    assert errors(steps("{name: a, ref: e, with: {n: 1}}", f"{{name: b, ref: e, with: {members}}}"), known) == []


def test_input_lies_over_the_engrams_own() -> None:
    """STY-010: what the Engram gives need not be given again."""
    known = shelf(engram(**{"with": {"n": 1, "o": {"p": True}}}), template(inputSchema=SCHEMA))

    assert errors(steps("{name: a, ref: e, with: {o: {}}}"), known) == []
    assert errors(steps("{name: a, ref: e, with: {n: x}}"), known) != []


def test_runtime_in_batch_needs_an_engram_that_stays() -> None:
    """STY-037: and a batch step cannot use such an Engram without a bridge."""
    text = steps("{name: a, ref: e, runtime: {x: 1}}")
    lasting = shelf(engram(mode="deployment"), template(supportedModes=["deployment"]))

    assert [path for path, _, _ in errors(text, shelf(engram(), template()))] == ["spec.steps[0].runtime"]
    assert errors(text, lasting) == []
    assert [(path, code) for path, _, code in warnings(text, lasting)] == [
        ("spec.steps[0].ref", "InvalidConfiguration")
    ]


class Bare(ResourceIndex):
    """Nothing is implemented here."""

    def implements(self, template: str, version: str) -> bool | None:
        return False


def test_a_template_without_code_is_a_warning() -> None:
    """STY-009: the step will wait."""
    assert warnings(STEP, Bare([engram(), template()])) == [
        (
            "spec.steps[0].ref",
            "step 'a': no loaded code implements the template 't': the step will wait",
            "TemplateNotFound",
        )
    ]


def grant(name: str | None = None) -> Resource:
    target = {"group": "bubustack.io", "kind": "Engram", **({"name": name} if name else {})}
    origin = {"group": "bubustack.io", "kind": "Story", "namespace": "default"}
    return resource("ReferenceGrant", "g", {"from": [origin], "to": [target]}, "far")


@pytest.mark.parametrize(
    ("policy", "grants", "message"),
    [
        ("deny", [], "cross-namespace EngramRef references are not allowed"),
        ("deny", [grant()], "cross-namespace EngramRef references are not allowed"),
        ("grant", [], "cross-namespace EngramRef reference to far/e is not permitted (no ReferenceGrant)"),
        (
            "grant",
            [grant("other")],
            "cross-namespace EngramRef reference to far/e is not permitted (no ReferenceGrant)",
        ),
        ("grant", [grant("e")], None),
        ("allow", [], None),
    ],
)
def test_engrams_of_other_namespaces(policy: str, grants: list[Resource], message: str | None) -> None:
    """STY-042, STY-250, STY-251"""
    text = steps("{name: a, ref: {name: e, namespace: far}}")
    known = shelf(engram(namespace="far"), template(), also=grants)

    problems = errors(text, known, Settings.read({"references.cross-namespace-policy": policy}))

    assert problems == ([] if message is None else [("spec.steps[0].ref", message, "EngramReferenceInvalid")])


def test_sub_stories_of_other_namespaces() -> None:
    """STY-042"""
    text = steps("{name: x, type: executeStory, with: {storyRef: {name: o, namespace: far}}}")

    assert errors(text) == [
        ("spec.steps[0].with.storyRef", "cross-namespace StoryRef references are not allowed", "StoryReferenceInvalid")
    ]
