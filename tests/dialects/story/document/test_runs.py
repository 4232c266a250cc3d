"""Run objects (section 2.3): judged up to the first problem, and again when they change."""

from typing import Any

import pytest

from perdure.dialects.story.document import validate_resource
from perdure.dialects.story.plan.settings import DEFAULTS, Settings
from perdure.dialects.story.resources.names import claim_name, input_hash, run_name, trigger_name
from perdure.dialects.story.resources.resource import KnownResources, Resource
from perdure.dialects.story.triggers.decisions import refuse_request
from tests.dialects.story.document.resource_texts import engram, resource, shelf, template

INVALID = "ValidationFailed"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "d": {"default": 1}}, "required": ["n", "d"]}
TALE = resource("Story", "tale", {"version": "v1", "steps": [], "inputsSchema": SCHEMA})
KNOWN = shelf(TALE, engram(version="v1"), template())


def said(
    document: Resource, known: KnownResources = KNOWN, settings: Settings = DEFAULTS, stored: Resource | None = None
) -> list[tuple[str, str, str]]:
    _, problems = validate_resource(document, known, settings, stored)
    return [(problem.path, problem.message, problem.code) for problem in problems]


def run(spec: dict[str, Any], name: str = "r", **metadata: Any) -> Resource:
    return resource("StoryRun", name, {"storyRef": {"name": "tale"}, "inputs": {"n": 1}, **spec}, **metadata)


@pytest.mark.parametrize(
    ("spec", "path", "message", "code"),
    [
        ({"storyRef": None}, "spec", "spec.storyRef.name is required", INVALID),
        ({"storyRef": {"name": ""}}, "spec", "spec.storyRef.name is required", INVALID),
        ({"storyRef": "zzz"}, "spec.storyRef", "referenced story 'default/zzz' not found", INVALID),
        (
            {"storyRef": {"name": "tale", "version": "v2"}},
            "spec.storyRef",
            "referenced story 'default/tale' has version 'v1', expected 'v2'",
            INVALID,
        ),
        (
            {"storyRef": {"name": "tale", "uid": "u-2"}},
            "spec.storyRef",
            "referenced story 'default/tale' is not the one with uid 'u-2'",
            INVALID,
        ),
        (
            {"storyRef": {"name": "tale", "namespace": "far"}},
            "spec.storyRef",
            "cross-namespace StoryRef references are not allowed",
            "StoryReferenceInvalid",
        ),
        (
            {"impulseRef": {"name": "hook", "namespace": "far"}},
            "spec.impulseRef",
            "cross-namespace ImpulseRef references are not allowed",
            INVALID,
        ),
        ({"inputs": [1]}, "spec.inputs", "spec.inputs must be a JSON object", INVALID),
        (
            {"inputs": {"n": {"$bubuStorageRef": ""}}},
            "spec.inputs.n",
            "$bubuStorageRef must not be blank",
            INVALID,
        ),
        (
            {"inputs": {"n": "x"}},
            "spec.inputs.n",
            'StoryRun inputs failed schema validation: n: "x" is not of type "integer"',
            "InputSchemaFailed",
        ),
        (
            {"inputs": {"n": "{{ 1 }}"}},
            "spec.inputs.n",
            'StoryRun inputs failed schema validation: n: "{{ 1 }}" is not of type "integer"',
            "InputSchemaFailed",
        ),
        (
            {"inputs": None},
            "spec.inputs",
            'StoryRun inputs failed schema validation: "n" is a required property',
            "InputSchemaFailed",
        ),
        ({"input": {}}, "spec.input", "unknown field 'input'; did you mean 'inputs'?", INVALID),
    ],
)
def test_mistakes_in_story_runs(spec: dict[str, Any], path: str, message: str, code: str) -> None:
    """STY-002, STY-047, STY-210, STY-253"""
    assert said(run(spec)) == [(path, message, code)]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"storyRef": {"name": "tale", "version": "v1"}, "impulseRef": "tick", "cancelRequested": False},
        {"inputs": {"n": {"$bubuStorageRef": "runs/x.json"}}},
    ],
)
def test_story_runs_in_order(spec: dict[str, Any]) -> None:
    """STY-047: defaults are filled in before the inputs are judged, references read later (STY-210)."""
    assert said(run(spec)) == []


def test_the_first_problem_is_told_and_no_other() -> None:
    """STY-019"""
    wrong = run({"inputs": {"n": "x", "m": {"$bubuSecretRef": 3}}, "storyRef": "zzz", "more": 1})

    assert [path for path, _, _ in said(wrong)] == ["spec.more"]


