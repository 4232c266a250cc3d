"""Settings of streaming steps: how they are merged and what they mean; and what admission says about them."""

from typing import Any

import pytest

from perdure.dialects.story.plan.compiler import load
from perdure.dialects.story.plan.stream_settings import entry_of, merge_settings, read_settings, transport_name
from perdure.kernel.json_values import jsontext
from perdure.streams.hub import Hub
from perdure.streams.inlet import Inlet
from perdure.streams.stream_graph import Lane, Settings, StreamGraph, StreamStep, Topology
from perdure.streams.stream_messages import BadMessage, make_message
from perdure.streams.views import packet_view
from tests.dialects.story.document.resource_texts import errors, problems, story, warnings
from tests.streams.test_simulation import RUN, NoExpressions


def program(transports: list[dict[str, Any]] | None = None, **step: Any) -> Any:
    spec = {"pattern": "streaming", "steps": [{"name": "a", "ref": "e", **step}], "transports": transports or []}
    bundle = {"story": {"kind": "Story", "metadata": {"name": "s"}, "spec": spec}, "grants": []}
    return load(jsontext.encode({**bundle, "engrams": {}, "templates": {}, "stories": {}, "settings": {}}))


def test_the_transport_of_a_step() -> None:
    """STR-003 STR-006: named, or the only one, or the built-in one."""
    first, second = {"name": "x", "transportRef": "far"}, {"name": "y", "transportRef": "near"}
    for transports, step, expected in (
        ([first, second], {"transport": "y"}, "near"),
        ([first], {}, "far"),
        ([first, second], {}, "local"),
        ([], {}, "local"),
    ):
        built = program(transports, **step)
        assert transport_name(entry_of(built, built.steps["a"])) == expected


def test_settings_are_merged_member_by_member() -> None:
    """STR-004 STR-008 STR-009: later wins, and defaults are filled on the Transport's level only."""
    transport = {
        "spec": {
            "defaultSettings": {"own": {"a": 1, "b": 1}, "backpressure": {"buffer": {"maxMessages": 1, "maxBytes": 1}}},
            "streaming": {"backpressure": {"buffer": {"maxMessages": 2}}, "flowControl": {"mode": "window"}},
        }
    }
    entry = {
        "settings": {"own": {"b": 2}},
        "streaming": {"backpressure": {"buffer": {"maxAgeSeconds": 9}}, "flowControl": {"mode": "none"}},
    }
    merged = merge_settings(transport, entry)

    assert merged["own"] == {"a": 1, "b": 2}
    assert merged["backpressure"]["buffer"] == {"maxMessages": 2, "maxBytes": 1, "maxAgeSeconds": 9}
    assert merged["flowControl"]["mode"] == "none" and merged["flowControl"]["pauseThreshold"] == {"bufferPct": 90}
    assert merged["routing"] == {"maxDownstreams": 32}
    assert [lane["kind"] for lane in merged["lanes"]] == ["audio", "video", "binary", "payload"]
    plain = merge_settings({"spec": {}}, {})
    assert plain["flowControl"]["mode"] == "credits"
    assert plain["flowControl"]["ackEvery"] == {"messages": 10, "maxDelay": "250ms"}


@pytest.mark.parametrize(
    ("delivery", "expected"),
    [
        ({}, (False, "none", "none")),
        ({"semantics": "at_least_once"}, (True, "memory", "per_stream")),
        ({"replay": {"mode": "memory"}}, (True, "memory", "per_stream")),
        ({"replay": {"mode": "durable"}, "ordering": "per_partition"}, (True, "durable", "per_partition")),
        ({"semantics": "", "replay": {"mode": ""}}, (False, "none", "none")),
        ({"ordering": "per_stream"}, (False, "none", "per_stream")),
    ],
)
def test_delivery_means(delivery: dict[str, Any], expected: tuple[bool, str, str]) -> None:
    """STR-010 STR-141."""
    settings = read_settings(program(), {"delivery": delivery})

    assert (settings.at_least_once, settings.replay, settings.ordering) == expected
    assert (settings.max_messages, settings.max_bytes) == (100, 10_485_760), "STR-070"


SETTINGS = (
    "pattern: streaming\nsteps: [{{name: a, ref: e}}]\ntransports: [{{name: t, transportRef: x, streaming: {{{0}}}}}]"
)


