"""Recordings of packets: JSON lines in the storage folder, sampled and redacted before they are written (STR-096).

    recordings/NAMESPACE/RUN/STEP/packets.jsonl               STEP is the publisher
    recordings/NAMESPACE/RUN/STEP/packets-UNTIL.jsonl         kept until then, in milliseconds
    recordings/.runs/ID                                       NAMESPACE/RUN, to find the recordings of a removed run

With `retentionSeconds` the file is replaced from time to time, and what was written before has a date. It is removed
after that date by the next process that records anything, and with its run.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import random
from typing import Any

from perdure.kernel.file_modes import SETTING, folder_mode, private_mode
from perdure.kernel.json_values import jsontext
from perdure.services.story import RECORDED_RUNS, recordings_of
from perdure.services.story.engrams.storage import FOLDER, make_folders
from perdure.streams.hub_metadata import own_metadata
from perdure.streams.inlet import Counters
from perdure.streams.stream_messages import StreamMessage

FILE = "packets.jsonl"
MOST_BUFFERED = 10_000
LARGEST_BUFFER = 64 * 1024 * 1024  # bytes that wait to be written
REDACTED = "[REDACTED]"
PARTS = 8  # files that what is kept for a time is divided into
SWEEP_EVERY = 60.0  # seconds
LARGEST_TAIL = 1024 * 1024  # bytes of the end of a step's recordings, for who wants the latest packets only

_ENVELOPE = ("kind", "messageId", "timestamp", "metadata", "envelope")


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
        self._run = run
        self._folder = recordings_of(run["namespace"], run["name"])
        self._redact = redact
        self._messages: dict[str, list[StreamMessage]] = {}
        self._bytes = 0
        self._swept_at = 0.0
        self._is_noted = False
        self._begun: dict[str, float] = {}  # when the file of a step was begun

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
        messages = self._messages.setdefault(step, [])
        if len(messages) < MOST_BUFFERED and self._bytes + message.size <= LARGEST_BUFFER:
            messages.append(message)
            self._bytes += message.size
            counters.recorded += 1

    def _shown(self, step: str, message: StreamMessage, recording: Mapping[str, Any]) -> dict[str, Any]:
        shown = {**message.json(), "metadata": own_metadata(message, self._run, step)}
        if recording.get("mode") == "metadata":
            shown = {name: shown[name] for name in _ENVELOPE if name in shown}
        redacted: dict[str, Any] = self._redact(redact_fields(shown, recording.get("redactFields") or ()))
        return redacted

    def write(self, *, is_last: bool = False) -> None:
        """Append what was collected to the files, and remove what was kept long enough."""
        if not self._settings:
            return
        pending, self._messages, self._bytes = self._messages, {}, 0
        if pending:
            self._note_run()
        for step, messages in pending.items():
            mode = private_mode(os.environ.get(SETTING, ""))
            folder = self._folder / step
            make_folders(folder, folder_mode(mode))
            handle = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
            with os.fdopen(handle, "ab") as file:
                for message in messages:
                    file.write(jsontext.encode(self._shown(step, message, self._settings[step])) + b"\n")
        now = time.time()
        for step, recording in self._settings.items():
            if retention := recording.get("retentionSeconds"):
                self._date(step, retention, now, is_last=is_last)
        if now - self._swept_at >= SWEEP_EVERY:
            self._swept_at = now
            remove_expired(self._folder.parent.parent, now)

    def _note_run(self) -> None:
        """Have the recordings found when the run is removed."""
        if self._is_noted or not self._run.get("uid"):
            return
        mode = private_mode(os.environ.get(SETTING, ""))
        note = recordings_of(RECORDED_RUNS, self._run["uid"])
        make_folders(note.parent, folder_mode(mode))
        with os.fdopen(os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
            file.write(f"{self._run['namespace']}/{self._run['name']}")
        self._is_noted = True

    def _date(self, step: str, retention: float, now: float, *, is_last: bool) -> None:
        """Give the file of a step a date, if it is old enough or the last one; one of an earlier process at once."""
        file = self._folder / step / FILE
        begun = self._begun.get(step, 0.0)
        if is_last or now - begun >= retention / PARTS:
            self._begun[step] = now
            until = round((now + retention) * 1_000)
            while (dated := file.with_name(f"packets-{until}.jsonl")).exists():
                until += 1  # a file that was dated in the same millisecond is kept
            with suppress(FileNotFoundError):
                file.rename(dated)


def redact_fields(shown: dict[str, Any], paths: Any) -> dict[str, Any]:
    """The packet without what is at these paths. A binary frame that mirrors a payload says the same: it goes, too."""
    for path in paths:
        names = str(path).split(".")
        if _replace(shown, names) and names[0] == "payload" and isinstance(shown.get("binary"), dict):
            shown["binary"]["payload"] = REDACTED
    return shown


def _replace(value: Any, path: list[str]) -> bool:
    if isinstance(value, list):
        return sum(_replace(item, path) for item in value) > 0
    if not isinstance(value, dict):
        return False
    if path[0] == "metadata" and len(path) > 1 and isinstance(value.get("metadata"), dict):
        key = ".".join(path[1:])  # keys of metadata have dots
        if key in value["metadata"]:
            value["metadata"][key] = REDACTED
            return True
    if path[0] not in value:
        return False
    if len(path) == 1:
        value[path[0]] = REDACTED
        return True
    return _replace(value[path[0]], path[1:])


def remove_expired(folder: Path, now: float) -> None:
    """Remove what was kept long enough, of all runs."""
    for file in folder.glob("*/*/*/packets-*.jsonl"):
        if _until(file) <= now:
            with suppress(OSError):
                file.unlink()


def _until(file: Path) -> float:
    text = file.stem.removeprefix("packets-")
    return int(text) / 1_000 if text.isdigit() else float("inf")


def recorded_packets(shown: Any) -> list[dict[str, Any]]:
    """The recorded packets of a run, given what is shown of it; runs of other languages have none."""
    if not isinstance(shown, dict) or shown.get("kind") != "StoryRun":
        return []
    return list(read_recordings(shown["metadata"]["namespace"], shown["metadata"]["name"]))


def latest_packets(shown: Any, most: int) -> list[dict[str, Any]]:
    """The latest recorded packets of a run, the latest first, each with its step. Only the ends of files are read."""
    if most < 1 or not isinstance(shown, dict) or shown.get("kind") != "StoryRun":
        return []
    folder = recordings_of(shown["metadata"]["namespace"], shown["metadata"]["name"])
    now = time.time()
    packets: list[dict[str, Any]] = []
    for step in sorted(folder.iterdir()) if folder.is_dir() else ():
        lines = _last_lines(_files_of(step, now), most)
        packets += [{"step": step.name, **jsontext.decode(line)} for line in lines]
    packets.sort(key=lambda packet: packet.get("timestamp", 0), reverse=True)
    return packets[:most]


def _files_of(step: Path, now: float) -> list[Path]:
    """The files with recordings of a step that are still kept, the oldest first."""
    dated = sorted((file for file in step.glob("packets-*.jsonl") if _until(file) > now), key=_until)
    return [*dated, step / FILE]


def _last_lines(files: list[Path], most: int) -> list[bytes]:
    """Whole lines, the last first; of a file only its end is read."""
    lines: list[bytes] = []
    for path in reversed(files):
        with suppress(FileNotFoundError), path.open("rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - LARGEST_TAIL)
            file.seek(begin)
            whole = file.read().split(b"\n")[1 if begin else 0 : -1]  # behind the last newline a line is being written
            lines += reversed(whole[-most:])
        if len(lines) >= most:
            break
    return lines[:most]


def read_recordings(namespace: str, run: str) -> Iterator[dict[str, Any]]:
    """The recorded packets of a run, step by step in the order in which they were published, each with its step."""
    now = time.time()
    folder = recordings_of(namespace, run)
    for step in sorted(folder.iterdir()) if folder.is_dir() else ():
        for file in _files_of(step, now):
            with suppress(FileNotFoundError), file.open("rb") as lines:
                for line in lines:
                    if line.endswith(b"\n"):  # else it is being written
                        yield {"step": step.name, **jsontext.decode(line)}
