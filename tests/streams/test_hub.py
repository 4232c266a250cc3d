"""The hub by itself: metadata, traces, errors, heartbeats, timeouts, watermarks, and data that templates read."""

from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.story.plan.stream_settings import read_settings
from perdure.kernel.json_values import jsontext
from perdure.services.story.engrams import storage
from perdure.services.story.streams.expressions import TopologyTemplates
from perdure.streams.gates import WORK_OF_A_PACKET
from perdure.streams.guards import HubCapacity, HubGuards
from perdure.streams.hub import Hub
from perdure.streams.hub_metadata import is_sampled, is_trace_context, own_metadata
from perdure.streams.inlet import Packet
from perdure.streams.notices import EVERY, MOST_SUBJECTS
from perdure.streams.stream_graph import SECOND, Settings, StreamStep, Topology
from perdure.streams.stream_messages import make_message
from perdure.streams.views import moment_of
from tests.streams.test_settings import program
from tests.streams.test_simulation import RUN

INPUTS = {"limit": 2}


def hub(*steps: StreamStep, families: frozenset[str] | None = None, **texts: dict[str, Any]) -> Hub:
    """A hub of these steps. `texts` are the `if` and `runtime` of steps, by name."""
    none: dict[str, Any] = {"if": "", "runtime": None, "when": []}
    templates = {step.name: {**none, **texts.get(step.name, {})} for step in steps}
    made = Hub(Topology(steps), TopologyTemplates(templates, INPUTS, families), RUN)
    for step in steps:
        made.connect(step.name, 0)
    return made


def line(settings: Settings | None = None, **below: Any) -> tuple[StreamStep, StreamStep]:
    settings = settings or Settings()
    return StreamStep("a", settings=settings), StreamStep("b", needs=("a",), settings=settings, **below)


def taken(made: Hub, step: str, now: int = 0) -> list[Packet]:
    packets = []
    while (packet := made.take(step, now)) is not None:
        packets.append(packet)
        made.acknowledge(step, packet.position, now)
    return packets


def test_metadata_of_the_engine_cannot_be_written_by_others() -> None:
    """STR-046: what a packet from outside says of the run does not count, for workers and for templates."""
    made = hub(
        *line(condition=True),
        b={"if": '{{ eq (index packet.metadata "current-step-id") (index packet.metadata "mine") }}'},
    )
    forged = {"storyrun-name": "other", "current-step-id": "z", "mine": "b"}
    made.receive("b", make_message("1", 0, payload=1, metadata=forged), 0)

    (packet,) = taken(made, "b")
    assert packet.message.metadata == {"mine": "b"}
    assert own_metadata(packet.message, RUN, "b") == {
        "mine": "b",
        "storyrun-name": "run",
        "storyrun-namespace": "default",
        "current-step-id": "b",
    }


@pytest.mark.parametrize(
    ("tracing", "expected"),
    [
        ({"enabled": True}, 100),
        ({"enabled": True, "sampleRate": 25}, 25),
        ({"enabled": True, "samplePolicy": "always", "sampleRate": 0}, 100),
        ({"enabled": True, "samplePolicy": "never"}, 0),
        ({"enabled": False, "samplePolicy": "always"}, None),
        ({}, None),
    ],
)
def test_journeys_are_traced_as_the_settings_say(tracing: dict[str, Any], expected: int | None) -> None:
    """STR-046 STR-099: a journey is a trace, each publication a span of it, and `rate` is exact."""
    settings = read_settings(program(), {"observability": {"tracing": tracing}})
    made = hub(*line(settings))
    contexts = []
    for number in range(100):
        made.publish("a", make_message(str(number), 0, payload=number), 0)
        (packet,) = taken(made, "b")
        contexts.append(packet.message.trace)

    if expected is None:
        assert set(contexts) == {""}
        return
    assert all(map(is_trace_context, contexts)) and len(set(contexts)) == 100
    assert sum(map(is_sampled, contexts)) == expected