@pytest.mark.parametrize(
    "settings",
    [
        *("backpressure: {buffer: {dropPolicy: x}}", "backpressure: {buffer: {maxMessages: -1}}"),
        *("flowControl: {mode: x}", "flowControl: {pauseThreshold: {bufferPct: 101}}"),
        *("flowControl: {ackEvery: {maxDelay: 0s}}", "delivery: {ordering: x}", "delivery: {semantics: x}"),
        *("delivery: {replay: {mode: x}}", "delivery: {replay: {checkpointInterval: 5}}", "routing: {mode: x}"),
        *("routing: {fanOut: x}", "routing: {maxDownstreams: 0}", "routing: {rules: [{action: x}]}"),
        *("routing: {rules: [{when: '{{ a == b }}'}]}", "routing: {rules: [{target: {steps: [nobody]}}]}"),
        *("routing: {rules: [{target: {steps: [a, a]}}]}", "lanes: [{name: a, kind: x}]", "lanes: [{kind: audio}]"),
        *("lanes: [{name: a, kind: audio}, {name: b, kind: audio}]", "lanes: [{name: a, kind: audio, direction: x}]"),
        *("fanIn: {mode: x}", "fanIn: {mode: quorum}", "fanIn: {mode: quorum, quorum: 0}", "fanIn: {quorum: 2}"),
        *("fanIn: {maxEntries: 0}", "partitioning: {mode: x}", "partitioning: {mode: hash, key: ''}"),
        *("partitioning: {mode: hash, key: a, partitions: 0}", "lifecycle: {strategy: x}", "recording: {mode: x}"),
        *("recording: {sampleRate: 101}", "observability: {tracing: {samplePolicy: x}}", "unknown: 1"),
    ],
)
def test_every_bound_of_the_settings_is_checked(settings: str) -> None:
    """STR-015 STR-016 STR-017 STR-018, the eighth thing to be shown."""
    assert errors(story(SETTINGS.format(settings)))


@pytest.mark.parametrize(
    ("settings", "doubt"),
    [
        ("delivery: {semantics: at_least_once}", "memory is used"),
        ("partitioning: {mode: hash}", "one partition"),
        ("partitioning: {mode: preserve, partitions: 3}", "no effect"),
        ("flowControl: {pauseThreshold: {bufferPct: 40}, resumeThreshold: {bufferPct: 50}}", "in turn"),
    ],
)
def test_what_is_hardly_meant_is_a_warning(settings: str, doubt: str) -> None:
    """STR-010 STR-018 STR-075."""
    text = story(SETTINGS.format(settings))

    assert not errors(text)
    assert any(doubt in str(warning) for warning in warnings(text))


@pytest.mark.parametrize(
    "spec",
    [
        "steps: [{name: g, type: gate}]",
        "steps: [{name: g, type: wait, with: {until: '{{ inputs.x }}'}}]",
        "steps: [{name: a, ref: e}]\nfinally: [{name: g, type: gate}]",
        "steps: [{name: a, ref: e}, {name: b, ref: e, with: {x: '{{ steps.a.y }}'}}]",
        "steps: [{name: a, ref: e, with: {x: '{{ now }}'}}]",
        "steps: [{name: a, ref: e, runtime: text}]",
        "steps: [{name: a, ref: e, requires: [steps.a.b]}]",
        "steps: [{name: a, ref: e, postExecution: {condition: 'true'}}]",
        "steps: [{name: a, ref: e, execution: {cache: {enabled: true}}}]",
        "steps: [{name: a, ref: e, needs: [b]}, {name: b, ref: e, needs: [a]}]",
        "steps: [{name: a, ref: e}]\nfinally: [{name: f, ref: e, if: '{{ packet.kind }}'}]",
    ],
)
def test_what_a_streaming_story_must_not_have(spec: str) -> None:
    """STR-011 STR-012 STR-013 STR-019."""
    assert errors(story(f"pattern: realtime\n{spec}"))


def test_fan_outs_and_quorums_that_cannot_be_are_refused() -> None:
    """STR-019 STR-138: at most 64 downstreams, whatever the Transport says; a quorum of more steps than are joined."""
    below = "".join(f"\n- {{name: s{number}, ref: e, needs: [a]}}" for number in range(64))
    wide = f"pattern: streaming\nsteps:\n- {{name: a, ref: e}}{below}"
    assert not errors(story(wide))
    more = wide + "\n- {name: more, ref: e, needs: [a]}"
    assert [message for _, message, _ in errors(story(more))] == ["step 'a' has 65 downstream steps; the limit is 64"]
    joined = (
        "pattern: streaming\ntransports: [{name: t, transportRef: x, streaming: {fanIn: {mode: quorum, quorum: 3}}}]"
    )
    joined += "\nsteps: [{name: a, ref: e}, {name: b, ref: e, needs: [a]}, {name: j, ref: e, needs: [a, b]}]"
    reported = [(path, message) for path, message, _ in errors(story(joined))]
    assert reported == [("spec.steps[2]", "step 'j' joins 2 steps; a quorum of 3 never comes")]


def test_what_changes_with_every_packet_is_read_in_runtime() -> None:
    """STR-013: the refusal says where."""
    text = story("pattern: streaming\nsteps: [{name: a, ref: e}, {name: b, ref: e, with: {x: '{{ steps.a.y }}'}}]")
    (problem,) = [problem for problem in problems(text) if "steps" in problem.message]
    assert "`runtime`" in problem.hint


def test_only_needs_makes_edges() -> None:
    """STR-001 STR-127: what templates read of other steps makes no cycle."""
    spec = "steps: [{name: a, ref: e, if: '{{ steps.b.x }}'}, {name: b, ref: e, needs: [a]}]"
    assert not errors(story(f"pattern: streaming\n{spec}"))
    assert errors(story(spec)), "in a batch Story it is a cycle"


