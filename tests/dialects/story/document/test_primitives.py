"""The `with` of built-in steps (STY-031 to 034), and the Stories of the published contract."""

# ruff: noqa: E501 - one mistake per line reads best

import pytest

from perdure.dialects.story.document import validate
from tests.dialects.story.document.resource_texts import HEAD, errors, resource, shelf, steps, story, warnings

INVALID = "ValidationFailed"
NO_DURATION = "is not a duration (expected e.g. 1h30m or 500ms)"

REFUSED: list[tuple[str, str, str]] = [
    # STY-031
    ("{name: x, type: executeStory}", "", "step 'x' of type 'executeStory' requires a 'with' block"),
    (
        "{name: x, type: executeStory, with: {}}",
        ".with",
        "step 'x' of type 'executeStory' requires 'with.storyRef.name' to be set",
    ),
    (
        "{name: x, type: executeStory, with: {storyRef: {namespace: n}}}",
        ".with",
        "step 'x' of type 'executeStory' requires 'with.storyRef.name' to be set",
    ),
    (
        "{name: x, type: executeStory, with: {storyRef: o, waitForCompletion: soon}}",
        ".with.waitForCompletion",
        'must be true or false, not "soon"',
    ),
    (
        "{name: x, type: executeStory, with: {storyRef: o, with: [1]}}",
        ".with.with",
        "spec.steps[0].with.with must be a JSON object",
    ),
    (
        "{name: x, type: executeStory, with: {storyRef: {name: o, vresion: v}}}",
        ".with.storyRef.vresion",
        "unknown field 'vresion'; did you mean 'version'?",
    ),
    # STY-032
    ("{name: w, type: wait}", "", "step 'w' of type 'wait' requires a 'with' block"),
    ("{name: w, type: wait, with: {}}", ".with", "step 'w' of type 'wait' requires 'with.until' to be set"),
    ("{name: w, type: wait, with: {until: ' '}}", ".with", "step 'w' of type 'wait' requires 'with.until' to be set"),
    ("{name: w, type: wait, with: {until: true}}", ".with.until", "must be a string or a template, not true"),
    (
        "{name: w, type: wait, with: {until: x, timeout: later}}",
        ".with.timeout",
        f"step 'w' has invalid wait timeout: 'later' {NO_DURATION}",
    ),
    (
        "{name: w, type: wait, with: {until: x, timeout: 0s}}",
        ".with.timeout",
        "step 'w' has invalid wait timeout: duration must be positive",
    ),
    (
        "{name: w, type: wait, with: {until: x, timeout: 30}}",
        ".with.timeout",
        "step 'w' has invalid wait timeout: 30 is not a duration (expected e.g. 30s or 1h30m)",
    ),
    (
        "{name: w, type: wait, with: {until: x, pollInterval: -1s}}",
        ".with.pollInterval",
        "step 'w' has invalid wait pollInterval: duration must be positive",
    ),
    (
        "{name: w, type: wait, with: {until: x, pollInterval: 9ms}}",
        ".with.pollInterval",
        "step 'w' has wait pollInterval shorter than 10ms",
    ),
    (
        "{name: w, type: wait, with: {until: x, onTimeout: v}}",
        ".with.onTimeout",
        "step 'w' has invalid wait onTimeout: unsupported value \"v\" (expected fail or skip)",
    ),
    # STY-033
    (
        "{name: g, type: gate, with: {timeout: later}}",
        ".with.timeout",
        f"step 'g' has invalid gate timeout: 'later' {NO_DURATION}",
    ),
    (
        "{name: g, type: gate, with: {pollInterval: 9999us}}",
        ".with.pollInterval",
        "step 'g' has gate pollInterval shorter than 10ms",
    ),
    (
        "{name: g, type: gate, with: {onTimeout: abort}}",
        ".with.onTimeout",
        "step 'g' has invalid gate onTimeout: unsupported value \"abort\" (expected fail or skip)",
    ),
    # STY-034
    ("{name: p, type: parallel}", "", "step 'p' of type 'parallel' requires a non-empty list 'with.steps'"),
    (
        "{name: p, type: parallel, with: {steps: []}}",
        ".with.steps",
        "step 'p' of type 'parallel' requires a non-empty list 'with.steps'",
    ),
    (
        "{name: p, type: parallel, with: {steps: [{ref: e}]}}",
        ".with.steps[0]",
        "spec.steps[0].with.steps[0].name is required",
    ),
    ("{name: p, type: parallel, with: {steps: [{name: b}]}}", ".with.steps[0]", "branch 'b' of step 'p' must set ref"),
    (
        "{name: p, type: parallel, with: {steps: [{name: b, ref: e, type: gate}]}}",
        ".with.steps[0].type",
        "branch 'b' of step 'p' must not set type: only Engrams run in parallel",
    ),
    (
        "{name: p, type: parallel, with: {steps: [{name: b, ref: e, needs: [p]}]}}",
        ".with.steps[0].needs",
        "branch 'b' of step 'p' must not set needs: all branches start together",
    ),
    (
        "{name: s, type: sleep, with: {duration: a while}}",
        ".with.duration",
        f"step 's' has invalid sleep duration: 'a while' {NO_DURATION}",
    ),
    (
        "{name: s, type: sleep, with: {duration: 0s}}",
        ".with.duration",
        "step 's' has invalid sleep duration: duration must be positive",
    ),
    (
        "{name: s, type: sleep, with: {duration: 5}}",
        ".with.duration",
        "step 's' has invalid sleep duration: 5 is not a duration (expected e.g. 30s or 1h30m)",
    ),
    (
        "{name: z, type: stop, with: {phase: Done}}",
        ".with.phase",
        "step 'z' has invalid stop phase: unsupported value \"Done\" (expected Succeeded, Failed, Finished or Canceled)",
    ),
    (
        "{name: z, type: stop, with: {phase: failed}}",
        ".with.phase",
        "step 'z' has invalid stop phase: unsupported value \"failed\" (expected Succeeded, Failed, Finished or Canceled); did you mean 'Failed'?",
    ),
    (
        "{name: z, type: stop, with: {mode: abort}}",
        ".with.mode",
        "step 'z' has invalid stop mode: unsupported value \"abort\" (expected success, failure or cancel)",
    ),
]