def test_random_sampling_is_about_its_rate_and_the_same_when_a_packet_comes_again() -> None:
    """STR-099."""
    settings = read_settings(
        program(), {"observability": {"tracing": {"enabled": True, "samplePolicy": "random", "sampleRate": 30}}}
    )
    runs = []
    for _ in range(2):
        made = hub(*line(settings))
        contexts = []
        for number in range(400):
            made.publish("a", make_message(str(number), 0, payload=number), 0)
            contexts += [packet.message.trace for packet in taken(made, "b")]
        runs.append(contexts)

    assert runs[0] == runs[1]
    assert 80 <= sum(map(is_sampled, runs[0])) <= 160


def test_a_trace_goes_on_from_step_to_step_and_from_outside() -> None:
    """STR-046 STR-099: the trace stays, the span changes; a packet from outside may bring a trace."""
    steps = (*line(), StreamStep("c", needs=("b",)))
    made = hub(*steps)
    brought = f"00-{'a' * 32}-{'b' * 16}-01"
    made.receive("b", make_message("1", 0, payload=1, metadata={"traceparent": brought}), 0)
    (packet,) = taken(made, "b")
    assert packet.message.trace == brought

    made.publish("b", packet.message, 0, begins=False)
    (below,) = taken(made, "c")
    assert below.message.trace.startswith(f"00-{'a' * 32}-") and below.message.trace != brought
    made.receive("b", make_message("2", 0, payload=1, metadata={"traceparent": "nonsense"}), 0)
    assert [packet.message.trace for packet in taken(made, "b")] == [""]


def test_errors_are_messages_that_steps_may_filter() -> None:
    """STR-086: they flow like data, are counted, and end nothing."""
    only_errors = StreamStep("errors", needs=("a",), condition=True)
    made = hub(*line(), only_errors, errors={"if": '{{ eq packet.kind "error" }}'})
    made.publish("a", make_message("1", 0, payload={"n": 1}), 0)
    made.publish("a", make_message("2", 0, kind="error", payload={"version": "v1", "message": "no"}), 0)

    assert [packet.message.kind for packet in taken(made, "b")] == ["data", "error"]
    assert [packet.message.id for packet in taken(made, "errors")] == ["2"]
    assert made.inlets["a"].counters.errors == 1 and made.inlets["a"].counters.published == 2
    assert made.closed == set()


def test_heartbeats_are_no_traffic() -> None:
    """STR-087: they reach nobody and are not counted."""
    made = hub(*line())
    for kind in ("heartbeat", "noop"):
        assert made.publish("a", make_message("1", 0, kind=kind), 0)
        assert made.receive("b", make_message("2", 0, kind=kind), 0)

    assert taken(made, "b") == []
    assert made.inlets["a"].counters.published == made.inlets["b"].counters.received == 0


@pytest.mark.parametrize(
    ("settings", "reason", "after"),
    [
        (Settings(message_timeout=10 * SECOND), "timeout", 10),
        (Settings(message_timeout=10 * SECOND, max_age=5 * SECOND), "expired", 5),
        (Settings(message_timeout=10 * SECOND, max_age=0), "timeout", 10),
        (Settings(message_timeout=10 * SECOND, at_least_once=True, replay="memory"), "", 0),
        (
            Settings(message_timeout=10 * SECOND, at_least_once=True, replay="memory", retention=30 * SECOND),
            "expired",
            30,
        ),
    ],
)
def test_a_message_that_cannot_be_delivered_in_time_is_given_up(settings: Settings, reason: str, after: int) -> None:
    """STR-061 STR-065 STR-071: what is delivered at least once is kept until its retention is over."""
    made = hub(*line(settings))
    made.lose("b", 0)
    made.publish("a", make_message("1", 0, payload=1), 0)
    made.tick((after or 1) * SECOND - 1)
    assert made.inlets["b"].counters.dropped == {}
    made.tick((after or 10_000) * SECOND)

    counters = made.inlets["b"].counters
    assert counters.dropped == ({reason: 1} if reason else {})
    assert counters.received == counters.delivered + sum(counters.dropped.values()) + len(made.inlets["b"].waiting)


