"""Transports of Stories, streaming settings, Transports and grants (STY-040, STY-046, section 15)."""

# ruff: noqa: E501 - one mistake per line reads best

import pytest

from tests.dialects.story.document.resource_texts import errors, story

INVALID = "ValidationFailed"


def transports(written: str, step: str = "{name: a, ref: e}") -> str:
    return story(f"pattern: streaming\nsteps: [{step}]\ntransports: {written}")


def settings(written: str) -> str:
    return transports(f"[{{name: t, transportRef: hub, streaming: {written}}}]")


AT = "spec.transports[0].streaming"
QUARTER = "must be between 0 and 100, not 101"

REFUSED: list[tuple[str, str, str]] = [
    (transports("[{transportRef: hub}]"), "spec.transports[0]", "a transport must have a name"),
    (transports("[{name: ' ', transportRef: hub}]"), "spec.transports[0]", "a transport must have a name"),
    (transports("[{name: t}]"), "spec.transports[0]", "transport 't' must set transportRef"),
    (
        transports("[{name: x, transportRef: hub}, {name: x, transportRef: hub}]"),
        "spec.transports[1].name",
        'transport name "x" is duplicated; names must be unique per story',
    ),
    (
        transports("[{name: t, transportRef: hub, setings: {}}]"),
        "spec.transports[0].setings",
        "unknown field 'setings'; did you mean 'settings'?",
    ),
    (
        settings("{backpressure: {buffer: {maxMessages: -1}}}"),
        f"{AT}.backpressure.buffer.maxMessages",
        "must be 0 or more, not -1",
    ),
    (
        settings("{backpressure: {buffer: {maxBytes: -1}}}"),
        f"{AT}.backpressure.buffer.maxBytes",
        "must be 0 or more, not -1",
    ),
    (
        settings("{backpressure: {buffer: {maxAgeSeconds: -1}}}"),
        f"{AT}.backpressure.buffer.maxAgeSeconds",
        "must be 0 or more, not -1",
    ),
    (
        settings("{backpressure: {buffer: {dropPolicy: all}}}"),
        f"{AT}.backpressure.buffer.dropPolicy",
        'unsupported value "all" (expected drop_newest or drop_oldest)',
    ),
    (
        settings("{flowControl: {mode: fast}}"),
        f"{AT}.flowControl.mode",
        'unsupported value "fast" (expected none, credits or window)',
    ),
    (
        settings("{flowControl: {initialCredits: {messages: -1}}}"),
        f"{AT}.flowControl.initialCredits.messages",
        "must be 0 or more, not -1",
    ),
    (
        settings("{flowControl: {ackEvery: {maxDelay: 0s}}}"),
        f"{AT}.flowControl.ackEvery.maxDelay",
        "must be a positive duration: duration must be positive",
    ),
    (
        settings("{flowControl: {pauseThreshold: {bufferPct: 101}}}"),
        f"{AT}.flowControl.pauseThreshold.bufferPct",
        QUARTER,
    ),
    (
        settings("{flowControl: {resumeThreshold: {bufferPct: 101}}}"),
        f"{AT}.flowControl.resumeThreshold.bufferPct",
        QUARTER,
    ),
    (
        settings("{delivery: {ordering: total}}"),
        f"{AT}.delivery.ordering",
        'unsupported value "total" (expected none, per_stream or per_partition)',
    ),
    (
        settings("{delivery: {semantics: always}}"),
        f"{AT}.delivery.semantics",
        'unsupported value "always" (expected best_effort or at_least_once)',
    ),
    (
        settings("{delivery: {replay: {mode: disk}}}"),
        f"{AT}.delivery.replay.mode",
        'unsupported value "disk" (expected none, memory or durable)',
    ),
    (
        settings("{delivery: {replay: {retentionSeconds: -1}}}"),
        f"{AT}.delivery.replay.retentionSeconds",
        "must be 0 or more, not -1",
    ),
    (
        settings("{delivery: {replay: {checkpointInterval: 0s}}}"),
        f"{AT}.delivery.replay.checkpointInterval",
        "must be a positive duration: duration must be positive",
    ),
    (settings("{routing: {mode: mesh}}"), f"{AT}.routing.mode", 'unsupported value "mesh" (expected auto, hub or p2p)'),
    (
        settings("{routing: {fanOut: wide}}"),
        f"{AT}.routing.fanOut",
        'unsupported value "wide" (expected sequential or parallel)',
    ),
    (settings("{routing: {maxDownstreams: 0}}"), f"{AT}.routing.maxDownstreams", "must be 1 or more, not 0"),
    (
        settings("{routing: {rules: [{action: maybe}]}}"),
        f"{AT}.routing.rules[0].action",
        'unsupported value "maybe" (expected allow or deny)',
    ),
    (
        settings("{routing: {rules: [{when: '{{ nope }}'}]}}"),
        f"{AT}.routing.rules[0].when",
        "function 'nope' is not defined",
    ),
    (
        settings("{routing: {rules: [{when: '{{ context.x }}'}]}}"),
        f"{AT}.routing.rules[0].when",
        "context 'context' is not allowed for realtime-runtime templates",
    ),
    (
        settings("{routing: {rules: [{target: {steps: ['']}}]}}"),
        f"{AT}.routing.rules[0].target.steps[0]",
        "a target step must not be empty",
    ),
    (
        settings("{routing: {rules: [{target: {steps: [zzz]}}]}}"),
        f"{AT}.routing.rules[0].target.steps[0]",
        'unknown step "zzz"',
    ),
    (
        settings("{routing: {rules: [{target: {steps: [a, a]}}]}}"),
        f"{AT}.routing.rules[0].target.steps[1]",
        'duplicate step "a"',
    ),
    (settings("{lanes: [{kind: audio}]}"), f"{AT}.lanes[0]", "a lane must have a name"),
    (settings("{lanes: [{name: l}]}"), f"{AT}.lanes[0]", "a lane must have a kind"),
    (
        settings("{lanes: [{name: l, kind: audio}, {name: l, kind: video}]}"),
        f"{AT}.lanes[1].name",
        'duplicate lane name "l"',
    ),
    (
        settings("{lanes: [{name: l, kind: audio}, {name: m, kind: audio}]}"),
        f"{AT}.lanes[1].kind",
        'duplicate lane kind "audio"',
    ),
    (
        settings("{lanes: [{name: l, kind: audio, direction: up}]}"),
        f"{AT}.lanes[0].direction",
        'unsupported value "up" (expected publish, subscribe or bidirectional)',
    ),
    (
        settings("{lanes: [{name: l, kind: audio, maxBytes: -1}]}"),
        f"{AT}.lanes[0].maxBytes",
        "must be 0 or more, not -1",
    ),
    (settings("{fanIn: {mode: quorum}}"), f"{AT}.fanIn", "quorum must be set when mode=quorum"),
    (settings("{fanIn: {mode: all, quorum: 2}}"), f"{AT}.fanIn.quorum", "quorum is only valid when mode=quorum"),
    (settings("{fanIn: {mode: quorum, quorum: 0}}"), f"{AT}.fanIn.quorum", "must be 1 or more, not 0"),
    (settings("{fanIn: {maxEntries: 0}}"), f"{AT}.fanIn.maxEntries", "must be 1 or more, not 0"),
    (settings("{fanIn: {timeoutSeconds: -1}}"), f"{AT}.fanIn.timeoutSeconds", "must be 0 or more, not -1"),
    (
        settings("{partitioning: {mode: random}}"),
        f"{AT}.partitioning.mode",
        'unsupported value "random" (expected none, preserve or hash)',
    ),
    (settings("{partitioning: {key: ' '}}"), f"{AT}.partitioning.key", "must not be empty"),
    (settings("{partitioning: {partitions: 0}}"), f"{AT}.partitioning.partitions", "must be 1 or more, not 0"),
    (
        settings("{lifecycle: {strategy: stop}}"),
        f"{AT}.lifecycle.strategy",
        'unsupported value "stop" (expected rolling, drain_cutover or blue_green)',
    ),
    (
        settings("{lifecycle: {drainTimeoutSeconds: -1}}"),
        f"{AT}.lifecycle.drainTimeoutSeconds",
        "must be 0 or more, not -1",
    ),
    (settings("{observability: {tracing: {sampleRate: 101}}}"), f"{AT}.observability.tracing.sampleRate", QUARTER),
    (
        settings("{observability: {tracing: {samplePolicy: some}}}"),
        f"{AT}.observability.tracing.samplePolicy",
        'unsupported value "some" (expected rate, random, always or never)',
    ),
    (
        settings("{recording: {mode: all}}"),
        f"{AT}.recording.mode",
        'unsupported value "all" (expected off, metadata or payload)',
    ),
    (settings("{recording: {sampleRate: 101}}"), f"{AT}.recording.sampleRate", QUARTER),
    (settings("{recording: {redactFields: ['']}}"), f"{AT}.recording.redactFields[0]", "must not be empty"),
    (settings("{recoding: {}}"), f"{AT}.recoding", "unknown field 'recoding'; did you mean 'recording'?"),
]


