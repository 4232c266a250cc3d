"""A run as it can be shown, folded from what is recorded; at the present or at any past moment."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Any, NoReturn, TypeVar

import msgspec

from perdure.engine.decision_threads import WORK_OF_TEXT, ProgramCache, done_aside
from perdure.kernel.codec import Turns, decode_turns, encode_snapshot, fold, restore
from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import BadRequest, EventNotFound, NewerRecord, ReferenceNotAvailable, RunNotFound
from perdure.kernel.events import Event, MessageSent
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, Ref, RunId
from perdure.kernel.secrets.secret_masking import Mask
from perdure.kernel.turn import MissingValues
from perdure.kernel.versions import read_pinned
from perdure.stores.protocol import RunFilter, RunRow, Store, StoredRun

STREAM_NUMBERS = b"s"
"""How the keys of the rows begin that hold numbers of streams."""

ROWS_AT_ONCE = 500  # of a log of which a part is read
WORK_OF_EVENT = 64  # to tell, trace or show it, in bytes of records that are folded

R = TypeVar("R")

NUMBERED = frozenset({"seq", "at", "event"})


async def resolve(store: Store, dialects: Iterable[Dialect], name: str, namespaces: Sequence[str] | None) -> RunId:
    """See `Client.resolve`."""
    if not name.strip(" \t\r\n…"):  # every id begins so
        raise BadRequest(f"{name!r} names no run (expected an id, its beginning, a name or @latest)")
    if name == "@latest":
        latest = await store.search(RunFilter(roots_only=True, namespaces=namespaces, limit=1))
        name = latest[0].id if latest else name
    row = await store.find(RunId(name))
    if row is not None and (namespaces is None or row.namespace in namespaces):
        return row.id
    labels = [dialect.name_label for dialect in dialects if dialect.name_label]
    of_name = [row.id for label in labels for row in await named(store, label, name, namespaces)]
    candidates = of_name or await store.find_by_prefix(name, namespaces)
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise RunNotFound(f"there is no run {name!r}")
    description = "name" if of_name else "beginning"
    raise RunNotFound(f"{name!r} is the {description} of several runs: {', '.join(candidates[:3])}")


async def named(store: Store, label: str, name: str, namespaces: Sequence[str] | None) -> list[RunRow]:
    """See `Client.named`."""
    meant: dict[RunId, RunRow] = {}
    for row in await store.search(RunFilter(labels={label: name}, namespaces=namespaces)):  # the latest comes first
        meant.setdefault(row.parent or row.id, row)
    return list(meant.values())


def names_of(row: RunRow, dialect: Dialect) -> list[str]:
    """Texts that stand for the run itself in its events: its id, and its name if runs of the language have one."""
    return [name for name in (row.id, row.labels.get(dialect.name_label, "")) if name]


async def load(store: Store, dialects: Mapping[str, Dialect], row: RunRow, at: int | None = None) -> Execution:
    """The run folded from its log, up to event number `at` of its history if given."""
    with naming(row.id):
        dialect = dialect_of(dialects, row.language)
        program = await program_of(store, dialect, row)
        if at is None:
            return await fold_stored(store, await stored_run(store, row.id), dialect, program)
        from perdure.engine.runs.run_index import read_index  # most commands look at the present

        seq, is_moved = await read_index(
            store, dialects, row, lambda index: (index.numbers[at - 1], index.is_moved), at
        )
        recorded = await turns(store, dialect, row.id, None if is_moved else seq)
        execution = await begin_stored(store, row.id, dialect, recorded, program)
        await told_aside(recorded, lambda: execution.fold(cut(recorded, seq)))
        return execution


async def stored_run(store: Store, run: RunId) -> StoredRun:
    """What is recorded of a run that was there just now."""
    for stored in await store.load([run]):
        return stored
    raise RunNotFound(f"run {run!r} was removed meanwhile")


async def begin_stored(store: Store, run: RunId, dialect: Dialect, turns: Turns, program: Any) -> Execution:
    """A run before its first event, which can fold these turns, or a part of them: also if it was moved."""
    from perdure.engine.runs.run_documents import begin_folding, moves_in, read_former  # few runs were moved

    if not (moves := moves_in(turns)):
        return Execution(run, dialect, program)
    former = await read_former(store, run, moves)
    size = sum(len(document.text) for document in former)
    return await done_aside(size * WORK_OF_TEXT, lambda: begin_folding(run, dialect, former, program))


@contextmanager
def naming(run: RunId) -> Iterator[None]:
    """Whoever asked for a run hears which one it is that cannot be read here."""
    try:
        yield
    except NewerRecord as error:
        raise NewerRecord(f"run {run} cannot be read: {error}") from None


async def fold_stored(store: Store, stored: StoredRun, dialect: Dialect, program: Any) -> Execution:
    """A run from its latest snapshot and what came after; from its first event when the snapshot cannot be used."""
    execution = Execution(stored.row.id, dialect, program)

    def follow() -> bool:
        if stored.snapshot is not None and not restore(execution, stored.snapshot[1]):
            return False
        fold(execution, stored.rows)
        return True

    try:
        if not await done_aside(size_of(stored), follow):
            rows = await store.history(stored.row.id)
            await done_aside(bytes_of(rows), lambda: fold(execution, rows))
    except Exception:
        moved = await _fold_moved(store, stored, dialect, program)
        if moved is None:
            raise
        return moved
    return execution


async def _fold_moved(store: Store, stored: StoredRun, dialect: Dialect, program: Any) -> Execution | None:
    """A run that was moved to another document since its snapshot; None if it was not.

    What is behind the move does not tell: events of the former document may not fit the new one.
    """
    from perdure.engine.runs.run_documents import moves_in

    rows, snapshot = stored.rows, stored.snapshot
    for _ in range(2):
        recorded = [turn for _, row in rows for turn in decode_turns(dialect, row)]
        if not moves_in(recorded):
            return None
        execution = await begin_stored(store, stored.row.id, dialect, recorded, program)
        if snapshot is None or restore(execution, snapshot[1]):
            break
        rows, snapshot = await store.history(stored.row.id), None
    await done_aside(bytes_of(rows), lambda: fold(execution, rows))
    return execution


def size_of(stored: StoredRun) -> int:
    """In bytes, of what is folded."""
    return bytes_of(stored.rows) + (len(stored.snapshot[1]) if stored.snapshot is not None else 0)


def bytes_of(rows: Sequence[tuple[int, bytes]]) -> int:
    return sum([len(body) for _, body in rows])


async def compiled(dialect: Dialect, language: str, text: bytes) -> Any:
    """The program of a pinned document; a long one is compiled in a thread."""
    return await done_aside(len(text) * WORK_OF_TEXT, lambda: read_pinned(dialect, language, text))


def dialect_of(dialects: Mapping[str, Dialect], language: str) -> Dialect:
    dialect = dialects.get(language)
    if dialect is None:
        raise NewerRecord(f"it is written in {language!r}, a language that this version of Perdure does not know")
    return dialect


_programs: ProgramCache[tuple[Dialect, bytes], Any] = ProgramCache(64)
"""Those that were looked at last: most runs that somebody looks at have one of a few documents."""


async def program_of(store: Store, dialect: Dialect, row: RunRow) -> Any:
    program = _programs.get((dialect, row.program))
    if program is None:
        pinned = await store.program(row.program)
        assert pinned is not None, "a run keeps its document"
        program = await compiled(dialect, *pinned)
        _programs.add((dialect, row.program), program, len(pinned[1]))
    return program


async def turns(store: Store, dialect: Dialect, run: RunId, until: int | None = None) -> Turns:
    """All of them, or those up to an event of the log."""
    rows: list[tuple[int, bytes]] = []
    while until is not None and (not rows or rows[-1][0] < until):
        more = await store.history(run, rows[-1][0] if rows else 0, ROWS_AT_ONCE)
        rows += more
        if len(more) < ROWS_AT_ONCE:
            break
    if until is None:
        rows = await store.history(run)
    all_turns = await done_aside(
        bytes_of(rows), lambda: [turn for _, row in rows for turn in decode_turns(dialect, row)]
    )
    return all_turns if until is None else cut(all_turns, until)


async def events_at(
    store: Store, dialect: Dialect, run: RunId, numbers: Iterable[int]
) -> dict[int, tuple[Instant, Event]]:
    """Some events of a log, by number, each with its time."""
    events_by_number: dict[int, tuple[Instant, Event]] = {}
    for number in sorted(numbers):
        if number in events_by_number:
            continue
        rows = await store.history(run, number - 1, 1)
        for last, row in rows:
            recorded = decode_turns(dialect, row)
            first = last - sum(len(events) for _, events in recorded) + 1
            together = ((at, event) for at, events in recorded for event in events)
            events_by_number |= dict(enumerate(together, first))
    return events_by_number


async def told_aside(about: Turns | int, work: Callable[[], R]) -> R:
    """What the work gives, done in a thread if it is about many events: turns, or their number."""
    events = about if isinstance(about, int) else sum([len(events) for _, events in about])
    return await done_aside(WORK_OF_EVENT * events, work)


def cut(all_turns: Turns, at: int) -> Turns:
    """The turns up to event number `at`; the last one perhaps in part."""
    turns_before: Turns = []
    remaining = at
    for instant, events in all_turns:
        if remaining <= 0:
            break
        turns_before.append((instant, events[:remaining]))
        remaining -= len(events)
    if at < 1 or remaining > 0:
        no_event(at, at - remaining)
    return turns_before


def tell(dialect: Dialect, run: RunId, all_turns: Turns) -> Iterator[tuple[int, dict[str, Any]]]:
    """The history in the language's own event names, each with the number of the recorded event it tells of."""
    recorded = 0

    def one_by_one() -> Iterator[tuple[Instant, list[Event]]]:
        nonlocal recorded
        for at, events in all_turns:
            for event in events:
                recorded += 1
                yield at, [event]

    for shown in dialect.history(run, one_by_one()):
        yield recorded, shown


