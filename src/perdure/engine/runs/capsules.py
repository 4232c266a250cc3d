"""A run in one file: its document, its history and values, and the runs below it, to be looked at anywhere.

Each line is a digest and a JSON object. The digest is that of the digest before it and of the object's bytes, and the
last line says how many there are: a byte that was changed, a line that is missing and one too many are found. Whoever
keeps the last digest can tell whether a file is the one that was written.

Secrets of the host are in no history. What a run's language hides of its input is replaced before it is written, and
the file says where.
"""

import binascii
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.engine.decision_threads import WORK_OF_TEXT, ShortTurns, done_aside
from perdure.engine.runs import run_views
from perdure.engine.runs.run_documents import begin_folding, former_documents, moves_in, read_former
from perdure.kernel.codec import decode_turns, encode_turns, fold
from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import PerdureError
from perdure.kernel.events import Event
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, Ref, RunId
from perdure.kernel.lazy_regex import lazy_regex
from perdure.kernel.outcomes import Status
from perdure.kernel.secrets.secret_masking import Mask
from perdure.kernel.versions import RECORDS, read_pinned
from perdure.stores.protocol import RunFilter, RunRow
from perdure.stores.records import LogRecord, ProgramRecord, Record, RunRecord, ValueRecord

if TYPE_CHECKING:
    from perdure.engine.client import Client

