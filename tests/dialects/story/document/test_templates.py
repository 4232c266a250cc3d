"""Templates in Stories: what they may read and call in each place, and which steps they may name."""

# ruff: noqa: E501 - one mistake per line reads best

import pytest

from perdure.dialects.story.plan.settings import Settings
from tests.dialects.story.document.resource_texts import errors, steps, story, warnings

INVALID = "ValidationFailed"


def with_(text: str, **also: str) -> str:
    more = "".join(f"\n{name}: {value}" for name, value in also.items())
    return story(f"steps: [{{name: a, ref: e}}, {{name: b, ref: e, with: {{x: {{y: ['{text}']}}}}}}]" + more)


AT = "spec.steps[1].with.x.y[0]"

REFUSED: list[tuple[str, str, str]] = [
    (with_("{{ inputs.x"), AT, "this action is not closed: `}}` is missing"),
    (with_("{{ nope 3 }}"), AT, "function 'nope' is not defined"),
    (with_('{{ env "HOME" }}'), AT, "template expression uses disallowed function 'env'"),
    (with_('{{ expandenv "$HOME" }}'), AT, "template expression uses disallowed function 'expandenv'"),
    (with_('{{ getHostByName "x" }}'), AT, "template expression uses disallowed function 'getHostByName'"),
    (with_("{{ trigger.x }}"), AT, "unknown context 'trigger' is not allowed for batch-runtime templates"),
    (with_("{{ packet.x }}"), AT, "context 'packet' is not allowed for batch-runtime templates"),
    (
        with_("{{ steps.a.output }}", pattern="streaming"),
        AT,
        "context 'steps' is not allowed for realtime-static templates",
    ),
    (
        with_("{{ packet.text }}", pattern="realtime"),
        AT,
        "context 'packet' is not allowed for realtime-static templates",
    ),
    (
        steps("{name: a, ref: e, if: '{{ packet.x }}'}"),
        "spec.steps[0].if",
        "context 'packet' is not allowed for batch-runtime templates",
    ),
    (
        steps("{name: a, ref: e, idempotencyKeyTemplate: '{{ context.x }}'}"),
        "spec.steps[0].idempotencyKeyTemplate",
        "context 'context' is not allowed for batch-runtime templates",
    ),
    (
        steps("{name: w, type: wait, with: {until: '{{ packet.x }}'}}"),
        "spec.steps[0].with.until",
        "context 'packet' is not allowed for batch-runtime templates",
    ),
    (
        steps("{name: a, ref: e, postExecution: {condition: '{{ env }}'}}"),
        "spec.steps[0].postExecution.condition",
        "template expression uses disallowed function 'env'",
    ),
    (
        steps("{name: a, ref: e}", also="output: {x: '{{ packet.x }}'}"),
        "spec.output.x",
        "context 'packet' is not allowed for story-output templates",
    ),
    (
        steps("{name: a, ref: e}", also="policy: {with: {x: '{{ packet.x }}'}}"),
        "spec.policy.with.x",
        "context 'packet' is not allowed for batch-runtime templates",
    ),
    (
        steps("{name: a, ref: e, execution: {cache: {key: '{{ steps.a }}'}}}"),
        "spec.steps[0].execution.cache.key",
        "context 'steps' is not allowed for cache-key templates",
    ),
    (
        steps("{name: a, ref: e, with: {x: {$bubuTemplate: 3}}}"),
        "spec.steps[0].with.x",
        "$bubuTemplate must be a string",
    ),
    (
        steps("{name: a, ref: e, with: {x: {$bubuTemplate: env}}}"),
        "spec.steps[0].with.x",
        "template expression uses disallowed function 'env'",
    ),
    (
        steps("{name: p, type: parallel, with: {steps: [{name: b, ref: e, with: {x: '{{ packet.x }}'}}]}}"),
        "spec.steps[0].with.steps[0].with.x",
        "context 'packet' is not allowed for batch-runtime templates",
    ),
    (
        steps("{name: x, type: executeStory, with: {storyRef: o, with: {v: '{{ packet.x }}'}}}"),
        "spec.steps[0].with.with.v",
        "context 'packet' is not allowed for batch-runtime templates",
    ),
    # STY-139: cleanup of a streaming Story follows the rules of batch
    (
        story(
            "pattern: streaming\nsteps: [{name: a, ref: e}]\nfinally: [{name: f, ref: e, with: {x: '{{ packet.x }}'}}]"
        ),
        "spec.finally[0].with.x",
        "context 'packet' is not allowed for batch-runtime templates",
    ),
]