@pytest.mark.parametrize(("step", "path", "message"), REFUSED, ids=lambda value: value[:70])
def test_a_mistake_in_a_built_in_step(step: str, path: str, message: str) -> None:
    """STY-031, STY-032, STY-033, STY-034"""
    assert errors(steps(step)) == [(f"spec.steps[0]{path}", message, INVALID)]


ACCEPTED = [
    "{name: x, type: executeStory, with: {storyRef: o}}",
    "{name: x, type: executeStory, with: {storyRef: {name: o, version: v1}, waitForCompletion: false, with: {a: '{{ inputs.a }}'}}}",
    "{name: w, type: wait, with: {until: 'true', timeout: 1s, pollInterval: 10ms, onTimeout: SKIP}}",
    "{name: w, type: wait, with: {until: '{{ inputs.ready }}', timeout: '', onTimeout: ''}}",
    "{name: g, type: gate}",
    "{name: g, type: gate, with: {timeout: 24h, onTimeout: Fail}}",
    "{name: s, type: sleep}",
    "{name: s, type: sleep, with: {duration: ''}}",
    "{name: s, type: sleep, with: {duration: '  '}}",
    "{name: s, type: sleep, with: {duration: 1ms}}",
    "{name: s, type: sleep, with: {duration: '{{ inputs.pause }}'}}",
    *(
        f"{{name: z, type: stop, with: {{phase: {phase}, message: enough}}}}"
        for phase in ("Succeeded", "Failed", "Finished", "Canceled")
    ),
    *(f"{{name: z, type: stop, with: {{mode: {mode}}}}}" for mode in ("success", "failure", "cancel")),
    "{name: c, type: condition, if: '{{ inputs.x }}'}",
    "{name: p, type: parallel, with: {steps: [{name: b, ref: e, allowFailure: true, if: '{{ inputs.x }}', needs: []}]}}",
]


@pytest.mark.parametrize("step", ACCEPTED)
def test_built_in_steps_as_they_may_be(step: str) -> None:
    """STY-031, STY-032, STY-033, STY-034"""
    assert errors(steps(step)) == []


def test_a_story_cannot_start_itself() -> None:
    """STY-031"""
    message = "step 'x' of type 'executeStory' cannot reference the same story"
    expected = [("spec.steps[0].with.storyRef", message, "StoryReferenceInvalid")]

    assert errors(steps("{name: x, type: executeStory, with: {storyRef: tale}}")) == expected
    assert (
        errors(steps("{name: x, type: executeStory, with: {storyRef: {name: tale, namespace: default}}}")) == expected
    )


def test_a_sub_story_that_is_missing_or_of_another_version_is_a_warning() -> None:
    """STY-031: at run time it is waited for, or refused."""
    text = steps("{name: x, type: executeStory, with: {storyRef: {name: o, version: v2}}}")
    there = resource("Story", "o", {"version": "v1", "steps": []})
    fitting = resource("Story", "o", {"version": "v2", "steps": []})

    assert errors(text) == []
    assert warnings(text) == [
        (
            "spec.steps[0].with.storyRef",
            "step 'x': there is no Story 'default/o' yet: the step will wait for it",
            "ReferenceNotFound",
        )
    ]
    assert warnings(text, shelf(there)) == [
        (
            "spec.steps[0].with.storyRef",
            "step 'x': Story 'default/o' has version 'v1', expected 'v2': the step will fail",
            "StoryReferenceInvalid",
        )
    ]
    assert warnings(text, shelf(fitting)) == []


