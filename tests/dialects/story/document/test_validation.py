"""Texts with resources: several documents, unknown kinds, updates (STY-001, STY-019, STY-020)."""

import json
from typing import Any

import pytest

from perdure.dialects.story.document import validate, validate_resource
from perdure.dialects.story.resources.resource import ResourceIndex
from perdure.kernel.documents.problems import Severity
from tests.dialects.story.document.resource_texts import (
    engram,
    errors,
    resource,
    shelf,
    steps,
    story,
    template,
    warnings,
)

INVALID = "ValidationFailed"
GOOD = story("steps: [{name: a, type: condition}]")

TOGETHER = """\
# a comment first
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: tale}
spec:
  steps: [{name: a, ref: {name: e}}]
---
---
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: e}
spec: {templateRef: {name: t}}
---
apiVersion: catalog.bubustack.io/v1alpha1
kind: EngramTemplate
metadata: {name: t}
spec: {version: 1.0.0, supportedModes: [job]}
"""


def test_resources_of_one_text_know_each_other_in_any_order() -> None:
    """STY-001"""
    judged = validate(TOGETHER.encode())

    assert judged.problems == ()
    assert [resource["kind"] for resource in judged.resources] == ["Story", "Engram", "EngramTemplate"]


def test_problems_of_several_documents_stand_in_the_order_of_the_text() -> None:
    """STY-019"""
    text = TOGETHER.replace("supportedModes: [job]", "suportedModes: [job]").replace("name: a,", "name: A,")

    reported = validate(text.encode()).problems

    assert [(problem.line, problem.path) for problem in reported] == [
        (6, "spec.steps[0].name"),
        (17, "spec"),
        (17, "spec.suportedModes"),
    ]
    assert reported[2].message == "unknown field 'suportedModes'; did you mean 'supportedModes'?"


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        (GOOD.replace("kind: Story", "kind: Storey"), "kind", "unknown kind \"Storey\"; did you mean 'Story'?"),
        (
            GOOD.replace("bubustack.io/v1alpha1", "bubustack.io/v1"),
            "apiVersion",
            "unknown apiVersion \"bubustack.io/v1\"; did you mean 'bubustack.io/v1alpha1'?",
        ),
        (
            GOOD.replace("bubustack.io/v1alpha1", "runs.bubustack.io/v1alpha1"),
            "apiVersion",
            "unknown apiVersion \"runs.bubustack.io/v1alpha1\"; did you mean 'bubustack.io/v1alpha1'?",
        ),
        (GOOD.replace("kind: Story\n", ""), "", "kind is required"),
        (GOOD.replace("kind: Story", "kind: [Story]"), "kind", 'unknown kind ["Story"]'),
        ("[1, 2]", "", "a resource must be a JSON object"),
        ("# nothing\n", "", "the text contains no resource"),
        (GOOD + "more: 1\n", "more", "unknown field 'more'"),
        (GOOD.replace("{name: tale}", "{}"), "metadata", "metadata.name is required"),
        (GOOD.replace("metadata: {name: tale}\n", ""), "", "metadata is required"),
        (
            GOOD.replace("name: tale", "name: Tale"),
            "metadata.name",
            "'Tale' is not a valid name: it must match ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        ),
        (GOOD.replace("tale", "t" * 254), "metadata.name", "a name has 1 to 253 characters, not 254"),
        (GOOD.replace("tale}", "tale, labels: {a: 1}}"), "metadata.labels.a", "must be a string, not 1"),
        (
            GOOD.replace("tale}", "tale, lables: {}}"),
            "metadata.lables",
            "unknown field 'lables'; did you mean 'labels'?",
        ),
        (GOOD + "---\n" + GOOD, "metadata.name", "Story 'default/tale' is defined twice in this text"),
    ],
)
def test_what_is_no_resource(text: str, path: str, message: str) -> None:
    """STY-001"""
    reported = errors(text)

    assert (path, message, INVALID) in reported
    assert len(reported) <= 2


def test_text_that_is_no_yaml_says_where() -> None:
    judged = validate(b"a: [1\nb: {{ x }}\n")

    assert judged.resources == ()
    assert judged.has_errors
    assert judged.problems[0].line is not None


def test_json_is_read_as_well() -> None:
    text = json.dumps(resource("Story", "tale", {"steps": [{"name": "a"}]}))

    assert errors(text) == [("spec.steps[0]", "step 'a' must set either ref or type", INVALID)]