def test_a_flush_goes_in_order_and_stops_where_the_worker_is_lost_again() -> None:
    """STR-072: what was not handed over stays, in front of what comes later; what waited for a worker is counted."""
    made = hub(*line(Settings(at_least_once=True, replay="memory", flow="none")))
    made.lose("b", 0)
    for number in range(5):
        made.publish("a", make_message(str(number), 0, payload=number), 0)
    made.connect("b", 0)
    first = [made.take("b", 0) for _ in range(2)]
    assert first[0] is not None and made.acknowledge("b", first[0].position, 0)
    made.lose("b", 0)
    made.publish("a", make_message("5", 0, payload=5), 0)
    made.connect("b", 0)

    assert [packet.message.id for packet in taken(made, "b")] == ["1", "2", "3", "4", "5"]
    assert made.inlets["b"].counters.flushed == 6
    made.publish("a", make_message("6", 0, payload=6), 0)
    assert len(taken(made, "b")) == 1 and made.inlets["b"].counters.flushed == 6


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        (
            "",
            [
                {"metadata": {"bubu.envelope.timestamp_ms": "7000"}},
                {"metadata": {"bubu.envelope.timestamp_ms": "5000"}},
            ],
        ),
        ("metadata.taken", [{"metadata": {"taken": "7000"}}, {"metadata": {"taken": "never"}}, {}]),
        ("audio.timestamp_ms", [{"audio": {"payload": b"x", "timestampMs": 7000}, "payload": None}]),
        ("payload.at", [{"payload": {"at": 7000}}, {"payload": {"at": 6999}}, {"payload": "text"}]),
    ],
)
def test_the_watermark_is_the_largest_event_time(source: str, messages: list[dict[str, Any]]) -> None:
    """STR-098: from wherever the settings say; what has no event time moves nothing."""
    watermark = {"enabled": True, "timestampSource": source} if source else {"enabled": True}
    made = hub(*line(read_settings(program(), {"observability": {"watermark": watermark}})))
    for number, members in enumerate(messages):
        made.publish("a", make_message(str(number), 1000, **{"payload": {}, **members}), 0)

    assert made.inlets["b"].counters.watermark == 7 * SECOND