@pytest.mark.parametrize(("text", "path", "message"), REFUSED, ids=lambda value: value[-60:])
def test_mistakes_in_transports(text: str, path: str, message: str) -> None:
    """STY-040"""
    assert errors(text) == [(path, message, INVALID)]


def test_a_step_names_a_transport_that_is_declared() -> None:
    """STY-040"""
    step = "{name: a, ref: e, transport: t}"

    assert errors(transports("[{name: t, transportRef: hub}]", step)) == []
    assert errors(transports("[{name: other, transportRef: hub}]", step)) == [
        ("spec.steps[0].transport", "step 'a' references unknown transport \"t\"", "TransportReferenceInvalid")
    ]
    assert errors(story(f"steps: [{step}]")) == [
        ("spec.steps[0].transport", "step 'a' references unknown transport \"t\"", "TransportReferenceInvalid")
    ]


FULL = """{backpressure: {buffer: {maxMessages: 0, maxBytes: 1, maxAgeSeconds: 2, dropPolicy: drop_oldest}},
 flowControl: {mode: credits, initialCredits: {messages: 1, bytes: 2}, ackEvery: {messages: 10, bytes: 0, maxDelay: 250ms}, pauseThreshold: {bufferPct: 100}, resumeThreshold: {bufferPct: 0}},
 delivery: {ordering: per_stream, semantics: at_least_once, replay: {mode: durable, retentionSeconds: 60, checkpointInterval: 5s}},
 routing: {mode: hub, fanOut: parallel, maxDownstreams: 64, rules: [{name: r, when: '{{ eq packet.kind steps.a.x inputs.y }}', action: deny, target: {steps: [a]}}, {action: allow}]},
 lanes: [{name: l, kind: audio, direction: publish, maxMessages: 1, maxBytes: 1}, {name: c, kind: control}],
 fanIn: {mode: quorum, quorum: 2, timeoutSeconds: 1, maxEntries: 1}, partitioning: {mode: hash, key: a.b, partitions: 4, sticky: true},
 lifecycle: {strategy: drain_cutover, drainTimeoutSeconds: 5, maxInFlight: 0},
 observability: {metrics: {enabled: true}, tracing: {enabled: true, sampleRate: 50, samplePolicy: rate}, watermark: {enabled: true, timestampSource: x}},
 recording: {mode: payload, sampleRate: 100, retentionSeconds: 0, redactFields: [a.b]}}"""