def senders_of(all_turns: Turns, before: int = 0) -> dict[int, dict[str, Any]]:
    """By number of the recorded event: who has sent the control message from which it follows, if a server knew."""
    senders: dict[int, dict[str, Any]] = {}
    number = before
    for _, events in all_turns:
        sent = next((event for event in events if isinstance(event, MessageSent)), None)
        if sent is not None:
            by: str = next((name for event in events if (name := getattr(event, "by", ""))), "")
            who = {"name": by.removeprefix(f"{sent.via}:"), "via": sent.via}
            who |= {"issuer": sent.issuer} if sent.issuer else {}
            senders |= {number + place: {"who": who} for place in range(1, len(events) + 1)}
        number += len(events)
    return senders


def no_event(at: int, total: int) -> NoReturn:
    known = f"the run has events 1 to {total}" if at > 0 else "the first event of a run is 1"
    raise EventNotFound(f"there is no event {at}; {known}")


async def mask_of(store: Store, execution: Execution) -> Mask:
    """Hides the secrets that came with the run's input, where its language knows of such."""
    input = execution.state.input
    if isinstance(input, Ref):
        input = (await store.values(execution.id, [input.digest]))[input.digest] if _has_secrets(execution) else b""
    return await done_aside(len(input), partial(_mask_of_input, execution, input))


