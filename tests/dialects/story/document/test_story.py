"""Admission of Stories (section 2.1): each refusal with its text and its place, and what is nearly it and accepted."""

# ruff: noqa: E501 - one mistake per line reads best

import json
from typing import Any

import pytest

from perdure.dialects.story.document import validate
from perdure.dialects.story.plan.settings import Settings
from tests.dialects.story.document.resource_texts import HEAD, errors, problems, steps, story, warnings

STEP = "{name: a, ref: {name: e}}"
INVALID = "ValidationFailed"
PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


def many(count: int, letter: str = "s") -> str:
    return "[" + ", ".join(f"{{name: {letter}{n}, ref: e}}" for n in range(count)) + "]"


REFUSED: list[tuple[str, str, str]] = [
    # STY-003: unknown fields, wherever they stand
    (
        story("steps: [{name: a, ref: e, nedes: [b]}]"),
        "spec.steps[0].nedes",
        "unknown field 'nedes'; did you mean 'needs'?",
    ),
    (story("stepz: []\nsteps: [{name: a, ref: e}]"), "spec.stepz", "unknown field 'stepz'; did you mean 'steps'?"),
    (
        story("policy: {timeout: {}}\nsteps: [{name: a, ref: e}]"),
        "spec.policy.timeout",
        "unknown field 'timeout'; did you mean 'timeouts'?",
    ),
    (
        story("steps: [{name: a, ref: {name: e, nam: x}}]"),
        "spec.steps[0].ref.nam",
        "unknown field 'nam'; did you mean 'name'?",
    ),
    (
        story("steps: [{name: p, type: parallel, with: {steps: [{name: b, ref: e, wiht: {}}]}}]"),
        "spec.steps[0].with.steps[0].wiht",
        "unknown field 'wiht'; did you mean 'with'?",
    ),
    # STY-023: ranges and enums
    (story("steps: []"), "spec.steps", "must have between 1 and 100 items, not 0"),
    (story("version: v1"), "spec", "spec.steps is required"),
    (story(f"steps: {many(101)}"), "spec.steps", "must have between 1 and 100 items, not 101"),
    (
        story(f"steps: [{STEP}]\ncompensations: {many(51)}"),
        "spec.compensations",
        "must have between 0 and 50 items, not 51",
    ),
    (story(f"steps: [{STEP}]\nfinally: {many(51)}"), "spec.finally", "must have between 0 and 50 items, not 51"),
    (story(f"steps: [{STEP}]\nversion: {'v' * 65}"), "spec.version", "must have at most 64 characters, not 65"),
    (
        story(f"steps: [{STEP}]\npattern: stream"),
        "spec.pattern",
        "unsupported value \"stream\" (expected batch, streaming or realtime); did you mean 'streaming'?",
    ),
    (
        story(f"steps: [{STEP}]\npolicy: {{queue: Big_One}}"),
        "spec.policy.queue",
        f"'Big_One' is not a valid name: it must match {PATTERN}",
    ),
    (
        story(f"steps: [{STEP}]\npolicy: {{queue: {'q' * 64}}}"),
        "spec.policy.queue",
        "a name has 1 to 63 characters, not 64",
    ),
    (story(f"steps: [{STEP}]\npolicy: {{priority: -1}}"), "spec.policy.priority", "must be 0 or more, not -1"),
    (
        story(f"steps: [{STEP}]\npolicy: {{retries: {{stepRetryPolicy: {{maxRetries: 11}}}}}}"),
        "spec.policy.retries.stepRetryPolicy.maxRetries",
        "must be between 0 and 10, not 11",
    ),
    (
        story("steps: [{name: a, ref: e, execution: {retry: {maxRetries: -1}}}]"),
        "spec.steps[0].execution.retry.maxRetries",
        "must be between 0 and 10, not -1",
    ),
    (
        story("steps: [{name: a, ref: e, execution: {retry: {jitter: 101}}}]"),
        "spec.steps[0].execution.retry.jitter",
        "must be between 0 and 100, not 101",
    ),
    (
        story("steps: [{name: a, ref: e, execution: {retry: {backoff: fast}}}]"),
        "spec.steps[0].execution.retry.backoff",
        'unsupported value "fast" (expected exponential, linear or constant)',
    ),
    (
        story("steps: [{name: a, ref: e, execution: {cache: {mode: rw}}}]"),
        "spec.steps[0].execution.cache.mode",
        'unsupported value "rw" (expected read, write or readWrite)',
    ),
    (
        story("steps: [{name: a, ref: e, execution: {maxRecursionDepth: 3}}]"),
        "spec.steps[0].execution.maxRecursionDepth",
        "unknown field 'maxRecursionDepth'",
    ),
    (
        story(f"steps: [{STEP}]\npolicy: {{execution: {{maxRecursionDepth: 0}}}}"),
        "spec.policy.execution.maxRecursionDepth",
        "must be 1 or more, not 0",
    ),
    *(
        (story(f"steps: [{{name: a, type: {word}}}]"), "spec.steps[0].type", f"step type '{word}' was removed")
        for word in ("switch", "throttle", "batch")
    ),
    (
        story("steps: [{name: a, type: gates}]"),
        "spec.steps[0].type",
        "unsupported value \"gates\" (expected condition, parallel, sleep, stop, executeStory, wait or gate); did you mean 'gate'?",
    ),
    (
        story("steps: [{name: a, ref: e, idempotencyKeyTemplate: " + "k" * 513 + "}]"),
        "spec.steps[0].idempotencyKeyTemplate",
        "must have at most 512 characters, not 513",
    ),
    # STY-024: names
    (story("steps: [{ref: e}]"), "spec.steps[0]", "spec.steps[0].name is required"),
    (story("steps: [{name: A, ref: e}]"), "spec.steps[0].name", f"'A' is not a valid name: it must match {PATTERN}"),
    (story(f"steps: [{{name: {'a' * 64}, ref: e}}]"), "spec.steps[0].name", "a name has 1 to 63 characters, not 64"),
    (story("steps: [{name: a, ref: e}, {name: a, ref: e}]"), "spec.steps[1].name", "duplicate step name 'a'"),
    (
        story("steps: [{name: a, ref: e}]\nfinally: [{name: a, ref: e}]"),
        "spec.finally[0].name",
        "duplicate step name 'a'",
    ),
    (
        story(
            "steps: [{name: a, ref: e}]\ncompensations: [{name: p, type: parallel, with: {steps: [{name: a, ref: e}]}}]"
        ),
        "spec.compensations[0].with.steps[0].name",
        "duplicate step name 'a'",
    ),
    # STY-025
    (story("steps: [{name: a, ref: e, type: gate}]"), "spec.steps[0]", "step 'a' must not set both ref and type"),
    (story("steps: [{name: a}]"), "spec.steps[0]", "step 'a' must set either ref or type"),
    (story("steps: [{name: a, ref: {name: ''}}]"), "spec.steps[0].ref", "step 'a' requires 'ref.name' to be set"),
    # STY-026
    (
        story("steps: [{name: a, ref: e, needs: [a]}]"),
        "spec.steps[0].needs[0]",
        "step 'a' cannot depend on itself in needs",
    ),
    (
        story("steps: [{name: a, ref: e, needs: [zzz]}]"),
        "spec.steps[0].needs[0]",
        "step 'a' lists unknown dependency 'zzz' in needs",
    ),
    (
        story("steps: [{name: a, ref: e, needs: [c]}]\ncompensations: [{name: c, ref: e}]"),
        "spec.steps[0].needs[0]",
        "step 'a' lists unknown dependency 'c' in needs",
    ),
    (
        story(
            "steps: [{name: a, ref: e}]\ncompensations: [{name: c, ref: e, needs: [f]}]\nfinally: [{name: f, ref: e}]"
        ),
        "spec.compensations[0].needs[0]",
        "step 'c' lists unknown dependency 'f' in needs",
    ),
    # STY-027
    (
        story("steps: [{name: b, ref: e, needs: [a]}, {name: a, ref: e, needs: [b]}]"),
        "spec.steps",
        "steps contains a dependency cycle involving step(s): a, b",
    ),
    (
        story("steps: [{name: m, ref: e}]\nfinally: [{name: b, ref: e, needs: [a]}, {name: a, ref: e, needs: [b]}]"),
        "spec.finally",
        "finally contains a dependency cycle involving step(s): a, b",
    ),
    (
        story("steps: [{name: m, ref: e}]\ncompensations: [{name: b, ref: e, with: {x: '{{ steps.b.output }}'}}]"),
        "spec.compensations",
        "compensations contains a dependency cycle involving step(s): b",
    ),
    (
        story("steps: [{name: b, ref: e, needs: [a]}, {name: a, ref: e, with: {x: '{{ steps.b.output }}'}}]"),
        "spec.steps",
        "steps contains a dependency cycle involving step(s): a, b",
    ),
    # STY-028
    (
        story("pattern: streaming\nsteps: [{name: g, type: gate}]"),
        "spec.steps[0].type",
        "step 'g' of type 'gate' is only supported for batch stories",
    ),
    (
        story(f"pattern: realtime\nsteps: [{STEP}]\nfinally: [{{name: w, type: wait, with: {{until: 'true'}}}}]"),
        "spec.finally[0].type",
        "step 'w' of type 'wait' is only supported for batch stories",
    ),
    # STY-030
    (story("steps: [{name: a, ref: e, with: [1]}]"), "spec.steps[0].with", "spec.steps[0].with must be a JSON object"),
    (
        story("pattern: streaming\nsteps: [{name: a, ref: e, runtime: x}]"),
        "spec.steps[0].runtime",
        "spec.steps[0].runtime must be a JSON object",
    ),
    (story(f"steps: [{STEP}]\npolicy: {{with: 3}}"), "spec.policy.with", "spec.policy.with must be a JSON object"),
    (story(f"steps: [{STEP}]\noutput: text"), "spec.output", "spec.output must be a JSON object"),
    # STY-037
    (
        story("steps: [{name: a, ref: e, runtime: {x: 1}}]"),
        "spec.steps[0].runtime",
        "runtime is only supported for realtime stories or bridged realtime steps",
    ),
    # STY-038
    (
        steps(STEP, "{name: b, ref: e, needs: [a], requires: [inputs.x.y]}"),
        "spec.steps[1].requires[0]",
        "a requires path must start with 'steps.', not \"inputs.x.y\"",
    ),
    (
        steps(STEP, "{name: b, ref: e, needs: [a], requires: [steps.a]}"),
        "spec.steps[1].requires[0]",
        'a requires path has at least 3 segments, steps.<name>.<field>, not "steps.a"',
    ),
    (
        steps(STEP, "{name: b, ref: e, needs: [a], requires: [steps.zzz.output]}"),
        "spec.steps[1].requires[0]",
        'requires references unknown step "zzz"',
    ),
    (
        steps(STEP, "{name: b, ref: e, requires: [steps.a.output]}"),
        "spec.steps[1].requires[0]",
        'requires references step "a" which is not upstream (add it to needs or needs chain)',
    ),
    (
        steps("{name: b, ref: e, requires: [steps.b.output]}"),
        "spec.steps[0].requires[0]",
        'requires references step "b" which is not upstream (add it to needs or needs chain)',
    ),
    (
        steps(STEP, "{name: p, type: parallel, with: {steps: [{name: b, ref: e, requires: [steps.a.output]}]}}"),
        "spec.steps[1].with.steps[0].requires[0]",
        'requires references step "a" which is not upstream (add it to needs or needs chain)',
    ),
    # STY-039
    (
        story(f"steps: [{STEP}]\npolicy: {{timeouts: {{gracefulShutdownTimeout: -1s}}}}"),
        "spec.policy.timeouts.gracefulShutdownTimeout",
        "duration must be positive",
    ),
    (
        story(f"steps: [{STEP}]\npolicy: {{timeouts: {{story: soon}}}}"),
        "spec.policy.timeouts.story",
        "'soon' is not a duration (expected e.g. 1h30m or 500ms)",
    ),
    (
        story(f"steps: [{STEP}]\npolicy: {{timeouts: {{step: 0s}}}}"),
        "spec.policy.timeouts.step",
        "duration must be positive",
    ),
    (
        story(f"steps: [{STEP}]\npolicy: {{timeouts: {{story: '30'}}}}"),
        "spec.policy.timeouts.story",
        "'30' is not a duration (expected e.g. 1h30m or 500ms)",
    ),
    (
        story(f"steps: [{STEP}]\ninputsSchema: {{properties: 3}}"),
        "spec.inputsSchema",
        'error validating Story inputs schema: properties: 3 is not of type "object"',
    ),
    (
        story(f"steps: [{STEP}]\noutputsSchema: {{required: x}}"),
        "spec.outputsSchema",
        'error validating Story outputs schema: required: "x" is not of type "array"',
    ),
    # STY-007, STY-229
    (
        story(f"steps: [{STEP}]\npolicy: {{storage: {{s3: {{bucket: b}}}}}}"),
        "spec.policy.storage.s3",
        "storage.s3 needs an S3 driver, and none is configured",
    ),
    (
        story("steps: [{name: a, ref: e, execution: {storage: {file: {path: ../x}}}}]"),
        "spec.steps[0].execution.storage.file.path",
        "storage.file.path must not lead out of the data root",
    ),
    (
        story("steps: [{name: a, ref: e, sideEffects: true, execution: {cache: {}}}]"),
        "spec.steps[0].execution.cache",
        "cache cannot be used on a step with sideEffects: a hit would skip the effect",
    ),
    # types
    (
        story("steps: [{name: a, ref: e, allowFailure: 'yes'}]"),
        "spec.steps[0].allowFailure",
        'must be true or false, not "yes"',
    ),
    (story("steps: [{name: a, ref: e, if: true}]"), "spec.steps[0].if", "must be a string, not true"),
    (story("steps: [{name: a, ref: e, needs: b}]"), "spec.steps[0].needs", 'must be a list, not "b"'),
    (story("steps: [{name: a, ref: [e]}]"), "spec.steps[0].ref", 'must be a name or an object with one, not ["e"]'),
    (story("steps: [{name: a, ref: E_1}]"), "spec.steps[0].ref", f"'E_1' is not a valid name: it must match {PATTERN}"),
    (
        story("steps: [{name: a, ref: e, postExecution: {failureMessage: x}}]"),
        "spec.steps[0].postExecution",
        "spec.steps[0].postExecution.condition is required",
    ),
    (
        story("steps: [{name: a, ref: e, postExecution: {condition: ' '}}]"),
        "spec.steps[0].postExecution.condition",
        "must not be empty",
    ),
    (story("steps: [3]"), "spec.steps[0]", "spec.steps[0] must be a JSON object"),
]


