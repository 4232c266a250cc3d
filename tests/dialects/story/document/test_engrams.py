"""Engrams, Impulses and their templates (STY-044, STY-045, sections 1.5 and 1.6)."""

from typing import Any

import pytest
import yaml

from perdure.dialects.story.plan.settings import Settings
from perdure.dialects.story.resources.resource import Resource
from tests.dialects.story.document.resource_texts import engram, errors, resource, shelf, template, warnings

INVALID = "ValidationFailed"


def text(resource: Resource) -> str:
    written: str = yaml.safe_dump(resource)
    return written


TEMPLATE = template(
    supportedModes=["job"],
    configSchema={"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
    secretSchema={"token": {"required": True}, "extra": {"mountType": "env"}},
)
GOOD: dict[str, Any] = {"with": {"url": "http://x"}, "secrets": {"token": "my-secret"}}


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        ({"templateRef": None}, "spec", "spec.templateRef.name is required"),
        ({"templateRef": "zzz"}, "spec.templateRef", "EngramTemplate 'zzz' not found"),
        (
            {"templateRef": {"name": "t", "version": "2.0.0"}},
            "spec.templateRef",
            "EngramTemplate 't' has version '1.0.0', expected '2.0.0'",
        ),
        (
            {"mode": "deployment"},
            "spec.mode",
            'workload mode "deployment" is not supported by template (supportedModes: job)',
        ),
        ({"mode": "pod"}, "spec.mode", 'unsupported value "pod" (expected job, deployment or statefulset)'),
        ({"with": [1]}, "spec.with", "spec.with must be a JSON object"),
        (
            {"with": {}},
            "spec.with",
            'the template\'s config schema does not accept this value: "url" is a required property',
        ),
        (
            {"with": {"url": 3}},
            "spec.with.url",
            'the template\'s config schema does not accept this value: url: 3 is not of type "string"',
        ),
        ({"secrets": {}}, "spec", 'secret "token" is required by the template'),
        (
            {"secrets": {"token": "a", "zzz": "b"}},
            "spec.secrets.zzz",
            'secret "zzz" is not in the template\'s secretSchema',
        ),
        ({"version": "v" * 65}, "spec.version", "must have at most 64 characters, not 65"),
        (
            {"with": {"url": "{{ packet.x }}"}},
            "spec.with.url",
            "context 'packet' is not allowed for batch-runtime templates",
        ),
        (
            {"overrides": {"retry": {"maxRetries": 11}}},
            "spec.overrides.retry.maxRetries",
            "must be between 0 and 10, not 11",
        ),
        (
            {"executionPolicy": {"tiemout": "1s"}},
            "spec.executionPolicy.tiemout",
            "unknown field 'tiemout'; did you mean 'timeout'?",
        ),
    ],
)
def test_mistakes_in_engrams(change: dict[str, Any], path: str, message: str) -> None:
    """STY-044"""
    assert errors(text(engram(**{**GOOD, **change})), shelf(TEMPLATE)) == [(path, message, INVALID)]


def test_engrams_in_order() -> None:
    """STY-044: templates in `with` are for the steps that use it (STY-010)."""
    full = engram(
        **{
            "with": {"url": "{{ inputs.url }}"},
            "secrets": {"token": "a", "extra": "b"},
            "mode": "job",
            "version": "v1",
        },
        executionPolicy={"maxRecursionDepth": 1, "timeout": "1s"},
        overrides={"cache": {"enabled": True}},
        transport={"tls": {"useDefaultTLS": True}},
    )

    assert errors(text(full), shelf(TEMPLATE)) == []
    assert [code for _, _, code in warnings(text(full), shelf(TEMPLATE))] == ["KubernetesOnly"]