def test_every_setting_is_accepted() -> None:
    """STY-040"""
    assert errors(settings(FULL.replace("\n", ""))) == []
    assert errors(transport("driver: grpc\nsupportedBinary: [a/b]\nstreaming: " + FULL.replace("\n", ""))) == []


def transport(spec: str) -> str:
    lines = "".join(f"  {line}\n" for line in spec.splitlines())
    return f"apiVersion: transport.bubustack.io/v1alpha1\nkind: Transport\nmetadata: {{name: hub}}\nspec:\n{lines}"


ONE = "supportedBinary: [application/json]"


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        (ONE, "spec", "spec.driver is required"),
        (f"driver: ' '\n{ONE}", "spec", "spec.driver is required"),
        (
            "driver: grpc",
            "spec",
            "a transport needs at least one capability: supportedAudio, supportedVideo, supportedBinary",
        ),
        (
            "driver: grpc\nsupportedAudio: [{sampleRateHz: 3}]",
            "spec.supportedAudio[0].name",
            "a codec must have a name",
        ),
        (
            "driver: grpc\nsupportedAudio: [{name: opus}, {name: opus}]",
            "spec.supportedAudio[1].name",
            'duplicate codec "opus"',
        ),
        (
            "driver: grpc\nsupportedAudio: [{name: opus, channels: -1}]",
            "spec.supportedAudio[0].channels",
            "must be 0 or more, not -1",
        ),
        ("driver: grpc\nsupportedVideo: [{name: ''}]", "spec.supportedVideo[0].name", "a codec must have a name"),
        (
            "driver: grpc\nsupportedBinary: [json]",
            "spec.supportedBinary[0]",
            '"json" is not a MIME type (expected type/subtype)',
        ),
        ("driver: grpc\nsupportedBinary: [a/b, A/B]", "spec.supportedBinary[1]", 'duplicate MIME type "A/B"'),
        (
            f"driver: grpc\n{ONE}\nstreaming: {{fanIn: {{mode: quorum}}}}",
            "spec.streaming.fanIn",
            "quorum must be set when mode=quorum",
        ),
        (f"driver: grpc\n{ONE}\ndrivr: x", "spec.drivr", "unknown field 'drivr'; did you mean 'driver'?"),
    ],
)
def test_mistakes_in_a_transport_resource(spec: str, path: str, message: str) -> None:
    """STY-046"""
    assert errors(transport(spec)) == [(path, message, INVALID)]