@pytest.mark.parametrize(("text", "path", "message"), REFUSED, ids=lambda value: value[:60])
def test_a_mistake_is_told_alone_with_its_text_and_its_place(text: str, path: str, message: str) -> None:
    """STY-003, 007, 019, 023, 024, 025, 026, 027, 028, 030, 037, 038, 039, 229"""
    assert errors(text) == [(path, message, INVALID)]


ACCEPTED = [
    story(f"steps: [{STEP}]\npolicy: {{timeouts: {{story: 1h, step: 1ms, gracefulShutdownTimeout: 0s}}}}"),
    story(f"steps: {many(100)}\ncompensations: {many(50, 'c')}\nfinally: {many(50, 'f')}"),
    story(f"steps: [{STEP}]\nversion: {'v' * 64}"),
    *(story(f"steps: [{STEP}]\npattern: {word}") for word in ("batch", "streaming", "realtime")),
    story(
        f"steps: [{STEP}]\npolicy: {{queue: big-one, priority: 0, concurrency: 3, retries: {{continueOnStepFailure: true, stepRetryPolicy: {{maxRetries: 10, jitter: 100, backoff: linear, delay: 1s, maxDelay: 5s}}}}}}"
    ),
    story(
        "steps: [{name: a, ref: e, execution: {cache: {mode: readWrite, ttlSeconds: -1, key: '{{ inputs.x }}-{{ step.id }}-{{ engram.name }}'}, maxInlineSize: 0, debug: true, timeout: 5m}}]"
    ),
    story("steps: [{name: a, ref: e, sideEffects: false, execution: {cache: {}}}]"),
    story("steps: [{name: a, ref: e}, {name: b, ref: e, needs: [a], requires: [steps.a.output.x.y]}]"),
    story(
        "steps: [{name: a, ref: e}, {name: b, ref: e, needs: [a]}, {name: c, ref: e, needs: [b], requires: [steps.a.output.x]}]"
    ),
    story(
        "steps: [{name: m, ref: e}]\ncompensations: [{name: c, ref: e, needs: [m], requires: [steps.m.output]}]\nfinally: [{name: f, ref: e, needs: [m, c]}]"
    ),
    story(
        "steps: [{name: p, type: parallel, with: {steps: [{name: b, ref: e}]}}, {name: c, ref: e, needs: [p], requires: [steps.b.output.x]}]"
    ),
    story("steps: [{name: a, ref: e, needs: null, with: null, if: ''}]\ncompensations: null\npolicy: null"),
    story(
        "steps: [{name: a, ref: e, transport: t, runtime: {x: '{{ packet.text }}'}}]\ntransports: [{name: t, transportRef: hub}]"
    ),
    story(
        "pattern: streaming\nconcurrency: {mode: serial, scope: participant}\nsteps: [{name: a, ref: e, runtime: {x: 1}}, {name: c, type: condition}, {name: s, type: sleep, with: {duration: 1s}}, {name: x, type: executeStory, with: {storyRef: other}}, {name: z, type: stop}]"
    ),
    story(f"steps: [{STEP}]\npolicy: {{storage: {{file: {{path: a/b}}, timeoutSeconds: 3}}}}"),
    story(
        f"steps: [{STEP}]\ninputsSchema: {{type: object, properties: {{x: {{type: string, required: true}}}}}}\noutputsSchema: {{}}"
    ),
    story(
        "steps: [{name: a, ref: e, with: {anything: {goes: [here, null, {deep: 1}]}}, secrets: {token: my-secret}}]\noutput: {any: 1}"
    ),
]


