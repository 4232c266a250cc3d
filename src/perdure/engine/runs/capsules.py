"""A run in one file: its document, its history and values, what its tasks printed, and the runs below it.

Each line is a digest and a JSON object. The digest is that of the digest before it and of the object's bytes, and the
last line says how many there are: a byte that was changed, a line that is missing and one too many are found. Whoever
keeps the last digest can tell whether a file is the one that was written.

`capsule_writer.py` writes it; here it is read, anywhere, without the store that it comes from.
"""

import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec

from perdure.engine.runs import run_views
from perdure.engine.runs.run_documents import begin_folding, former_documents, moves_in
from perdure.engine.tasks.task_log_writer import read_lines
from perdure.kernel.codec import decode_turns, fold
from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.lazy_regex import lazy_regex
from perdure.kernel.outcomes import Status
from perdure.kernel.turn import MissingValues
from perdure.kernel.versions import RECORDS, read_pinned
from perdure.stores.records import (
    LogRecord,
    ProgramRecord,
    Record,
    RunRecord,
    StreamRowRecord,
    TaskLogRecord,
    ValueRecord,
)

FORMAT = 2
"""1: without what tasks printed, and without the numbers of streams."""

FIRST = b"perdure capsule"  # what the first digest continues
PIECE = 3 << 16  # bytes of Base64, which takes three at a time
KINDS: dict[str, type[Record]] = {
    "document": ProgramRecord,
    "run": RunRecord,
    "value": ValueRecord,
    "events": LogRecord,
    "stream": StreamRowRecord,
    "log": TaskLogRecord,
}


STATUSES = frozenset(status.value for status in Status)
LAST_INSTANT = 253_402_300_799_999_999  # of the year 9999
_RUN_ID = lazy_regex(r"[0-9a-z][0-9a-z.-]*")


class CapsuleDamaged(PerdureError):
    """The file is not a capsule, or it was changed since it was written."""

    code = "CAPSULE-DAMAGED"
    hint = "Export the run again with `perdure export RUN`."