def test_inputs_have_a_largest_size() -> None:
    """STY-018, STY-047: at the limit they are accepted."""
    story_run = run({"inputs": {"n": 1, "t": "x" * 100}})
    size = len('{"n":1,"t":""}') + 100
    limits = [Settings.read({"storyrun.max-inline-inputs-size": most}) for most in (size, size - 1)]

    assert said(story_run, settings=limits[0]) == []
    ((path, message, _),) = said(story_run, settings=limits[1])
    assert path == "spec.inputs"
    assert message.startswith(f"spec.inputs too large ({size} bytes > {size - 1}). ")


TOKEN = "storyrun.bubustack.io/trigger-token"
HASH = "storyrun.bubustack.io/trigger-input-hash"
NAME = run_name("default", "tale", "t-1")
DIGEST = input_hash({"n": 1})


def tokened(name: str = NAME, digest: str | None = DIGEST, **metadata: Any) -> Resource:
    annotations = {TOKEN: "t-1", **({HASH: digest} if digest else {})}
    return run({}, name, annotations=annotations, **metadata)


@pytest.mark.parametrize(
    ("story_run", "path", "message"),
    [
        (tokened("other"), "metadata", f'metadata.name must be "{NAME}" when {TOKEN} is set, not "other"'),
        (
            tokened(generateName="x-"),
            "metadata.generateName",
            f"metadata.generateName must be empty when {TOKEN} is set",
        ),
        (tokened(digest=None), "metadata.annotations", f"annotation {HASH} is required when {TOKEN} is set"),
        (
            tokened(digest="0" * 64),
            f'metadata.annotations["{HASH}"]',
            f"annotation {HASH} must match the inputs of the StoryRun",
        ),
    ],
)
def test_mistakes_in_runs_under_a_token(story_run: Resource, path: str, message: str) -> None:
    """STY-048"""
    assert said(story_run) == [(path, message, INVALID)]


def test_a_run_under_a_token() -> None:
    """STY-048: what a reference in the inputs hashes to is only known when it is read."""
    assert said(tokened()) == []
    stored_elsewhere = tokened(digest="0" * 64)
    stored_elsewhere["spec"]["inputs"] = {"n": {"$bubuStorageRef": "x"}}
    assert said(stored_elsewhere) == []


def test_a_token_cannot_be_changed() -> None:
    """STY-048"""
    changed = tokened()
    changed["metadata"]["annotations"] = {}

    assert said(changed, stored=tokened()) == [
        ("metadata.annotations", f"annotation {TOKEN} is immutable once set", INVALID)
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ({}, {"inputs": {"n": 2}}, "spec of a StoryRun is immutable"),
        ({}, {"inputs": {"n": True}}, "spec of a StoryRun is immutable"),
        ({}, {"storyRef": {"name": "other"}}, "spec of a StoryRun is immutable"),
        (
            {"cancelRequested": True},
            {"cancelRequested": False},
            "spec.cancelRequested cannot be reset once it is true",
        ),
        ({"cancelRequested": True}, {}, "spec.cancelRequested cannot be reset once it is true"),
        ({}, {"cancelRequested": True}, None),
        ({"cancelRequested": False}, {"cancelRequested": True}, None),
        ({"cancelRequested": True}, {"cancelRequested": True}, None),
        ({}, {"inputs": {"n": 1.0}}, None),
        ({}, {"storyRef": "tale", "impulseRef": None}, None),
    ],
)
def test_the_spec_of_a_story_run_only_changes_to_be_cancelled(
    old: dict[str, Any], new: dict[str, Any], message: str | None
) -> None:
    """STY-049: nothing else is judged again, the Story may be gone (STY-020)."""
    messages = [problem[1] for problem in said(run(new), shelf(), stored=run(old))]

    assert messages == ([] if message is None else [message])


def step_run(spec: dict[str, Any] | None = None, status: Any = None, name: str = "r-a") -> Resource:
    step = resource("StepRun", name, {"storyRunRef": {"name": "r"}, "stepId": "a", "engramRef": "e", **(spec or {})})
    return step if status is None else {**step, "status": status}