@pytest.mark.parametrize("text", ACCEPTED, ids=lambda value: value[len(HEAD) : len(HEAD) + 60])
def test_what_comes_near_is_accepted(text: str) -> None:
    """STY-003, 005, 023 to 039, 229, 270: batch and streaming share all primitives but gate and wait."""
    assert errors(text) == []


def test_streaming_is_stored_for_realtime_and_a_bare_name_is_a_reference() -> None:
    """STY-002, STY-005"""
    text = story(
        "pattern: realtime\nsteps: [{name: a, ref: e, if: null}, {name: s, type: executeStory, with: {storyRef: o}}, {name: p, type: parallel, with: {steps: [{name: b, ref: f}]}}]"
    )

    (kept,) = validate(text.encode()).resources

    assert kept["spec"] == {
        "pattern": "streaming",
        "steps": [
            {"name": "a", "ref": {"name": "e"}},
            {"name": "s", "type": "executeStory", "with": {"storyRef": {"name": "o"}}},
            {"name": "p", "type": "parallel", "with": {"steps": [{"name": "b", "ref": {"name": "f"}}]}},
        ],
    }


def test_a_story_that_is_too_large_is_told_so_and_nothing_else() -> None:
    """STY-019, STY-022"""
    resource: dict[str, Any] = {
        "apiVersion": "bubustack.io/v1alpha1",
        "kind": "Story",
        "metadata": {"name": "tale"},
        "spec": {"steps": [], "wrong": 1, "output": {"x": "y" * 1_048_576}},
    }
    size = len(json.dumps(resource, separators=(",", ":")))

    assert errors(json.dumps(resource)) == [
        ("", f"story size of {size} bytes exceeds maximum allowed size of 1048576 bytes", INVALID)
    ]