class CapsuleHead(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The first line."""

    perdure: str = "capsule"
    format: int = FORMAT
    engine: str  # the version that wrote it
    records: int = RECORDS
    run: RunId
    name: str
    language: str
    namespace: str
    exported_at: Instant


@dataclass(frozen=True, slots=True)
class Capsule:
    head: CapsuleHead
    records: Sequence[Record]
    checksums: dict[RunId, str]  # of the state that each run is folded to
    redacted: Sequence[str]  # places where something was replaced
    lines_left_out: int  # of what tasks printed, because there was too much of it
    digest: str  # the last one


# Lines.


def _base64(value: bytes) -> bytes | msgspec.Raw:
    """What becomes Base64 when it is written; a long value in pieces, none of which holds the interpreter for long."""
    if len(value) <= PIECE:
        return value
    pieces = [binascii.b2a_base64(value[at : at + PIECE], newline=False) for at in range(0, len(value), PIECE)]
    return msgspec.Raw(b'"%b"' % b"".join(pieces))


class CapsuleChain:
    """Lines, each with a digest that continues the one before."""

    def __init__(self) -> None:
        self._digest = sha256(FIRST).digest()
        self.count = 0

    def record(self, kind: str, record: Record) -> bytes:
        members = msgspec.structs.astuple(record)  # bytes become Base64
        return self.add({kind: [_base64(member) if isinstance(member, bytes) else member for member in members]})

    def add(self, content: dict[str, Any]) -> bytes:
        text = msgspec.json.encode(content)
        continued = sha256(self._digest)
        continued.update(text)
        self._digest = continued.digest()
        self.count += 1
        return self._digest.hex().encode() + b" " + text + b"\n"

    def check(self, line: bytes) -> Any:
        digest, _, text = line[:-1].partition(b" ")
        self._digest = sha256(self._digest + text).digest()
        self.count += 1
        if digest != self._digest.hex().encode() or not line.endswith(b"\n"):
            raise CapsuleDamaged(f"line {self.count} was changed, or the file is not a capsule")
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CapsuleDamaged(f"line {self.count} cannot be read: {error}") from None

    @property
    def digest(self) -> str:
        return self._digest.hex()


# Reading.


def read_capsule(lines: Iterable[bytes]) -> Capsule:
    """The capsule, checked line by line."""
    chain = CapsuleChain()
    head: CapsuleHead | None = None
    records: list[Record] = []
    checksums: dict[RunId, str] = {}
    redacted: list[str] = []
    lines_left_out = 0
    is_complete = False
    for line in lines:
        if is_complete:
            raise CapsuleDamaged(f"there is something behind the last line, which is line {chain.count}")
        content = chain.check(line)
        try:
            if head is None:
                head = _read_head(content)
                continue
            kind = next(iter(content))
            match kind:
                case "end":
                    is_complete = content["end"] == chain.count - 1
                case "redacted":
                    redacted = msgspec.convert(content["redacted"], list[str])
                case "lines_left_out":
                    lines_left_out = msgspec.convert(content["lines_left_out"], int)
                case "checksum":
                    checksums[RunId(content["run"])] = content["checksum"]
                case _:
                    records.append(msgspec.convert(content[kind], KINDS[kind]))
        except (msgspec.ValidationError, KeyError, TypeError, StopIteration, binascii.Error) as error:
            raise CapsuleDamaged(f"line {chain.count} cannot be read: {error}") from None
    if head is None or not is_complete:
        raise CapsuleDamaged("the end of the capsule is missing" if head is not None else "the file is empty")
    _check_records(head, records)
    return Capsule(head, records, checksums, redacted, lines_left_out, chain.digest)


def _check_records(head: CapsuleHead, records: Sequence[Record]) -> None:
    """They belong together, and a store can take them: whoever wrote the file chose the digests too."""
    runs = {record.id: record for record in records if isinstance(record, RunRecord)}
    if head.run not in runs or not _RUN_ID.fullmatch(head.run):  # it becomes a word of a command
        raise CapsuleDamaged("the capsule does not have the run that its first line names")
    of_runs = (LogRecord, ValueRecord, StreamRowRecord, TaskLogRecord)
    if not {record.run for record in records if isinstance(record, of_runs)} <= runs.keys():
        raise CapsuleDamaged("the capsule has events or values of a run that it does not have")
    programs = {record.digest for record in records if isinstance(record, ProgramRecord)}
    instants = [head.exported_at, *_instants_of_logs(records)]
    for run in runs.values():
        instants += filter(None, (run.created_at, run.ended_at, run.due, run.on_wall))
        if run.program not in programs or run.status not in STATUSES:
            raise CapsuleDamaged(f"run {run.id} has no document, or a status that there is not")
    numbers = [part for record in records for part in msgspec.structs.astuple(record) if isinstance(part, int)]
    if not all(abs(number) < 1 << 63 for number in numbers):
        raise CapsuleDamaged("the capsule has a number that is out of range")
    if not all(0 <= instant <= LAST_INSTANT for instant in instants):
        raise CapsuleDamaged("the capsule has a time that is out of range")


def _instants_of_logs(records: Sequence[Record]) -> Iterator[Instant]:
    """The times of all lines that tasks printed."""
    for record in records:
        if isinstance(record, TaskLogRecord):
            try:
                lines = read_lines(record)
            except msgspec.DecodeError as error:
                raise CapsuleDamaged(f"the output of task {record.task} cannot be read: {error}") from None
            if len(lines) != record.lines or record.first_line < 1:
                raise CapsuleDamaged(f"the output of task {record.task} has another number of lines")
            yield from (line.at for line in lines)


def _read_head(content: Any) -> CapsuleHead:
    newest = {"format": FORMAT, "records": RECORDS}
    versions = content if isinstance(content, dict) else {}
    if any(isinstance(versions.get(name), int) and versions[name] > known for name, known in newest.items()):
        engine = content.get("engine")
        raise CapsuleDamaged(
            f"the capsule was written by a newer Perdure ({engine})", hint="Open it with that version, or a later one."
        )
    return msgspec.convert(content, CapsuleHead)


def check_states(capsule: Capsule, dialects: Mapping[str, Dialect]) -> None:
    """Replay each run from its first event: it comes to the state that it had where the capsule was written."""
    programs = {record.digest: record for record in capsule.records if isinstance(record, ProgramRecord)}
    logs: dict[RunId, list[tuple[int, bytes]]] = {}
    for record in capsule.records:
        if isinstance(record, LogRecord):
            logs.setdefault(record.run, []).append((record.seq, record.body))
    values = {(record.run, record.digest): record.text for record in capsule.records if isinstance(record, ValueRecord)}
    streams: dict[RunId, list[tuple[bytes, bytes]]] = {}
    for record in capsule.records:
        if isinstance(record, StreamRowRecord):
            streams.setdefault(record.run, []).append((record.key, record.body))
    for record in capsule.records:
        if isinstance(record, RunRecord):
            dialect = run_views.dialect_of(dialects, record.language)
            pinned = programs[record.program]
            try:
                program = read_pinned(dialect, pinned.language, pinned.text)
                log = logs.get(record.id, ())
                moves = moves_in([turn for _, body in log for turn in decode_turns(dialect, body)])
                former = former_documents(moves, partial(_value_of, values, record.id))
                execution = fold(begin_folding(record.id, dialect, former, program), log)
                execution.stream_rows = streams.get(record.id, [])
                if execution.stream_rows:
                    with suppress(MissingValues):
                        dialect.show_itself(execution, {})  # what cannot be read raises
            except PerdureError:
                raise
            except Exception as error:  # parsers and codecs of each language: what they raise is theirs
                raise CapsuleDamaged(f"run {record.id} cannot be replayed: {error}") from None
            if run_views.checksum(execution) != capsule.checksums.get(record.id):
                raise CapsuleDamaged(f"run {record.id} is not what it was: this version replays it to another state")


def _value_of(values: Mapping[tuple[RunId, bytes], bytes], run: RunId, digest: bytes) -> bytes:
    text = values.get((run, digest))
    if text is None:
        raise CapsuleDamaged(f"run {run} was moved from document {digest.hex()[:12]}, which is missing")
    return text