def test_an_engrams_settings_have_a_largest_size() -> None:
    """STY-044"""
    resource = engram(**{**GOOD, "with": {"url": "x" * 100}})
    size = len('{"url":""}') + 100

    assert errors(text(resource), shelf(TEMPLATE), Settings.read({"engram.default-max-inline-size": size - 1})) == [
        ("spec.with", f"spec.with too large ({size} bytes > {size - 1})", INVALID)
    ]


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        ({"version": None}, "spec", "spec.version is required"),
        ({"supportedModes": None}, "spec", "spec.supportedModes is required"),
        ({"supportedModes": []}, "spec.supportedModes", "must have between 1 and 3 items, not 0"),
        (
            {"supportedModes": ["pod"]},
            "spec.supportedModes[0]",
            'unsupported value "pod" (expected job, deployment or statefulset)',
        ),
        (
            {"inputSchema": {"required": 3}},
            "spec.inputSchema",
            'error validating input schema: required: 3 is not of type "array"',
        ),
        (
            {"secretSchema": {"a": {"mountType": "disk"}}},
            "spec.secretSchema.a.mountType",
            'unsupported value "disk" (expected env, file or both)',
        ),
        ({"declaredOutputKeys": "x"}, "spec.declaredOutputKeys", 'must be a list, not "x"'),
        ({"outputSchemas": {}}, "spec.outputSchemas", "unknown field 'outputSchemas'; did you mean 'outputSchema'?"),
    ],
)
def test_mistakes_in_templates(change: dict[str, Any], path: str, message: str) -> None:
    """Section 1.5"""
    assert errors(text(template(**change))) == [(path, message, INVALID)]


def test_a_template_with_everything() -> None:
    """STY-004: image and the like are kept for whoever runs containers."""
    full = template(
        description="x",
        inputSchema={},
        outputSchema={},
        declaredOutputKeys=["a"],
        image="registry/x:1",
        execution={
            "timeout": "1m",
            "retry": {
                "recommendedMaxRetries": 2,
                "recommendedBaseDelay": "1s",
                "recommendedMaxDelay": "5s",
                "recommendedBackoff": "linear",
            },
            "job": {"recommendedTtlSecondsAfterFinished": 3},
            "resources": {"recommendedCpuRequest": "1"},
        },
    )

    assert errors(text(full)) == []
    assert [code for _, _, code in warnings(text(full))] == ["KubernetesOnly"]


IMPULSE_TEMPLATE = resource("ImpulseTemplate", "cron", {"version": "1", "supportedModes": ["deployment"]})
STORY = resource("Story", "tale", {"version": "v1", "steps": [{"name": "a", "type": "condition"}]})


def impulse(**spec: Any) -> str:
    return text(resource("Impulse", "tick", {"templateRef": "cron", "storyRef": "tale", **spec}))


