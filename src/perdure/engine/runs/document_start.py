"""Starting a run: the document is read and validated, the run gets its id and its key, and the commit creates it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.engine.decision_threads import SMALL, done_aside
from perdure.engine.random_ids import new_run_id, new_seed, run_id_for_name, run_id_for_token
from perdure.engine.resources.document_validation import calls_others
from perdure.engine.slot import ELSEWHERE, Slot
from perdure.kernel import inputs as i
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.validation import AppliedDocument, Validated
from perdure.kernel.errors import Conflict, InvalidDocument, PerdureError, StartRefused, UnfitInput
from perdure.kernel.execution import Execution
from perdure.kernel.ids import DEFAULT_NAMESPACE, namespace_problem, reserved_label
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.large_values import HASHED_IN_THREAD, LargeValues, extract_large_values
from perdure.kernel.json_values.values import Instant, RunId, digest
from perdure.kernel.trace_context import TRACEPARENT, read_traceparent
from perdure.stores.protocol import RunRow

if TYPE_CHECKING:
    from perdure.engine.client import Client

Document = str | Path | bytes | Mapping[str, Any]


NO_LABEL = "Use a label without the prefix bubustack.io/ or perdure.dev/."


class StartRequest(msgspec.Struct, frozen=True):
    """The key under which a start was requested, and the digest of all that was requested.

    The run has the key as its id: the same request finds it, any other one is a conflict.
    """

    key: str
    digest: bytes


Seen = Callable[[RunRow, Execution], None]
"""Hears of a new run as its first commit leaves it, before anything else happens to it."""


async def start_run(
    client: "Client",
    document: Document,
    input: Any,
    *,
    name: str | None,
    applied: Sequence[AppliedDocument],
    chosen: str,
    options: Mapping[str, Any],
    token: str | None,
    labels: Mapping[str, str],
    system_labels: Mapping[str, str],
    seed: int | None,
    namespace: str | None,
    started_by: tuple[str, str] | None,
    from_api: bool,
    request: "StartRequest | None" = None,
    checked: tuple[Dialect, Validated] | None = None,
    seen: Seen | None = None,
) -> RunId:
    """The id of the run, which is on disk; see `Client.start`. `seen` is not called for a run that was there."""
    runtime = client.running()
    if labels and (reserved := reserved_label(labels)):
        raise StartRefused(f"the label {reserved!r} is reserved for the engine; nothing was started", hint=NO_LABEL)
    text, origin = _read(document)
    asked = namespace or options.get("namespace") or ""
    if asked and (problem := namespace_problem(asked)):
        raise StartRefused(f"{problem}; nothing was started", hint="Correct the name of the namespace.")
    language, validated = checked or await client.check(
        text, origin, applied=applied, chosen=chosen, namespace=asked or DEFAULT_NAMESPACE
    )
    program = validated.program
    if program is None or validated.has_errors:
        problems = "\n".join(problem.describe(origin) for problem in validated.problems)
        raise InvalidDocument(problems or f"{origin}: there is nothing in it that can be run")
    if validated.refusal:
        raise StartRefused(f"{origin}: {validated.refusal}; nothing was started")
    own = language.namespace_of(program)
    home = _home(own, asked, options, origin) if own else asked or DEFAULT_NAMESPACE
    weight = SMALL + 1 if jsontext.is_large(input) else 0
    if reason := await done_aside(weight, lambda: language.why_unfit(program, input)):
        raise UnfitInput(f"{origin}: {reason}; nothing was started")
    pinned = digest(validated.pinned)
    title = language.title(program) or name or _file_name(document) or language.name
    input_text = await done_aside(weight, lambda: jsontext.encode(input))
    recorded = dict(options)
    trace = _trace_labels(recorded.pop("traceparent", None))
    # A language that pins a bundle has taken what it needs from around, apart from documents of other languages.
    texts = [text, *(other.text.encode() for other in applied)]
    if applied and (validated.pinned == text or any(calls_others(language, applied_text) for applied_text in texts)):
        recorded["applied"] = msgspec.to_builtins(await client.validator.recorded(applied, home))
    options_text = jsontext.encode(recorded)
    found_name = language.find_name(program, token, recorded)
    if language.names_runs:
        key = digest(await done_aside(weight, lambda: language.same_start(program, input_text, recorded)))[:16]
    else:
        same = pinned if validated.identity is None else digest(validated.identity)
        key = digest(b"\x1f".join((same, digest(input_text), digest(options_text))))[:16]
    if request is not None and token is None and found_name is None:
        key = digest(key + request.digest)[:16]
    if found_name is not None:
        run = run_id_for_name(language.name, home, found_name)
    elif token is not None:
        run = run_id_for_token(language.name, title, token, home)
    elif request is not None:
        run = RunId(request.key)
    else:
        run = new_run_id(client.clock.now())
    if (token is not None or found_name is not None or request is not None) and await has_started(client, run, key):
        return run
    if started_by is not None and not started_by[0] and client.act is not None:
        started_by = client.act.starter or started_by
    start = i.Start(
        language.name,
        pinned,
        title,
        input_text,
        options_text,
        new_seed() if seed is None else seed,
        labels={**labels, **language.labels(program, run, token), **system_labels, **trace},
        key=key,
        namespace=home,
        started_by=started_by,
        from_api=from_api,
    )
    if client.act is not None:
        client.act.starts(run, home)
    while isinstance(answer := await _create(client, run, start, validated, seen), i.Refused):
        if runtime.stopped is not None:
            raise runtime.stopped
        if client.act is not None:
            client.act.is_recorded = False  # nothing was written
        if await has_started(client, run, key):
            break
        if answer.conflict:
            raise Conflict(answer.reason, hint="Choose another name, or look at the run that has this one.")
        if answer is not ELSEWHERE:  # else its birthplace was lost before it was born: it is born in another one
            raise PerdureError(answer.reason)
    return run


def _trace_labels(text: Any) -> dict[str, str]:
    """The trace that the run is to be a part of. Two equal starts may differ in it."""
    if text is None:
        return {}
    if not isinstance(text, str) or (parent := read_traceparent(text)) is None:
        raise StartRefused(
            f"{str(text)[:80]!r} is not a traceparent; nothing was started",
            hint="Expected 00-TRACE-SPAN-FLAGS, in hex.",
        )
    return {TRACEPARENT: parent}


def _home(own: str, asked: str, options: Mapping[str, Any], origin: str) -> str:
    """The namespace of the run. A document that names another one than was asked for is started only by a request of
    its language, which was found to be allowed to refer to it (`options`).
    """
    if own and asked and own != asked and options.get("namespace") != asked:
        raise StartRefused(
            f"{origin} is in namespace {own!r}, not in {asked!r} as asked; nothing was started",
            hint=f"Start it in namespace {own!r}, or take the namespace out of the document.",
        )
    return asked or own


async def _create(
    client: "Client", run: RunId, start: i.Start, validated: Validated, seen: Seen | None
) -> i.InputAnswer:
    runtime = client.running()
    if await runtime.birthplace(run) is None:
        return await runtime.create_elsewhere(run, start, validated.pinned, validated.program, client.act)
    future: asyncio.Future[i.InputAnswer] = asyncio.get_running_loop().create_future()
    slot: Slot | None = None
    values: LargeValues = ()
    if isinstance(start.input, bytes) and len(start.input) > HASHED_IN_THREAD:
        start, values = await asyncio.to_thread(extract_large_values, start, "input")

    def settle(answer: i.InputAnswer) -> None:
        if future.done():
            return
        future.set_result(answer)
        if seen is not None and slot is not None and slot.execution is not None and not isinstance(answer, i.Refused):
            seen(_new_row(slot, slot.execution, start, created_at), slot.execution)

    slot = runtime.create(run, start, validated.pinned, validated.program, settle, client.act, values)
    created_at = 0 if slot is None or slot.creation is None else slot.creation.created_at
    return await future


def _new_row(slot: Slot, execution: Execution, start: i.Start, created_at: Instant) -> RunRow:
    state = execution.state
    return RunRow(
        slot.id,
        slot.partition,
        start.language,
        start.name,
        start.program,
        None,
        start.labels,
        start.key,
        state.activity,
        state.has_local_work,
        None,
        created_at,
        state.ended_at,
        None,
        namespace=start.namespace,
    )


async def has_started(client: "Client", run: RunId, key: bytes) -> bool:
    row = await client.store.find(run)
    if row is not None and row.key != key:
        raise Conflict(
            f"the token was used before for run {run}, with another document or other input",
            hint=f"Use another token to start another run, or look at the run with `perdure show {run}`.",
        )
    return row is not None


def _file_name(document: Document) -> str:
    return Path(document).stem if isinstance(document, str | Path) else ""


def _read(document: Document) -> tuple[bytes, str]:
    match document:
        case bytes():
            return document, "document"
        case str() | Path():
            try:
                return Path(document).read_bytes(), str(document)
            except OSError as error:
                raise InvalidDocument(f"{document}: {error.strerror or error}") from None
        case _:
            return msgspec.json.encode(document), "document"
