"""Which messages may be published, and binary frames in chunks."""

from typing import Any

import msgspec
import pytest

from perdure.streams.chunks import KEPT_FOR, MOST_OPEN, ChunkAssembler
from perdure.streams.stream_messages import BadMessage, StreamMessage, make_message, read_message


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"metadata": {"a": "b"}}, "needs at least one of"),
        ({}, "needs at least one of"),
        ({"payload": 1, "kind": "a b"}, "is not a kind"),
        ({"payload": 1, "kind": "hook"}, "the hub's"),
        ({"kind": "heartbeat", "payload": 1}, "has no content"),
        ({"kind": "error"}, "needs at least one of"),
        ({"kind": "error", "binary": b"x"}, "has a payload and no frame"),
        ({"payload": 1, "message_id": " a"}, "is not a message id"),
        ({"payload": 1, "metadata": {f"k{n}": "v" for n in range(101)}}, "at most 100"),
        ({"payload": 1, "metadata": {"k": "v" * 1025}}, "more than 1024"),
        ({"payload": 1, "metadata": {" k": "v"}}, "no blanks around it"),
        ({"payload": 1, "metadata": {"k": 5}}, "maps texts to texts"),
        ({"payload": {"a": 1}, "binary": b"other"}, "the same bytes"),
        ({"inputs": {}, "binary": b"x"}, "the same bytes"),
        ({"transports": [{}], "binary": b"x"}, "the same bytes"),
        ({"payload": 1, "inputs": {}, "binary": b"2"}, "the same bytes"),
        ({"audio": b"a", "video": b"b"}, "at most one frame"),
        ({"audio": {"payload": b"a", "sampleRateHz": 7_999}}, "sample rate"),
        ({"audio": {"payload": b"a", "channels": 9}}, "1 to 8 channels"),
        ({"video": {"payload": b"a", "width": 16_385}}, "16384 pixels"),
        ({"binary": b"x" * (10 * 1024 * 1024 + 1)}, "the limit is"),
        ({"payload": "x" * (10 * 1024 * 1024)}, "the limit is"),
        ({"transports": [{}] * 11}, "at most 10"),
        ({"payload": object()}, "has no JSON form"),
        ({"payload": 1, "envelope": {"stream_id": "s", "chunk_id": "c", "chunk_index": 0, "chunk_count": 1}}, "chunk"),
    ],
)
def test_a_bad_message_is_refused_with_the_reason(members: dict[str, Any], problem: str) -> None:
    """STR-038 STR-039 STR-040 STR-041 STR-042."""
    with pytest.raises(BadMessage, match=problem):
        make_message("id", 0, **members)


def test_heartbeats_have_nothing_and_json_is_mirrored_in_binary() -> None:
    """STR-040 STR-041 STR-125."""
    assert make_message("id", 0, kind="heartbeat").kind == "heartbeat"
    assert make_message("id", 0, payload={"a": 1}, binary=b'{"a":1}').binary is not None
    assert make_message("id", 0, payload=1, inputs={}, transports=[{}], binary=b"1").binary is not None


def test_a_message_keeps_its_json_form() -> None:
    """STR-038 STR-043 STR-124: frames are base64, wire names in metadata become fields."""
    value = {
        "kind": "data",
        "messageId": "m",
        "timestamp": 5,
        "metadata": {"a": "b", "bubu.envelope.message_id": "n"},
        "binary": {"payload": "aGk=", "mimeType": "text/plain"},
    }
    message = read_message(value, "made up", 0)
    far = read_message({"payload": 1, "metadata": {"bubu.envelope.timestamp_ms": "9" * 500}}, "id", 7)

    assert far.at_ms == 7, "it could not be stored"
    assert (message.id, message.metadata, message.at_ms) == ("n", {"a": "b"}, 5)
    assert message.binary is not None and message.binary.payload == b"hi"
    assert message.json()["binary"] == {"payload": "aGk=", "mimeType": "text/plain"}
    bad: Any
    unknown = {"payload": 1, "timestamp": 10**30}, {"payload": 1, "timestamp": -1}
    for bad in ([], {"x": 1}, {"payload": 1, "kind": 5}, {"binary": {"payload": "*"}}, *unknown):
        with pytest.raises(BadMessage):
            read_message(bad, "id", 0)


def chunk(index: int, count: int = 3, data: bytes = b"ab", name: str = "c") -> StreamMessage:
    envelope = {
        "stream_id": "s",
        "chunk_id": name,
        "chunk_index": index,
        "chunk_count": count,
        "chunk_bytes": len(data),
    }
    return make_message(f"{name}-{index}", 0, binary=data, envelope=envelope)


def test_chunks_come_in_any_order_and_more_than_once() -> None:
    """STR-082 STR-083."""
    assembler = ChunkAssembler()
    assert assembler.add(chunk(2, data=b"ef"), 0) is None
    assert assembler.add(chunk(2, data=b"ef"), 0) is None
    assert assembler.add(chunk(0), 0) is None
    whole = assembler.add(chunk(1, data=b"cd"), 0)

    assert whole is not None and whole.binary is not None and whole.binary.payload == b"abcdef"
    assert whole.chunk is None and len(assembler) == 0


def test_incomplete_frames_are_bounded_and_expire() -> None:
    """STR-083: a count that changes is an error; two minutes are the limit."""
    assembler = ChunkAssembler()
    assembler.add(chunk(0), 0)
    with pytest.raises(BadMessage, match="disagree"):
        assembler.add(chunk(1, count=4), 0)
    assert assembler.expire(KEPT_FOR - 1) == 0
    assert assembler.expire(KEPT_FOR) == 1
    for number in range(MOST_OPEN):
        assembler.add(chunk(0, name=f"c{number}"), 0)
    with pytest.raises(BadMessage, match="incomplete"):
        assembler.add(chunk(0, name="one more"), 0)
    with pytest.raises(BadMessage, match="differ in their kind, metadata or mimeType"):
        assembler.add(msgspec.structs.replace(chunk(1, name="c0"), metadata={"other": "x"}), 0)
    for index, count in ((3, 3), (0, 257), (-1, 2)):
        with pytest.raises(BadMessage):
            chunk(index, count=count)