def test_members_that_a_built_in_step_does_not_read_are_warnings() -> None:
    """STY-003: `with` is free-form, but a slip should be seen."""
    text = steps("{name: g, type: gate, with: {timout: 5m}}")

    assert errors(text) == []
    assert warnings(text) == [("spec.steps[0].with.timout", "has no effect here; did you mean 'timeout'?", "Doubtful")]


CONTRACT = {
    "cleanup-flow": """
  pattern: batch
  steps:
    - name: deploy
      ref:
        name: deploy-app
  compensations:
    - name: rollback
      ref:
        name: rollback-app
      needs: ["deploy"]
  finally:
    - name: notify
      ref:
        name: slack-notify
""",
    "streaming-with-cleanup": """
  pattern: streaming
  steps:
    - name: transcribe
      ref:
        name: whisper-transcriber
    - name: respond
      ref:
        name: llm-responder
      needs: ["transcribe"]
  compensations:
    - name: release-session
      ref:
        name: session-cleanup
  finally:
    - name: log-metrics
      ref:
        name: metrics-reporter
""",
    "gated-workflow": """
  pattern: batch
  steps:
    - name: approve
      type: gate
      with:
        timeout: "30m"
        onTimeout: "fail"
""",
    "wait-for-signal": """
  pattern: batch
  steps:
    - name: wait-ready
      type: wait
      with:
        until: "{{ inputs.ready }}"
        pollInterval: "5s"
        timeout: "30m"
        onTimeout: "skip"
""",
    "map-items": """
  steps:
    - name: map-items
      ref: map-reduce-adapter
      with:
        items: "{{ inputs.items }}"
        map:
          storyRef:
            name: per-item-story
          concurrency: 20
          batchSize: 200
""",
}


@pytest.mark.parametrize("name", CONTRACT)
def test_stories_of_the_published_contract_are_in_order(name: str) -> None:
    """STY-270, STY-271: all that is said of them is that their Engrams are not here."""
    text = HEAD.replace("tale", name).replace("spec:\n", "spec:") + CONTRACT[name]

    judged = validate(text.encode())

    assert {problem.code for problem in judged.problems} <= {"ReferenceNotFound"}
    assert judged.resources[0]["metadata"]["name"] == name


def test_the_shape_of_a_story() -> None:
    """Section 1.2: the example of the contract."""
    text = story(
        """inputsSchema: {type: object, required: [env], properties: {env: {type: string}}}
policy: {timeouts: {story: 30m}, retries: {stepRetryPolicy: {maxRetries: 2, delay: 1s}}}
steps:
- {name: build, ref: {name: builder}, with: {env: "{{ inputs.env }}"}}
- {name: approve, type: gate, needs: [build], with: {timeout: 30m, onTimeout: fail}}
- name: ship
  ref: {name: shipper}
  needs: [approve]
  if: '{{ eq inputs.env "prod" }}'
  with: {image: "{{ steps.build.output.image }}"}
compensations: [{name: rollback, ref: {name: roller}, needs: [ship]}]
finally: [{name: notify, ref: {name: notifier}}]
output: {image: "{{ steps.build.output.image }}"}"""
    )

    assert errors(text) == []
    assert {code for _, _, code in warnings(text)} == {"ReferenceNotFound"}


@pytest.mark.parametrize("member", ["execution: {cache: {}}", "execution: {retry: {}}", "secrets: {a: b}"])
def test_what_only_engrams_have_is_told(member: str) -> None:
    """STY-130 STY-224: a primitive has no effect of it, and the author hears so."""
    word = member.partition(": ")[2].strip("{").partition(":")[0] if member.startswith("execution") else "secrets"
    messages = [message for _, message, _ in warnings(steps(f"{{name: x, type: condition, {member}}}"))]

    path = f"execution.{word}" if member.startswith("execution") else word
    assert messages == [f"step 'x' of type 'condition': {path} has no effect here; it only applies to Engrams"]


def test_a_stop_is_verified_by_nobody() -> None:
    """STY-216"""
    problems = warnings(steps('{name: x, type: stop, postExecution: {condition: "true"}}'))

    assert [path for path, _, _ in problems] == ["spec.steps[0].postExecution"]
    assert not warnings(steps('{name: x, type: gate, postExecution: {condition: "true"}}'))