def test_a_transport_resource() -> None:
    """STY-046: steps that rules name are known to Stories only."""
    spec = f"provider: bobravoz\ndriver: grpc\nsupportedAudio: [{{name: opus, sampleRateHz: 48000, channels: 2}}]\nsupportedVideo: [{{name: h264, profile: x}}]\n{ONE}\nconfigSchema: {{}}\ndefaultSettings: {{}}\nstreaming: {{routing: {{rules: [{{target: {{steps: [any]}}}}]}}}}"

    assert errors(transport(spec)) == []


def grant(spec: str) -> str:
    return f"apiVersion: policy.bubustack.io/v1alpha1\nkind: ReferenceGrant\nmetadata: {{name: g}}\nspec: {spec}\n"


FROM = "from: [{group: bubustack.io, kind: Story, namespace: a}]"
TO = "to: [{group: bubustack.io, kind: Engram}]"


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        (f"{{{FROM}}}", "spec", "spec.to is required"),
        (f"{{from: [], {TO}}}", "spec.from", "must have at least 1 items, not 0"),
        (f"{{from: [{{group: x, kind: y}}], {TO}}}", "spec.from[0]", "spec.from[0].namespace is required"),
    ],
)
def test_mistakes_in_grants(spec: str, path: str, message: str) -> None:
    """STY-251 and section 1.9"""
    assert errors(grant(spec)) == [(path, message, INVALID)]


def test_a_grant() -> None:
    assert errors(grant(f"{{{FROM}, {TO}}}")) == []