@pytest.mark.parametrize("policy", ["controller", "error"])
def test_templates_read_offloaded_data_where_the_policy_allows_it(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STR-053: a reference in a payload is read for `if` and `runtime`, or they fail for that packet."""
    monkeypatch.setenv(storage.FOLDER, str(tmp_path))
    reference = storage.put({}, "default", "family", "step", "note", {"text": "long"})
    families = frozenset({"family"}) if policy == "controller" else None
    made = hub(*line(runtime=True), families=families, b={"runtime": {"said": "{{ upper packet.payload.note.text }}"}})
    made.publish("a", make_message("1", 0, payload={"note": reference}), 0)
    made.publish("a", make_message("2", 0, payload={"note": {"text": "short"}}), 0)

    inputs = [packet.message.inputs for packet in taken(made, "b")]
    assert inputs == ([b'{"said":"LONG"}'] if policy == "controller" else []) + [b'{"said":"SHORT"}']
    assert made.inlets["b"].counters.dropped == ({} if policy == "controller" else {"expression_error": 1})


def test_the_templates_of_one_packet_share_a_budget_of_counted_work() -> None:
    """They are evaluated on the event loop: two nested loops over the inputs stopped every other run for a minute."""
    text = "{{ range .packet.payload.xs }}{{ range $.packet.payload.xs }}{{ end }}{{ end }}true"
    below = [StreamStep(f"b{number}", needs=("a",), condition=True) for number in range(50)]
    made = hub(StreamStep("a"), *below, families=None, **{step.name: {"if": text} for step in below})

    made.publish("a", make_message("", 0, payload={"xs": list(range(2_000))}, message_id="large"), 0)
    assert made.gates.work <= 2 * WORK_OF_A_PACKET
    assert [made.inlets[step.name].counters.dropped for step in below] == [{"expression_error": 1}] * 50

    made.publish("a", make_message("", 0, payload={"xs": [1, 2]}, message_id="small"), 0)
    assert all(made.take(step.name, 0) is not None for step in below), "a small packet passes"


def test_a_payload_is_read_once_for_all_steps_that_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    below = [StreamStep(f"b{number}", needs=("a",), condition=True) for number in range(50)]
    texts = {step.name: {"if": "{{ eq .packet.payload.n 1 }}"} for step in below}
    made = hub(StreamStep("a"), *below, families=None, **texts)
    reads: list[bytes] = []
    decode = jsontext.decode

    def counted(text: bytes) -> Any:
        reads.append(text)
        return decode(text)

    monkeypatch.setattr(jsontext, "decode", counted)

    made.publish("a", make_message("", 0, payload={"n": 1}, message_id="1"), 0)

    assert len(reads) <= 2
    assert all(made.take(step.name, 0) is not None for step in below)


@pytest.mark.parametrize("value", ["9" * 4_000, 1e308, -1, "soon", None, [1]])
def test_a_time_out_of_range_moves_no_watermark(value: Any) -> None:
    """STR-098: it could not be stored, and the topology would end."""
    assert moment_of(make_message("1", 5, payload={"at": value}), "payload.at") == 0
    assert moment_of(make_message("1", 5, payload={"at": 7}), "payload.at") == 7_000


def test_all_chunks_of_a_frame_may_have_one_id() -> None:
    """STR-082 STR-131: the frame is taken once, whole; a chunk that comes after it is the same frame again."""
    made = hub(*line(Settings(at_least_once=True, replay="memory")))

    def send(index: int) -> bool:
        envelope = {"stream_id": "s", "chunk_id": "c", "chunk_index": index, "chunk_count": 2}
        message = make_message("", 0, message_id="frame", binary=b"ab"[index : index + 1], envelope=envelope)
        return made.publish("a", message, 0, is_explicit=True)

    assert [send(1), send(0), send(1), send(0)] == [True, True, False, False]
    (packet,) = taken(made, "b")
    assert packet.message.binary is not None and packet.message.binary.payload == b"ab"


def test_what_was_chosen_as_an_id_is_known_for_long() -> None:
    """STR-131: also without durable replay, a source that is started again repeats nothing."""
    made = hub(*line(Settings(at_least_once=True, replay="memory", max_messages=1 << 20)))
    for _ in range(2):
        for number in range(20_000):
            made.publish("a", make_message("", 0, message_id=str(number), payload=1), 0, is_explicit=True)

    assert made.inlets["b"].counters.received == 20_000


def test_errors_with_many_texts_are_told_together() -> None:
    """STR-048 STR-102: a text that contains what was in the packet is not one event for every packet."""
    made = hub(*line(condition=True), b={"if": "{{ fail packet.payload.text }}"})
    for number in range(500):
        made.publish("a", make_message(str(number), 0, payload={"text": f"no {number}"}), 0)
    notices = made.notices.take(0) + made.notices.take(EVERY)

    assert made.inlets["b"].counters.dropped == {"expression_error": 500}
    assert len(notices) <= MOST_SUBJECTS + 2 and sum(notice.count for notice in notices) == 500


def test_what_a_step_did_not_acknowledge_is_not_acknowledged_by_its_end() -> None:
    """STR-100 STR-133: what was handed over stays counted as that; what had waited is dropped."""
    made = hub(*line(Settings(at_least_once=True, replay="memory")))
    for number in range(4):
        made.publish("a", make_message(str(number), 0, payload=number), 0)
    first, _ = made.take("b", 0), made.take("b", 0)
    assert first is not None and made.acknowledge("b", first.position, 0)
    made.close("b", 0)

    counters = made.inlets["b"].counters
    assert (counters.received, counters.delivered, counters.acked) == (4, 2, 1)
    assert counters.dropped == {"cancelled": 2} and made.inlets["b"].state.acked == {"": 1}


def test_topologies_wait_for_room_in_the_order_in_which_they_came() -> None:
    """STR-078: nothing of another topology is given up; a small one does not overtake."""
    guards, limit = HubGuards(), HubCapacity(10, 5)
    woken: list[str] = []

    def ask(run: str, streams: int, buffers: int) -> bool:
        return guards.admit(run, HubCapacity(streams, buffers), limit, lambda: woken.append(run))

    assert ask("a", 6, 3) and not ask("b", 6, 1) and not ask("c", 1, 1)
    assert guards.used == (6, 3)
    guards.leave("a")
    assert woken[0] == "b" and not ask("c", 1, 1) and ask("b", 6, 1)
    assert woken[-1] == "c" and ask("c", 1, 1)
    assert not ask("d", 1, 4), "buffers are counted too"
    guards.leave("d")
    guards.leave("b")
    assert ask("e", 9, 4) and guards.used == (10, 5)
