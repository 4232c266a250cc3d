"""Recordings of packets: JSON lines in the storage folder, sampled and redacted before they are written (STR-096).

recordings/NAMESPACE/RUN/STEP/packets.jsonl        STEP is the publisher
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from random import random
from typing import Any

from perdure.kernel import jsontext
from perdure.kernel.file_modes import SETTING, folder_mode, private_mode
from perdure.services.story.engrams.storage import FOLDER
from perdure.streams.inlet import Counters
from perdure.streams.stream_messages import StreamMessage

FILE = "packets.jsonl"
MOST_BUFFERED = 10_000
REDACTED = "[REDACTED]"


class PacketRecorder:
    """Collects packets; who owns it writes them, in a thread."""

    def __init__(
        self, settings: Mapping[str, Mapping[str, Any]], run: Mapping[str, str], redact: Callable[[Any], Any]
    ) -> None:
        self._settings = {
            step: recording
            for step, recording in settings.items()
            if (recording.get("mode") or "off") != "off" and os.environ.get(FOLDER)
        }
        self._folder = Path(os.environ.get(FOLDER, "")) / "recordings" / run["namespace"] / run["name"]
        self._redact = redact
        self._lines: dict[str, list[dict[str, Any]]] = {}

    @property
    def is_on(self) -> bool:
        return bool(self._settings)

    def add(self, step: str, message: StreamMessage, counters: Counters) -> None:
        recording = self._settings.get(step)
        if recording is None or message.kind in ("heartbeat", "noop"):
            return
        rate = recording.get("sampleRate")
        if rate is not None and random() * 100 >= rate:
            return
        lines = self._lines.setdefault(step, [])
        if len(lines) < MOST_BUFFERED:
            lines.append(self._shown(message, recording))
            counters.recorded += 1

    def _shown(self, message: StreamMessage, recording: Mapping[str, Any]) -> dict[str, Any]:
        shown = message.json()
        if recording.get("mode") == "metadata":
            shown = {
                name: shown[name]
                for name in ("kind", "messageId", "timestamp", "metadata", "envelope")
                if name in shown
            }
        for path in recording.get("redactFields") or ():
            _replace(shown, str(path).split("."))
        redacted: dict[str, Any] = self._redact(shown)
        return redacted

    def write(self) -> None:
        """Append what was collected to the files."""
        pending, self._lines = self._lines, {}
        for step, lines in pending.items():
            mode = private_mode(os.environ.get(SETTING, ""))
            folder = self._folder / step
            folder.mkdir(folder_mode(mode), parents=True, exist_ok=True)
            handle = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
            with os.fdopen(handle, "ab") as file:
                file.write(b"".join(jsontext.encode(line) + b"\n" for line in lines))


def _replace(value: Any, path: list[str]) -> None:
    for name in path[:-1]:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, dict) and path[-1] in value:
        value[path[-1]] = REDACTED