@pytest.mark.parametrize(("text", "path", "message"), REFUSED, ids=lambda value: value[-70:])
def test_templates_that_are_refused(text: str, path: str, message: str) -> None:
    """STY-035, STY-036, STY-139, STY-193, STY-202, STY-225"""
    assert errors(text) == [(path, message, INVALID)]


@pytest.mark.parametrize("written", ['{{ template "x" }}', '{{ define "x" }}{{ end }}', '{{ block "x" . }}{{ end }}'])
def test_templates_cannot_include_others(written: str) -> None:
    """STY-035, STY-194"""
    ((path, message, code),) = errors(with_(written))

    assert (path, code) == (AT, INVALID)
    assert written.split()[1] in message


ACCEPTED = [
    with_("{{ inputs.x }} {{ .inputs.x }} {{ steps.a.output.y }} {{ now }} {{ uuidv4 }} {{ randInt 1 2 }}"),
    with_('{{ steps["a"].output }} {{ index steps "a" "output" }} {{ default 5 inputs.x | toJson }}'),
    with_("{{ inputs.x }}", pattern="streaming"),
    story(
        "pattern: streaming\nsteps: [{name: a, ref: e}, {name: b, ref: e, if: '{{ eq packet.type steps.a.x }}', runtime: {x: '{{ packet.text }} {{ steps.a.y }} {{ now }}'}}]"
    ),
    story(
        "pattern: streaming\nsteps: [{name: a, ref: e}]\nfinally: [{name: f, ref: e, with: {x: '{{ steps.a.output }} {{ now }}'}}]"
    ),
    steps("{name: a, ref: e, postExecution: {condition: '{{ gt steps.a.output.n 3 }}', failureMessage: too few}}"),
    steps("{name: a, ref: e, idempotencyKeyTemplate: 'order-{{ inputs.id }}'}"),
    steps("{name: a, ref: e}", also="output: {x: '{{ steps.a.output }}', y: '{{ now }}'}"),
    steps("{name: a, ref: e, with: {x: {$bubuTemplate: '{{ who }}', $bubuTemplateVars: {who: '{{ inputs.x }}'}}}}"),
    steps("{name: a, ref: e, with: {text: 'not a { template } at all', env: env}}"),
]


@pytest.mark.parametrize("text", ACCEPTED, ids=lambda value: value[-70:])
def test_templates_that_are_accepted(text: str) -> None:
    """STY-036, STY-193"""
    assert errors(text) == []


@pytest.mark.parametrize("function", ["now", "uuidv4", "randInt 1 2", "randAlpha 5"])
def test_time_and_chance_are_absent_in_deterministic_places(function: str) -> None:
    """STY-036, STY-202"""
    written = f"{{{{ {function} }}}}"
    deterministic = Settings.read({"templating.deterministic": True})

    assert errors(with_(written)) == []
    assert [path for path, _, _ in errors(with_(written), settings=deterministic)] == [AT]
    assert [path for path, _, _ in errors(with_(written, pattern="streaming"))] == [AT]


def test_a_template_says_where_it_is_wrong() -> None:
    """STY-035: place in the document, and in the template."""
    from tests.dialects.story.document.resource_texts import problems

    (problem,) = (
        candidate for candidate in problems(with_("{{ inputs.x }} {{ nope 3 }}")) if candidate.severity == "error"
    )

    assert (problem.line, problem.path, problem.hint) == (5, AT, "At 1:19 of the template.")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (steps("{name: a, ref: e, with: {x: '{{ steps.zzz.output }}'}}"), "spec.steps[0].with"),
        (steps("{name: s, type: sleep, if: '{{ steps.zzz.output.x }}'}"), "spec.steps[0].if"),
        (
            steps("{name: x, type: executeStory, with: {storyRef: o, with: {v: '{{ index steps \"zzz\" }}'}}}"),
            "spec.steps[0].with",
        ),
        (
            story("steps: [{name: m, ref: e, with: {x: '{{ steps.zzz.output }}'}}]\nfinally: [{name: zzz, ref: e}]"),
            "spec.steps[0].with",
        ),
    ],
)
def test_an_unknown_step_in_if_or_with_is_an_error(text: str, path: str) -> None:
    """STY-043, STY-055: a step of a later block is unknown as well."""
    ((place, message, code),) = errors(text)

    assert (place, code) == (path, INVALID)
    assert "references unknown step 'zzz' in a template" in message