@pytest.mark.parametrize(
    ("text", "path", "what"),
    [
        (story("steps: [{name: a, ref: e, with: {x: %s}}]" % ("y" * 100)), "spec.steps[0].with", "with"),
        (story(f"steps: [{STEP}]\noutput: {{x: {'y' * 100}}}"), "spec.output", "output"),
        (story(f"steps: [{STEP}]\npolicy: {{with: {{x: {'y' * 100}}}}}"), "spec.policy.with", "policy.with"),
    ],
)
def test_blocks_have_a_largest_size(text: str, path: str, what: str) -> None:
    """STY-029"""
    size = len('{"x":""}') + 100
    key = "controller.max-story-with-block-size-bytes"

    assert errors(text, settings=Settings.read({key: size})) == []
    assert errors(text, settings=Settings.read({key: size - 1})) == [
        (path, f"'{what}' block size of {size} bytes exceeds maximum allowed size of {size - 1} bytes", INVALID)
    ]


def test_all_problems_are_told_in_the_order_of_the_text() -> None:
    """STY-019: line and column from 1."""
    text = story("pattern: no\nsteps:\n- {name: a}\n- {name: a, ref: e,\n   needs: [z]}\npolicy: {priority: -1}")

    reported = problems(text)

    assert [(problem.line, problem.column, problem.path) for problem in reported if problem.severity == "error"] == [
        (5, 12, "spec.pattern"),
        (7, 5, "spec.steps[0]"),
        (8, 12, "spec.steps[1].name"),
        (9, 14, "spec.steps[1].needs[0]"),
        (10, 22, "spec.policy.priority"),
    ]