def mask_at_hand(execution: Execution) -> Mask | None:
    """The same without a look into the store; None where that is not enough."""
    if not isinstance(execution.state.input, Ref):
        return _mask_of_input(execution, execution.state.input)
    return None if _has_secrets(execution) else Mask()


def _has_secrets(execution: Execution) -> bool:
    dialect = execution.dialect
    return dialect.hides_inputs and dialect.has_secret_inputs(
        execution.program, jsontext.decode(execution.state.options)
    )


def _mask_of_input(execution: Execution, input: bytes) -> Mask:
    mask = Mask()
    if _has_secrets(execution):
        options = jsontext.decode(execution.state.options)
        mask.add_all(execution.dialect.secret_inputs(execution.program, jsontext.decode(input), options))
    return mask


async def mask_of_run(store: Store, dialects: Mapping[str, Dialect], row: RunRow) -> Mask:
    """The same for a run that has not been folded."""
    if not dialect_of(dialects, row.language).hides_inputs:
        return Mask()
    return await mask_of(store, await load(store, dialects, row))


async def read_stream_numbers(store: Store, execution: Execution) -> None:
    """Have what the streams of a run count, which is beside its log."""
    if execution.dialect.has_streams(execution):
        execution.stream_rows = await store.stream_rows(execution.id, STREAM_NUMBERS)


async def show(store: Store, execution: Execution, *, with_parts: bool = True) -> Any:
    """The dialect's own picture of the run; large values are fetched as it asks for them."""
    texts: dict[bytes, bytes] = {}
    mask = await mask_of(store, execution)
    await read_stream_numbers(store, execution)
    show_run = execution.dialect.show if with_parts else execution.dialect.show_itself
    while True:
        try:
            size = WORK_OF_EVENT * execution.state.seq + sum(map(len, texts.values()))
            return await done_aside(size, partial(_shown, mask, show_run, execution, texts))
        except MissingValues as needs:
            values = await store.values(execution.id, needs.digests)
            if not values:
                raise RunNotFound(f"large values of run {execution.id} are not in the store") from None
            texts |= values


def _shown(mask: Mask, show: Callable[..., Any], *arguments: Any) -> Any:
    return mask.data(show(*arguments))


async def body_of(store: Store, execution: Execution, ref: str, now: Instant) -> Any:
    """The body behind a reference of this run; large values are fetched as they are asked for."""
    texts: dict[bytes, bytes] = {}
    mask = await mask_of(store, execution)
    while True:
        try:
            return await told_aside(
                execution.state.seq, partial(_shown, mask, execution.dialect.body_of, execution, texts, ref, now)
            )
        except MissingValues as needs:
            values = await store.values(execution.id, needs.digests)
            if not values:
                raise ReferenceNotAvailable(f"the store does not have the body of {ref or 'the result'}") from None
            texts |= values


def checksum(execution: Execution) -> str:
    """Equal for equal states, however they were come by: folded from the first event or from a snapshot."""
    return sha256(encode_snapshot(execution)).hexdigest()


def numbered(seq: int, at: Instant, event: Event) -> dict[str, Any]:
    """An event as JSON data, with its number and the time it was recorded at.

    Values are inline, large ones by size and digest. A field of its own that is called like one of those three stands
    behind `own_`.
    """
    shown: dict[str, Any] = {"seq": seq, "at": at, "event": type(event).__name__}
    for name in event.__struct_fields__:
        shown[f"own_{name}" if name in NUMBERED else name] = _plain(getattr(event, name))
    return shown


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            try:
                return jsontext.decode(value)
            except (msgspec.DecodeError, ValueError):
                return value.hex()
        case Ref(name, size):
            return {"$large": name.hex(), "bytes": size}
        case msgspec.Struct():
            kind = type(value).__name__
            return {"type": kind, **{name: _plain(getattr(value, name)) for name in value.__struct_fields__}}
        case list() | tuple():
            return [_plain(item) for item in value]
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case _:
            return value