@pytest.mark.parametrize(
    ("change", "path", "message", "code"),
    [
        ({"templateRef": {}}, "spec", "spec.templateRef.name is required", INVALID),
        ({"templateRef": "zzz"}, "spec.templateRef", "ImpulseTemplate 'zzz' not found", INVALID),
        ({"storyRef": None}, "spec", "spec.storyRef.name is required", "StoryReferenceInvalid"),
        (
            {"storyRef": {"name": "tale", "namespace": "far"}},
            "spec.storyRef",
            "cross-namespace StoryRef references are not allowed",
            "StoryReferenceInvalid",
        ),
        (
            {"workload": {"mode": "job"}},
            "spec.workload.mode",
            "spec.workload.mode must not be 'job' for Impulse (must be always-on)",
            INVALID,
        ),
        (
            {"workload": {"mode": "statefulset"}},
            "spec.workload.mode",
            'workload mode "statefulset" is not supported by template (supportedModes: deployment)',
            INVALID,
        ),
        ({"mapping": "x"}, "spec.mapping", "spec.mapping must be a JSON object", INVALID),
        (
            {"mapping": {"a": "{{ inputs.x }}"}},
            "spec.mapping.a",
            "context 'inputs' is not allowed for impulse-mapping templates",
            INVALID,
        ),
        (
            {"deliveryPolicy": {"dedupe": {"mode": "key"}}},
            "spec.deliveryPolicy.dedupe",
            "spec.deliveryPolicy.dedupe.keyTemplate is required when mode is key",
            INVALID,
        ),
        (
            {"deliveryPolicy": {"dedupe": {"mode": "token", "keyTemplate": "x"}}},
            "spec.deliveryPolicy.dedupe.keyTemplate",
            "spec.deliveryPolicy.dedupe.keyTemplate is only allowed when mode is key",
            INVALID,
        ),
        (
            {"deliveryPolicy": {"dedupe": {"keyTemplate": "x"}}},
            "spec.deliveryPolicy.dedupe.keyTemplate",
            "spec.deliveryPolicy.dedupe.keyTemplate is only allowed when mode is key",
            INVALID,
        ),
        (
            {"deliveryPolicy": {"dedupe": {"mode": "key", "keyTemplate": "{{ steps.a }}"}}},
            "spec.deliveryPolicy.dedupe.keyTemplate",
            "context 'steps' is not allowed for trigger-key templates",
            INVALID,
        ),
        (
            {"deliveryPolicy": {"retry": {"maxAttempts": -1}}},
            "spec.deliveryPolicy.retry.maxAttempts",
            "must be 0 or more, not -1",
            INVALID,
        ),
        (
            {"deliveryPolicy": {"retry": {"baseDelay": "-1s"}}},
            "spec.deliveryPolicy.retry.baseDelay",
            "baseDelay must not be negative",
            INVALID,
        ),
        (
            {"deliveryPolicy": {"retry": {"maxDelay": "soon"}}},
            "spec.deliveryPolicy.retry.maxDelay",
            "invalid maxDelay: 'soon' is not a duration (expected e.g. 1h30m or 500ms)",
            INVALID,
        ),
        (
            {"deliveryPolicy": {"retry": {"baseDelay": "2s", "maxDelay": "1s"}}},
            "spec.deliveryPolicy.retry.maxDelay",
            "maxDelay must not be smaller than baseDelay",
            INVALID,
        ),
        ({"throttle": {"maxInFlight": -1}}, "spec.throttle.maxInFlight", "must be 0 or more, not -1", INVALID),
        ({"throttle": {"ratePerSecond": -1}}, "spec.throttle.ratePerSecond", "must be 0 or more, not -1", INVALID),
        ({"throttle": {"burst": -1}}, "spec.throttle.burst", "must be 0 or more, not -1", INVALID),
        ({"secrets": {"a": "b"}}, "spec.secrets.a", 'secret "a" is not in the template\'s secretSchema', INVALID),
    ],
)
def test_mistakes_in_impulses(change: dict[str, Any], path: str, message: str, code: str) -> None:
    """STY-045"""
    assert errors(impulse(**change), shelf(IMPULSE_TEMPLATE, STORY)) == [(path, message, code)]


def test_impulses_in_order() -> None:
    """STY-013, STY-045"""
    full = impulse(
        mapping={"a": "{{ context.body.x }}"},
        deliveryPolicy={
            "dedupe": {"mode": "key", "keyTemplate": "{{ inputs.id }}-{{ story.name }}-{{ impulse.namespace }}"},
            "retry": {"maxAttempts": 0, "baseDelay": "1s", "maxDelay": "0s", "backoff": "constant"},
        },
        throttle={"maxInFlight": 0, "ratePerSecond": 5, "burst": 10},
        workload={"mode": "deployment"},
        service={"type": "ClusterIP"},
    )

    assert errors(full, shelf(IMPULSE_TEMPLATE, STORY)) == []
    assert errors(impulse(), shelf(IMPULSE_TEMPLATE, STORY)) == []


def test_a_story_that_an_impulse_starts_may_come_later() -> None:
    """STY-045"""
    assert [code for _, _, code in warnings(impulse(), shelf(IMPULSE_TEMPLATE))] == ["ReferenceNotFound"]
    pinned = impulse(storyRef={"name": "tale", "version": "v2"})
    assert warnings(pinned, shelf(IMPULSE_TEMPLATE, STORY)) == [
        ("spec.storyRef", "Story 'default/tale' has version 'v1', expected 'v2'", "StoryReferenceInvalid")
    ]


def test_delivery_of_an_impulse_template_is_judged_as_well() -> None:
    """STY-154"""
    spec = {"version": "1", "supportedModes": ["deployment"], "deliveryPolicy": {"dedupe": {"mode": "key"}}}

    assert errors(text(resource("ImpulseTemplate", "x", spec))) == [
        ("spec.deliveryPolicy.dedupe", "spec.deliveryPolicy.dedupe.keyTemplate is required when mode is key", INVALID)
    ]