def test_engine_fields_and_status_may_be_written() -> None:
    """STY-001: what was shown can be applied again."""
    head = "{name: tale, uid: u, generation: 3, creationTimestamp: '2026-01-01T00:00:00Z', resourceVersion: '7'}"
    text = GOOD.replace("{name: tale}", head) + "status: {validationStatus: valid, anything: 1}\n"

    assert errors(text) == []
    assert warnings(text) == []
    cluster = GOOD.replace("{name: tale}", "{name: tale, finalizers: [x]}")
    assert [code for _, _, code in warnings(cluster)] == ["KubernetesOnly"]


def test_global_kinds_have_no_namespace() -> None:
    text = json.dumps(resource("EngramTemplate", "t", template()["spec"], "somewhere"))

    assert errors(text) == []
    assert [path for path, _, _ in warnings(text)] == ["metadata.namespace"]


def test_documents_without_namespace_live_where_they_are_applied() -> None:
    """STY-001, STY-002"""
    text = steps("{name: a, ref: e}")
    known = shelf(engram(namespace="far"), template())

    judged = validate(text.encode(), known, namespace="far")

    assert judged.problems == ()
    assert judged.resources[0]["metadata"] == {"namespace": "far", "name": "tale"}


def test_an_update_that_changes_nothing_is_not_judged_again() -> None:
    """STY-020: what was accepted under older rules stays, however it is written."""
    bad = story("steps: [{name: A}]\npattern: null")
    stored = ResourceIndex([resource("Story", "tale", {"steps": [{"name": "A"}]})])

    assert validate(bad.encode(), stored=stored).problems == ()
    assert validate(bad.encode(), known=stored).has_errors
    changed = bad.replace("name: A", "name: B")
    assert validate(changed.encode(), stored=stored).has_errors


def test_one_resource_without_text() -> None:
    """STY-019, STY-020"""
    story = resource("Story", "tale", {"steps": [{"name": "a"}], "pattern": "realtime"})

    kept, problems = validate_resource(story)

    assert kept is not None
    assert kept["spec"]["pattern"] == "streaming"
    assert [(problem.path, problem.line, problem.severity) for problem in problems] == [
        ("spec.steps[0]", None, Severity.ERROR)
    ]
    assert validate_resource(story, stored=story) == (kept, [])
    assert validate_resource({"kind": "Pod", "apiVersion": "v1"})[0] is None


def test_wild_shapes_are_told_and_never_raise() -> None:
    """Every value of a document may be anything."""
    wild: list[object] = [None, True, 3, 2.5, "x", "{{", [], [[]], {}, {"a": 1}, {"$bubuTemplate": 1}, [{"name": []}]]
    names = ("steps", "compensations", "policy", "transports", "output", "inputsSchema", "pattern", "concurrency")
    inside = (
        "name",
        "needs",
        "type",
        "ref",
        "if",
        "with",
        "runtime",
        "requires",
        "execution",
        "postExecution",
        "transport",
    )
    outcomes: list[bool] = []

    def judged(document: dict[str, Any], **more: Any) -> None:
        kept, problems = validate_resource(document, **more)
        outcomes.append(bool(problems))
        assert all(problem.message for problem in problems)
        assert kept is not None or any(problem.severity is Severity.ERROR for problem in problems)

    for value in wild:
        for name in names:
            judged(resource("Story", "tale", {"steps": [{"name": "a", "ref": "e"}], name: value}))
        for name in inside:
            for kind in ("parallel", "executeStory", "wait", "gate", "sleep", "stop"):
                judged(resource("Story", "tale", {"steps": [{"name": "a", "type": kind, name: value}]}))
                step = {
                    "name": "a",
                    "type": kind,
                    "with": {"steps": value, "storyRef": value, "until": value, name: value},
                }
                judged(resource("Story", "tale", {"steps": [step]}))
        for kind in (
            "Engram",
            "Impulse",
            "Transport",
            "StoryRun",
            "StepRun",
            "StoryTrigger",
            "EffectClaim",
            "ReferenceGrant",
        ):
            document = resource(kind, "x", value)
            judged(document)
            judged({**document, "metadata": value, "status": value})
            for member in (
                "templateRef",
                "storyRef",
                "stepRunRef",
                "deliveryIdentity",
                "deliveryPolicy",
                "inputs",
                "with",
                "streaming",
            ):
                judged(resource(kind, "x", {member: value, "effectKey": "k", "stepId": "s"}), stored=document)

    assert len(outcomes) > 2_000 and sum(outcomes) > 0.8 * len(outcomes), "most of this is no Story"