def test_kubernetes_fields_are_one_warning_for_the_whole_resource() -> None:
    """STY-004: type-checked, stored and ignored."""
    text = story(
        "steps: [{name: a, ref: e, id: b, execution: {resources: {}, serviceAccountName: x, job: {backoffLimit: 3}}}]"
    )

    assert [warning for warning in warnings(text) if warning[2] == "KubernetesOnly"] == [
        (
            "spec.steps[0].id",
            "these fields only apply to Kubernetes and are ignored: spec.steps[0].id, "
            "spec.steps[0].execution.resources, spec.steps[0].execution.serviceAccountName, "
            "spec.steps[0].execution.job.backoffLimit",
            "KubernetesOnly",
        )
    ]
    assert errors(text) == []
    (kept,) = validate(text.encode()).resources
    assert kept["spec"]["steps"][0]["execution"]["job"] == {"backoffLimit": 3}
    assert errors(story("steps: [{name: a, ref: e, execution: {resources: 3}}]")) == [
        ("spec.steps[0].execution.resources", "spec.steps[0].execution.resources must be a JSON object", INVALID)
    ]


def test_lenient_admission_makes_unknown_fields_warnings() -> None:
    text = story("steps: [{name: a, ref: e, nedes: [b]}]")
    lenient = Settings.read({"admission.lenient": True})

    assert errors(text, settings=lenient) == []
    assert ("spec.steps[0].nedes", "unknown field 'nedes'; did you mean 'needs'?", INVALID) in warnings(
        text, settings=lenient
    )


def test_s3_is_accepted_where_there_is_a_driver() -> None:
    """STY-007"""
    text = story(f"steps: [{STEP}]\npolicy: {{storage: {{s3: {{bucket: b}}}}}}")

    assert errors(text, settings=Settings.read({"storage.drivers": ["file", "s3"]})) == []


def test_durations_that_a_run_passes_over_are_warnings() -> None:
    """A retry without a right delay takes the default, a timeout that is none the next level's."""
    text = story("steps: [{name: a, ref: e, execution: {timeout: soon, retry: {delay: '5'}}}]")

    assert errors(text) == []
    assert [path for path, message, _ in warnings(text) if "it is ignored" in message] == [
        "spec.steps[0].execution.timeout",
        "spec.steps[0].execution.retry.delay",
    ]