@pytest.mark.parametrize(
    ("spec", "path", "message", "code"),
    [
        ({"storyRunRef": None}, "spec", "spec.storyRunRef.name is required", INVALID),
        ({"stepId": None}, "spec", "spec.stepId is required", INVALID),
        ({"engramRef": "zzz"}, "spec.engramRef", "referenced engram 'default/zzz' not found", INVALID),
        (
            {"engramRef": {"name": "e", "version": "v2"}},
            "spec.engramRef",
            "referenced engram 'default/e' has version 'v1', expected 'v2'",
            INVALID,
        ),
        (
            {"engramRef": {"name": "e", "namespace": "far"}},
            "spec.engramRef",
            "cross-namespace EngramRef references are not allowed",
            "EngramReferenceInvalid",
        ),
        (
            {"storyRunRef": {"name": "r", "namespace": "far"}},
            "spec.storyRunRef",
            "cross-namespace StoryRunRef references are not allowed",
            INVALID,
        ),
        ({"input": 3}, "spec.input", "spec.input must be a JSON object", INVALID),
        (
            {"input": {"a": ["{{ env }}"]}},
            "spec.input.a[0]",
            "template expression uses disallowed function 'env'",
            INVALID,
        ),
        ({"idempotencyKey": "k" * 257}, "spec.idempotencyKey", "must have at most 256 characters, not 257", INVALID),
    ],
)
def test_mistakes_in_step_runs(spec: dict[str, Any], path: str, message: str, code: str) -> None:
    """STY-050, STY-250"""
    assert said(step_run(spec)) == [(path, message, code)]


ERROR = {"version": "v1", "type": "timeout", "message": "late"}


@pytest.mark.parametrize(
    ("status", "path", "message"),
    [
        ({"needs": ["r-b", "r-a"]}, "status.needs", "status.needs must not name the StepRun itself"),
        ({"error": {"type": "timeout", "message": "x"}}, "status.error", "status.error.version is required"),
        (
            {"error": {**ERROR, "version": "v2"}},
            "status.error.version",
            'unsupported value "v2" (expected v1)',
        ),
        ({"error": {**ERROR, "message": ""}}, "status.error.message", "must not be empty"),
        ({"error": {**ERROR, "exitCode": -1}}, "status.error.exitCode", "must be 0 or more, not -1"),
        ({"error": {**ERROR, "details": 3}}, "status.error.details", "status.error.details must be a JSON object"),
        ({"error": {**ERROR, "more": 1}}, "status.error.more", "unknown field 'more'"),
        (
            {"observedGeneration": 1},
            "status.observedGeneration",
            "status.observedGeneration must not decrease (was 2, is 1)",
        ),
    ],
)
def test_mistakes_in_the_status_of_step_runs(status: Any, path: str, message: str) -> None:
    """STY-050, STY-256"""
    assert said(step_run(status=status), stored=step_run(status={"observedGeneration": 2})) == [
        (path, message, INVALID)
    ]


def test_the_type_of_an_error_is_one_of_seven() -> None:
    """STY-256"""
    ((path, message, _),) = said(step_run(status={"error": {**ERROR, "type": "oops"}}))

    assert path == "status.error.type"
    assert message.endswith("validation_error, initialization_error, execution_error or unknown)")


def test_step_runs_in_order() -> None:
    """STY-050, STY-256"""
    good = {**ERROR, "retryable": True, "exitCode": 124, "exitClass": "retry", "code": "X", "details": {"a": 1}}

    assert said(step_run({"input": {"a": "{{ broken"}, "timeout": "5m", "retry": {"maxRetries": 1}})) == []
    assert said(step_run(status={"error": good, "needs": ["r-b"], "observedGeneration": 2}), stored=step_run()) == []


def test_a_name_is_held_by_one_step_of_one_run() -> None:
    """STY-014"""
    held = "the name is already used by step 'a' of run 'default/r'"

    assert [problem[1] for problem in said(step_run({"stepId": "b"}), stored=step_run())] == [held]
    assert [problem[1] for problem in said(step_run({"storyRunRef": "s"}), stored=step_run())] == [held]
    assert said(step_run({"timeout": "1s"}), stored=step_run()) == []


def test_a_step_run_has_a_largest_size() -> None:
    """STY-050"""
    large = step_run(status={"output": "x" * 1_048_576})

    ((path, message, _),) = said(large)

    assert path == ""
    assert message.endswith("exceeds maximum allowed size of 1048576 bytes")


def trigger(identity: Any, name: str = "", **spec: Any) -> Resource:
    key = (identity or {}).get("key") or (identity or {}).get("submissionId") or ""
    called = name or trigger_name("default", "tale", key)
    return resource("StoryTrigger", called, {"storyRef": "tale", "deliveryIdentity": identity, **spec})