@pytest.mark.parametrize(
    "text",
    [
        steps("{name: fetch-feed, ref: e}", "{name: b, ref: e, with: {x: '{{ steps.fetch_feed.output }}'}}"),
        steps(
            "{name: p, type: parallel, with: {steps: [{name: left, ref: e}]}}",
            "{name: b, ref: e, with: {x: '{{ steps.left.output }}'}}",
        ),
        story(
            "steps: [{name: m, ref: e}]\ncompensations: [{name: c, ref: e, with: {x: '{{ steps.m.output }}'}}]\nfinally: [{name: f, ref: e, if: '{{ steps.c.output.x }}'}]"
        ),
        steps("{name: a, ref: e}", also="output: {x: '{{ steps.a.output }}'}"),
        steps("{name: a, ref: e}", "{name: w, type: wait, needs: [a], with: {until: '{{ steps.a.output.x }}'}}"),
    ],
)
def test_aliases_branches_and_earlier_blocks_are_known(text: str) -> None:
    """STY-043, STY-095, STY-138, STY-196"""
    assert errors(text) == []
    assert [warning for warning in warnings(text) if warning[2] == "Doubtful"] == []


DOUBTS = [
    (
        steps("{name: w, type: wait, with: {until: '{{ steps.zzz.output.x }}'}}"),
        "spec.steps[0].with",
        "step 'w' references unknown step 'zzz' in a template",
    ),
    (
        steps("{name: a, ref: e}", "{name: w, type: wait, with: {until: '{{ steps.a.output.x }}'}}"),
        "spec.steps[1].with",
        "step 'w' references step 'a' which is not upstream",
    ),
    (
        steps("{name: a, ref: e, idempotencyKeyTemplate: '{{ steps.zzz.output }}'}"),
        "spec.steps[0].idempotencyKeyTemplate",
        "step 'a' references unknown step 'zzz' in a template",
    ),
    (
        steps("{name: a, ref: e}", also="output: {x: '{{ steps.zzz.output }}'}"),
        "spec.output",
        "the output references unknown step 'zzz' in a template",
    ),
    (
        steps("{name: a, ref: e}", "{name: b, ref: e, postExecution: {condition: '{{ steps.a.output.x }}'}}"),
        "spec.steps[1].postExecution.condition",
        "step 'b' reads step 'a' after execution, but only its own output is available there",
    ),
]


@pytest.mark.parametrize(("text", "path", "message"), DOUBTS, ids=lambda value: value[-60:])
def test_references_that_make_no_edge_are_warnings(text: str, path: str, message: str) -> None:
    """STY-043, STY-054"""
    assert errors(text) == []
    assert [warning for warning in warnings(text) if warning[2] == "Doubtful"] == [(path, message, "Doubtful")]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (steps("{name: a, ref: e, if: 'inputs.ready'}"), "spec.steps[0].if"),
        (steps("{name: a, type: wait, with: {until: 'steps.b.done'}}"), "spec.steps[0].with.until"),
        (
            steps("{name: p, type: parallel, with: {steps: [{name: a, ref: e, if: maybe}]}}"),
            "spec.steps[0].with.steps[0].if",
        ),
    ],
    ids=["if", "until", "branch"],
)
def test_a_plain_text_that_can_never_be_true_is_a_warning(text: str, path: str) -> None:
    """STY-281"""
    assert errors(text) == []
    ((where, message, _),) = [warning for warning in warnings(text) if warning[2] == "Doubtful"]
    assert where == path
    assert "can never be true" in message


@pytest.mark.parametrize("word", ["true", " YES ", "0", "n", "", "{{ inputs.ready }}"])
def test_words_for_true_and_false_are_no_warning(word: str) -> None:
    """STY-061, STY-281"""
    assert [
        warning for warning in warnings(steps(f"{{name: a, ref: e, if: {word!r}}}")) if warning[2] == "Doubtful"
    ] == []


def test_one_broken_template_does_not_hide_what_others_read() -> None:
    """STY-019"""
    text = steps("{name: a, ref: e, with: {x: '{{ nope }}', y: '{{ steps.zzz.output }}'}}")

    assert [path for path, _, _ in errors(text)] == ["spec.steps[0].with", "spec.steps[0].with.x"]