FORMAT = 1
FIRST = b"perdure capsule"  # what the first digest continues
READ_AT_ONCE = 1 << 20  # bytes of values
PIECE = 3 << 16  # bytes of Base64, which takes three at a time
KINDS: dict[str, type[Record]] = {
    "document": ProgramRecord,
    "run": RunRecord,
    "value": ValueRecord,
    "events": LogRecord,
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
    digest: str  # the last one


# Writing.


async def write_capsule(client: "Client", run: RunId, version: str) -> AsyncIterator[bytes]:
    """The lines of the file, each with its end."""
    chain = _Chain()
    row = await client.find(run)
    yield chain.add(
        msgspec.to_builtins(
            CapsuleHead(
                engine=version,
                run=row.id,
                name=row.name,
                language=row.language,
                namespace=row.namespace,
                exported_at=client.clock.wall(),
            )
        )
    )
    programs: set[bytes] = set()
    redacted: list[str] = []
    pending = [row]
    short_turns = ShortTurns()
    while pending:
        row = pending.pop()
        pending += await client.search(RunFilter(parent=row.id))
        pinned = await client.store.program(row.program)
        assert pinned is not None, "a run keeps its document"
        if row.program not in programs:
            programs.add(row.program)
            yield await _write(chain, "document", ProgramRecord(row.program, *pinned), pinned[1])
        yield chain.record("run", _run_record(row))
        async for line in _write_history(client, row, pinned, chain, redacted):
            yield line
            await short_turns.pause()
    yield chain.add({"redacted": redacted})
    yield chain.add({"end": chain.count})


async def _write_history(
    client: "Client", row: RunRow, pinned: tuple[str, bytes], chain: "_Chain", redacted: list[str]
) -> AsyncIterator[bytes]:
    with run_views.naming(row.id):
        dialect = run_views.dialect_of(client.languages, row.language)
        mask = await run_views.mask_of_run(client.store, client.languages, row)
        rows = await client.store.history(row.id)
        large: dict[bytes, int] = {}
        former = await read_former(client.store, row.id, moves_in(await run_views.turns(client.store, dialect, row.id)))

        def prepare() -> tuple[list[tuple[int, bytes]], str]:
            kept = [(last, _redacted(row.id, dialect, last, body, mask, large, redacted)) for last, body in rows]
            program = read_pinned(dialect, *pinned)
            execution = begin_folding(row.id, dialect, former, program)
            return kept, run_views.checksum(fold(execution, kept))

        kept, checksum = await done_aside(run_views.bytes_of(rows) + WORK_OF_TEXT * len(pinned[1]), prepare)
    for last, body in kept:
        yield await _write(chain, "events", LogRecord(row.id, last, body), body)
    for digests in _portions(large):
        for digest, value in (await client.store.values(row.id, digests)).items():
            hidden = await done_aside(len(value), partial(mask.json, value))
            if hidden is not value:
                redacted.append(f"{row.id} value {digest.hex()}")
            yield await _write(chain, "value", ValueRecord(row.id, digest, hidden), hidden)
    yield chain.add({"checksum": checksum, "run": row.id})


async def _write(chain: "_Chain", kind: str, record: Record, text: bytes) -> bytes:
    """A line of the file; a long one is made in a thread."""
    return await done_aside(len(text), lambda: chain.record(kind, record))


def _portions(sizes: Mapping[bytes, int]) -> Iterator[list[bytes]]:
    """Digests of values that are read together."""
    portion: list[bytes] = []
    size = 0
    for digest, length in sizes.items():
        if portion and size + length > READ_AT_ONCE:
            yield portion
            portion, size = [], 0
        portion.append(digest)
        size += length
    if portion:
        yield portion


def _run_record(row: RunRow) -> RunRecord:
    return RunRecord(
        row.id,
        row.language,
        row.name,
        row.program,
        row.parent,
        row.labels,
        row.key,
        row.status.value,
        row.has_work,
        row.due,
        row.created_at,
        row.ended_at,
        row.stuck,
        row.on_wall,
        row.namespace,
    )


def _redacted(
    run: RunId, dialect: Dialect, last: int, body: bytes, mask: Mask, large: dict[bytes, int], redacted: list[str]
) -> bytes:
    """A row of the log without secrets; noted are the large values it refers to, and where something was hidden."""
    turns = decode_turns(dialect, body)
    for _, events in turns:
        for event in events:
            for name in event.__struct_fields__:
                large.update(_references(getattr(event, name)))
    if not mask.hides:
        return body
    number = last - sum(len(events) for _, events in turns)
    hidden_turns: list[tuple[Instant, list[Event]]] = []
    for instant, events in turns:
        hidden: list[Event] = []
        for event in events:
            number += 1
            hidden.append(_hide(event, mask))
            if hidden[-1] != event:
                redacted.append(f"{run} event {number} {type(event).__name__}")
        hidden_turns.append((instant, hidden))
    return encode_turns(hidden_turns)


def _references(value: Any) -> Iterator[tuple[bytes, int]]:
    if isinstance(value, Ref):
        yield value.digest, value.size
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _references(getattr(value, name))
    elif isinstance(value, dict):
        for member in value.values():
            yield from _references(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _references(member)


def _hide(value: Any, mask: Mask) -> Any:
    if isinstance(value, Ref):
        return value
    if isinstance(value, msgspec.Struct):
        return type(value)(*(_hide(getattr(value, name), mask) for name in value.__struct_fields__))
    if isinstance(value, str):
        return mask.text(value)
    if isinstance(value, bytes):
        try:
            jsontext.decode(value)
        except (msgspec.DecodeError, ValueError):
            return mask.raw(value) if value.isascii() else value
        return mask.json(value)
    if isinstance(value, dict):
        return {_hide(name, mask): _hide(member, mask) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_hide(member, mask) for member in value)
    return value


def _base64(value: bytes) -> bytes | msgspec.Raw:
    """What becomes Base64 when it is written; a long value in pieces, none of which holds the interpreter for long."""
    if len(value) <= PIECE:
        return value
    pieces = [binascii.b2a_base64(value[at : at + PIECE], newline=False) for at in range(0, len(value), PIECE)]
    return msgspec.Raw(b'"%b"' % b"".join(pieces))


class _Chain:
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
            raise CapsuleDamaged(f"line {self.count} was changed, or is not one of a capsule")
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise CapsuleDamaged(f"line {self.count} cannot be read: {error}") from None

    @property
    def digest(self) -> str:
        return self._digest.hex()


# Reading.


def read_capsule(lines: Iterable[bytes]) -> Capsule:
    """The capsule, checked line by line."""
    chain = _Chain()
    head: CapsuleHead | None = None
    records: list[Record] = []
    checksums: dict[RunId, str] = {}
    redacted: list[str] = []
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
                case "checksum":
                    checksums[RunId(content["run"])] = content["checksum"]
                case _:
                    records.append(msgspec.convert(content[kind], KINDS[kind]))
        except (msgspec.ValidationError, KeyError, TypeError, StopIteration, binascii.Error) as error:
            raise CapsuleDamaged(f"line {chain.count} cannot be read: {error}") from None
    if head is None or not is_complete:
        raise CapsuleDamaged("the end of the capsule is missing" if head is not None else "the file is empty")
    _check_records(head, records)
    return Capsule(head, records, checksums, redacted, chain.digest)


def _check_records(head: CapsuleHead, records: Sequence[Record]) -> None:
    """They belong together, and a store can take them: whoever wrote the file chose the digests too."""
    runs = {record.id: record for record in records if isinstance(record, RunRecord)}
    if head.run not in runs or not _RUN_ID.fullmatch(head.run):  # it becomes a word of a command
        raise CapsuleDamaged("the capsule does not have the run that its first line names")
    if not {record.run for record in records if isinstance(record, LogRecord | ValueRecord)} <= runs.keys():
        raise CapsuleDamaged("the capsule has events or values of a run that it does not have")
    programs = {record.digest for record in records if isinstance(record, ProgramRecord)}
    instants = [head.exported_at]
    for run in runs.values():
        instants += filter(None, (run.created_at, run.ended_at, run.due, run.on_wall))
        if run.program not in programs or run.status not in STATUSES:
            raise CapsuleDamaged(f"run {run.id} has no document, or a status that there is not")
    if not all(0 <= instant <= LAST_INSTANT for instant in instants):
        raise CapsuleDamaged("the capsule has a time that is out of range")


def _read_head(content: Any) -> CapsuleHead:
    if isinstance(content, dict) and (content.get("format") != FORMAT or content.get("records", 0) > RECORDS):
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