def test_a_transport_may_have_the_condition_of_the_published_one() -> None:
    """STR-017: a warning there, an error in a Story."""
    text = """
apiVersion: transport.bubustack.io/v1alpha1
kind: Transport
metadata: {name: t}
spec:
  driver: local
  supportedBinary: [application/json]
  streaming: {routing: {rules: [{name: r, when: '{{ packet.kind == "x" }}', action: deny}]}}
"""
    assert not errors(text) and any("never matches" in str(warning) for warning in warnings(text))
    assert problems(text)


@pytest.mark.parametrize(
    ("formats", "problem"),
    [
        ("supportedAudio: [{name: opus}, {name: g711-mu}], supportedVideo: [{name: raw-yuv420}]", ""),
        ("supportedAudio: [{name: vorbis}]", 'unsupported codec "vorbis"'),
        ("supportedAudio: [{name: h264}]", 'unsupported codec "h264"'),
        ("supportedVideo: [{name: H264}]", "did you mean 'h264'"),
        ("supportedBinary: [json]", "is not a MIME type"),
    ],
)
def test_codec_names_are_closed_lists(formats: str, problem: str) -> None:
    """STR-005."""
    text = f"""
apiVersion: transport.bubustack.io/v1alpha1
kind: Transport
metadata: {{name: t}}
spec: {{driver: local, {formats}}}
"""
    messages = [message for _, message, _ in errors(text)]
    assert (problem in messages[0]) if problem else not messages


@pytest.mark.parametrize("replaced", [False, True])
def test_default_lanes_have_the_caps_of_the_buffer(replaced: bool) -> None:
    """STR-009 STR-123: so a cap that nobody wrote drops nothing; a Story's own lanes are taken as written."""
    own = {"lanes": [{"name": "sound", "kind": "audio", "maxMessages": 2}]} if replaced else {}
    merged = merge_settings({"spec": {}}, {"streaming": {"backpressure": {"buffer": {"maxMessages": 7}}, **own}})

    if replaced:
        assert merged["lanes"] == own["lanes"]
        assert read_settings(program(), merged).lanes == (Lane("audio", messages=2),)
    else:
        assert {(lane["maxMessages"], lane["maxBytes"]) for lane in merged["lanes"]} == {(7, 10_485_760)}
        assert read_settings(program(), merged).lanes == ()


def test_direct_edges() -> None:
    """STR-049: one downstream, neither end gated, and the same above it."""
    steps = (StreamStep("a"), StreamStep("b", needs=("a",)), StreamStep("c", needs=("b",), condition=True))
    graph = StreamGraph(Topology(steps))

    assert graph.is_direct("a") and not graph.is_direct("b")


def test_lanes_have_caps_of_their_own_and_directions() -> None:
    """STR-056 STR-123: only caps that were written drop, before the buffer's."""
    settings = Settings(max_messages=5, lanes=(Lane("binary", messages=1),))
    inlet = Inlet(StreamStep("a", settings=settings))
    for number in range(2):
        inlet.offer(make_message(str(number), 0, binary=b"x"), "", 1, 0)
    for number in range(5):
        inlet.offer(make_message(str(number), 0, payload=number), "", 1, 0)
    assert inlet.counters.dropped == {"lane_full": 1, "buffer_full": 1}

    silent = StreamStep("a", settings=Settings(lanes=(Lane("payload", "subscribe"),)))
    with pytest.raises(BadMessage, match="may not publish"):
        Hub(Topology((silent,)), NoExpressions(), RUN).publish("a", make_message("1", 0, payload=1), 0)


def test_credits_are_granted_in_portions_and_windows_at_once() -> None:
    """STR-074 STR-075."""
    for flow, after_one, after_two in (("credits", 0, 2), ("window", 1, 2)):
        settings = Settings(flow=flow, credit_messages=2, ack_messages=2, at_least_once=True, replay="memory")
        inlet = Inlet(StreamStep("a", settings=settings))
        for number in range(6):
            inlet.offer(make_message(str(number), 0, payload=number), "", 1, 0)
        taken = [inlet.take(1) for _ in range(3)]
        assert [packet is None for packet in taken] == [False, False, True]
        inlet.grant(1)
        inlet.acknowledge(1, 2)
        assert inlet.credits == after_one
        inlet.acknowledge(2, 3)
        assert inlet.credits == after_two
    settings = Settings(credit_messages=1, at_least_once=True, replay="memory")
    inlet = Inlet(StreamStep("a", settings=settings))
    inlet.offer(make_message("1", 0, payload=1), "", 1, 0)
    inlet.take(0)
    inlet.grant(0)
    inlet.acknowledge(1, 1)
    assert inlet.grant_due == 250_000, "at the latest after maxDelay"


def test_what_templates_see_of_a_packet() -> None:
    """STR-045 STR-139: absent members are empty."""
    metadata = {"participant.identity": "ada", "type": "speech"}
    view = packet_view(make_message("1", 7, payload={"text": "hi"}, metadata=metadata))

    assert (view["kind"], view["type"], view["identity"], view["text"]) == ("data", "speech", "ada", "hi")
    assert (view["history"], view["messageId"], view["timestamp"], view["partition"]) == ("", "1", 7, "")
