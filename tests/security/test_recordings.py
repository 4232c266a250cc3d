"""Recordings of packets contain nothing that is to be hidden, and take no memory without limit."""

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.services.story.engrams.storage import FOLDER
from perdure.services.story.streams.recording import LARGEST_BUFFER, PacketRecorder
from perdure.streams.inlet import Counters
from perdure.streams.stream_messages import make_message

RUN = {"namespace": "default", "name": "calls"}


def _recorder(folder: Path, monkeypatch: pytest.MonkeyPatch, *fields: str) -> PacketRecorder:
    monkeypatch.setenv(FOLDER, str(folder))
    return PacketRecorder({"hear": {"mode": "payload", "redactFields": list(fields)}}, RUN, lambda shown: shown)


def _written(folder: Path) -> list[Any]:
    file = folder / "recordings" / "default" / "calls" / "hear" / "packets.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_fields_are_hidden_in_lists_and_in_the_binary_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STR-096 STR-041."""
    recorder = _recorder(tmp_path, monkeypatch, "payload.people.email", "payload.token")
    payload = {"people": [{"email": "a@example.org"}, {"email": "b@example.org", "n": 1}], "token": "planted"}
    text = json.dumps(payload, separators=(",", ":")).encode()
    recorder.add("hear", make_message("1", 0, payload=payload, binary=text), Counters())
    recorder.write()

    (shown,) = _written(tmp_path)
    assert shown["payload"]["people"] == [{"email": "[REDACTED]"}, {"email": "[REDACTED]", "n": 1}]
    assert shown["payload"]["token"] == "[REDACTED]"
    assert shown["binary"]["payload"] == "[REDACTED]"


def test_what_waits_to_be_written_has_a_limit_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, counters = _recorder(tmp_path, monkeypatch), Counters()
    message = make_message("1", 0, binary=bytes(8 * 1024 * 1024))
    for _ in range(20):
        recorder.add("hear", message, counters)
    assert counters.recorded == LARGEST_BUFFER // message.size
    recorder.write()
    recorder.add("hear", message, counters)
    recorder.write()
    assert len(_written(tmp_path)) == counters.recorded