KEYED = {"mode": "key", "key": "k", "submissionId": "s", "inputHash": input_hash({})}


@pytest.mark.parametrize(
    ("resource", "path", "message"),
    [
        (trigger(KEYED, storyRef=None), "spec", "spec.storyRef.name is required"),
        (trigger({"mode": "none"}), "spec", "spec.deliveryIdentity.submissionId is required"),
        (
            trigger({**KEYED, "mode": "none"}),
            "spec.deliveryIdentity.key",
            "spec.deliveryIdentity.key must be empty when its mode is none",
        ),
        (
            trigger({"mode": "token", "submissionId": "s"}),
            "spec.deliveryIdentity",
            "spec.deliveryIdentity.key is required when its mode is token",
        ),
        (
            trigger({"mode": "key", "key": "k", "submissionId": "s"}),
            "spec.deliveryIdentity",
            "spec.deliveryIdentity.inputHash is required when a key is set",
        ),
        (
            trigger(KEYED, inputs={"n": 1}),
            "spec.deliveryIdentity.inputHash",
            "spec.deliveryIdentity.inputHash does not match spec.inputs",
        ),
        (
            trigger(KEYED, name="other"),
            "metadata",
            f'metadata.name must be "{trigger_name("default", "tale", "k")}" for this StoryTrigger, not "other"',
        ),
        (
            trigger(KEYED, storyRef={"name": "tale", "version": "v2"}),
            "spec.storyRef",
            "referenced story 'default/tale' has version 'v1', expected 'v2'",
        ),
        (
            trigger(KEYED, impulseRef={"name": "hook", "namespace": "far"}),
            "spec.impulseRef",
            "cross-namespace ImpulseRef references are not allowed",
        ),
        (
            trigger({**KEYED, "key": "k" * 257}),
            "spec.deliveryIdentity.key",
            "must have at most 256 characters, not 257",
        ),
    ],
)
def test_mistakes_in_story_triggers(resource: Resource, path: str, message: str) -> None:
    """STY-051"""
    assert said(resource) == [(path, message, INVALID)]


def test_story_triggers_in_order() -> None:
    """STY-051: without a key the submission gives the name."""
    assert said(trigger(KEYED)) == []
    assert said(trigger({"mode": "none", "submissionId": "s"}, inputs={"n": 1})) == []


def test_a_request_may_not_use_an_impulse_of_another_namespace() -> None:
    """STY-250: not even one that was stored when that was not checked."""
    request = trigger(KEYED, impulseRef={"name": "hook", "namespace": "far"})
    refused = refuse_request(request, KNOWN, DEFAULTS)
    assert refused is not None and refused.message == "cross-namespace ImpulseRef references are not allowed"
    granted = Settings.read({"references.cross-namespace-policy": "grant"})
    opening = resource(
        "ReferenceGrant",
        "open",
        {
            "from": [{"group": "runs.bubustack.io", "kind": "StoryTrigger", "namespace": "default"}],
            "to": [{"group": "bubustack.io", "kind": "Impulse"}],
        },
        namespace="far",
    )
    assert refuse_request(request, KNOWN, granted) is not None
    assert refuse_request(request, shelf(TALE, opening), granted) is None


def test_a_story_that_a_trigger_names_must_exist() -> None:
    """STY-051"""
    assert [problem[1] for problem in said(trigger(KEYED), shelf())] == ["referenced story 'default/tale' not found"]


def test_a_trigger_never_changes() -> None:
    """STY-051"""
    changed = trigger({**KEYED, "submissionId": "other"})

    assert said(changed, stored=trigger(KEYED)) == [("spec", "spec of a StoryTrigger is immutable", INVALID)]
    assert said(trigger(KEYED), shelf(), stored=trigger(KEYED)) == []


STEP_RUN = resource("StepRun", "r-a", {}, uid="u-1")
CLAIMED = shelf(STEP_RUN)
EARLY, LATE, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01.5Z", "2026-01-01T01:00:02+01:00"


def claim(name: str = "", **spec: Any) -> Resource:
    called = name or claim_name("default", "r-a", spec.get("effectKey", "pay") or "")
    return resource("EffectClaim", called, {"stepRunRef": {"name": "r-a", "uid": "u-1"}, "effectKey": "pay", **spec})


@pytest.mark.parametrize(
    ("effect_claim", "path", "message"),
    [
        (claim(stepRunRef=None), "spec", "spec.stepRunRef.name is required"),
        (claim(effectKey=""), "spec", "spec.effectKey is required"),
        (
            claim("other"),
            "metadata",
            f'metadata.name must be "{claim_name("default", "r-a", "pay")}" for this EffectClaim, not "other"',
        ),
        (
            claim(claim_name("default", "zzz", "pay"), stepRunRef={"name": "zzz"}),
            "spec.stepRunRef",
            "referenced steprun 'default/zzz' not found",
        ),
        (
            claim(stepRunRef={"name": "r-a", "uid": "u-2"}),
            "spec.stepRunRef",
            "referenced steprun 'default/r-a' is not the one with uid 'u-2'",
        ),
        (
            claim(stepRunRef={"name": "r-a", "namespace": "far"}),
            "spec.stepRunRef",
            "cross-namespace StepRunRef references are not allowed",
        ),
        (claim(completedAt=LATE), "spec.completedAt", "spec.completedAt needs a spec.completionStatus"),
        (
            claim(completionStatus="completed"),
            "spec",
            "spec.completedAt is required when spec.completionStatus is completed",
        ),
        (claim(renewTime=LATE), "spec.renewTime", "spec.renewTime needs a spec.acquireTime"),
        (
            claim(acquireTime=LATE, renewTime=EARLY),
            "spec.renewTime",
            "spec.renewTime cannot be before spec.acquireTime",
        ),
        (
            claim(acquireTime=LATE, completedAt=EARLY, completionStatus="abandoned"),
            "spec.completedAt",
            "spec.completedAt cannot be before spec.acquireTime",
        ),
        (
            claim(acquireTime=EARLY, renewTime=LATER, completedAt=LATE, completionStatus="completed"),
            "spec.completedAt",
            "spec.completedAt cannot be before spec.renewTime",
        ),
        (claim(leaseDurationSeconds=0), "spec.leaseDurationSeconds", "must be 1 or more, not 0"),
        (claim(leaseTransitions=-1), "spec.leaseTransitions", "must be 0 or more, not -1"),
        (
            claim(completionStatus="x"),
            "spec.completionStatus",
            'unsupported value "x" (expected completed, released or abandoned)',
        ),
        (
            claim(acquireTime="2026-13-01T00:00:00Z"),
            "spec.acquireTime",
            'must be a time such as 2026-01-31T12:00:00Z, not "2026-13-01T00:00:00Z"',
        ),
    ],
)
def test_mistakes_in_effect_claims(effect_claim: Resource, path: str, message: str) -> None:
    """STY-052"""
    assert said(effect_claim, CLAIMED) == [(path, message, INVALID)]


def test_effect_claims_in_order() -> None:
    """STY-052: a released claim has no time of completion."""
    assert said(claim(), CLAIMED) == []
    assert said(claim(completionStatus="released"), CLAIMED) == []
    full = claim(
        holderIdentity="h",
        leaseDurationSeconds=600,
        acquireTime=EARLY,
        renewTime=LATE,
        completedAt=LATER,
        completionStatus="completed",
        leaseTransitions=1,
        details={"id": 1},
    )
    assert said(full, CLAIMED) == []


DONE = {"acquireTime": EARLY, "completionStatus": "completed", "completedAt": LATE, "holderIdentity": "h"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            {"idempotencyKey": "a"},
            {"idempotencyKey": "b"},
            "stepRunRef, effectKey, idempotencyKey of an EffectClaim are immutable",
        ),
        ({"completionStatus": "abandoned", "completedAt": LATE}, {}, "spec.completedAt cannot be cleared"),
        (DONE, {**DONE, "completedAt": EARLY}, "spec.completedAt cannot be moved back"),
        (DONE, {**DONE, "completionStatus": "abandoned"}, "an EffectClaim that is completed stays completed"),
        (DONE, {**DONE, "holderIdentity": "i"}, "holder and lease of a completed EffectClaim cannot change"),
        (DONE, {**DONE, "leaseTransitions": 1}, "holder and lease of a completed EffectClaim cannot change"),
        (DONE, {**DONE, "details": {"more": 1}}, None),
        (DONE, {**DONE, "completedAt": LATER}, None),
        ({"completionStatus": "released"}, {"holderIdentity": "i", "acquireTime": LATE}, None),
        ({"holderIdentity": "h", "acquireTime": EARLY}, DONE, None),
    ],
)
def test_how_effect_claims_change(old: dict[str, Any], new: dict[str, Any], message: str | None) -> None:
    """STY-052, STY-170"""
    messages = [problem[1] for problem in said(claim(**new), CLAIMED, stored=claim(**old))]

    assert messages == ([] if message is None else [message])
