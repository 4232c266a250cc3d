"""Another version of a document, and the open runs of the one before: which can go on with it, and moving them there.

`impact` changes nothing and proposes a plan; `migrate` sends each run of a plan the new document. Each run decides for
itself, where it is then: what was safe when the plan was made may be refused.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec

from perdure.documents import UnreadableText, read_document
from perdure.engine.client import Client
from perdure.engine.decision_threads import ShortTurns, done_aside
from perdure.engine.random_ids import new_key
from perdure.engine.runs import run_views
from perdure.kernel import inputs as i
from perdure.kernel.dialect import Dialect, Obstacle
from perdure.kernel.document_change import FORGOTTEN, DocumentChange, obstacles
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import Conflict, InvalidDocument, PerdureError, RunNotFound
from perdure.kernel.execution import Execution
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values.values import RunId, digest
from perdure.kernel.outcomes import OPEN_STATUSES
from perdure.kernel.versions import pinned_language
from perdure.stores.errors import StoreError
from perdure.stores.protocol import RunFilter, RunRow
from perdure.views.errors import BadRequest
from perdure.views.resources.document_check import validate

MOST_RUNS = 10_000  # that one call looks at
MOST_MOVED = 1_000  # that one call moves
MOST_OBSTACLES = 20_000  # that one answer lists; of further runs it has the first one
PAGE = 500
TO_BE_NAMED = "?"
"""In a plan: somebody has to say which step of the new document this one is."""


class ImpactVerdict(StrEnum):
    SAFE = "safe"
    NEEDS_MAPPING = "needs mapping"
    BLOCKED = "blocked"


class PlannedMove(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Runs of one version of the document."""

    before: str = msgspec.field(name="from")
    mapping: dict[str, str | None] = {}  # step it has: step of the new document; null: what is known of it is dropped
    runs: list[str]


class MigrationPlan(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    perdure: str = "migration plan"
    format: int = 1
    language: str
    namespace: str
    name: str
    to: str  # digest of the new document, as it is pinned
    document: str
    apply: list[str] = []  # what the document refers to
    moves: list[PlannedMove]


class NewDocument(msgspec.Struct, frozen=True):
    """A document that runs may be moved to, as they would be pinned to it."""

    language: Dialect
    namespace: str
    name: str
    text: bytes
    pinned: bytes
    program: Any
    applied: Sequence[AppliedDocument]

    @property
    def digest(self) -> bytes:
        return digest(self.pinned)


async def read_new_document(
    client: Client, origin: str, text: bytes, applied: Sequence[AppliedDocument], namespace: str, name: str
) -> NewDocument:
    """Valid, and named as a start would name it; otherwise an error with its problems."""
    checked = await validate(origin, text, client.validator, applied, namespace=namespace or DEFAULT_NAMESPACE)
    if checked.errors:
        raise InvalidDocument("\n".join(problem.describe(origin) for problem in checked.problems))
    if checked.program is None or checked.language is None or checked.validated is None:
        raise InvalidDocument(f"{origin} holds nothing that can be run")
    language, pinned = checked.language, checked.validated.pinned
    home = namespace or language.namespace_of(checked.program) or DEFAULT_NAMESPACE
    program = await run_views.compiled(language, pinned_language(language), pinned)
    title = language.title(checked.program) or name
    if not title:
        raise BadRequest("whose runs? The document has no name of its own", hint="Name it: --name, or `name`.")
    return NewDocument(language, home, title, text, pinned, program, applied)


def read_plan(text: bytes) -> MigrationPlan:
    """JSON or YAML, as somebody has perhaps edited it; or all that `perdure impact --json` has answered."""
    try:
        data = read_document(text).data
        whole = isinstance(data, dict) and "counts" in data and "plan" in data
        plan = msgspec.convert(data["plan"] if whole else data, MigrationPlan)
    except UnreadableText as error:
        raise BadRequest(f"it cannot be read: {error}") from None
    except msgspec.ValidationError as error:
        raise BadRequest(f"it is not a plan: {error}", hint="`perdure impact --plan FILE` writes one.") from None
    if plan.perdure != "migration plan" or plan.format != 1:
        raise BadRequest("it is not a plan, or was written by a newer Perdure")
    return plan


# Impact.


async def impact(
    client: Client, new: NewDocument, mapping: Mapping[str, str | None] | None = None, runs: Sequence[RunId] = ()
) -> dict[str, Any]:
    """Each open run of another version: safe to move, needs a mapping, or blocked; and a plan for the first two."""
    rows, is_cut = await _open_runs(client, new, runs)
    judged: list[dict[str, Any]] = []
    counts: dict[str, int] = {**dict.fromkeys(map(str, ImpactVerdict), 0), "current": 0}
    moves: dict[bytes, PlannedMove] = {}
    turns, left = ShortTurns(), MOST_OBSTACLES
    for row in rows:
        await turns.pause()
        if row.program == new.digest:
            counts["current"] += 1
            continue
        obstacle_list = await _find_obstacles(client, row, new, _plain(mapping or {}))
        verdict = _verdict(obstacle_list)
        counts[verdict] += 1
        judged.append(_run_json(row, verdict, obstacle_list[: max(1, left)]))
        left -= len(obstacle_list)
        if verdict is not ImpactVerdict.BLOCKED:
            planned = moves.setdefault(
                row.program, PlannedMove(before=row.program.hex(), mapping=dict(mapping or {}), runs=[])
            )
            planned.runs.append(row.id)
            planned.mapping |= {
                _step(obstacle): TO_BE_NAMED for obstacle in obstacle_list if _step(obstacle) not in planned.mapping
            }
    plan = MigrationPlan(
        language=new.language.name,
        namespace=new.namespace,
        name=new.name,
        to=new.digest.hex(),
        document=new.text.decode(),
        apply=[document.text for document in new.applied],
        moves=list(moves.values()),
    )
    return {
        "language": new.language.name,
        "namespace": new.namespace,
        "name": new.name,
        "document": new.digest.hex(),
        "counts": {str(name): count for name, count in counts.items()},
        "more": is_cut,
        "runs": judged,
        "plan": msgspec.to_builtins(plan),
    }


def _step(obstacle: Obstacle) -> str:
    """The step that a place names: `step 'a'`."""
    return obstacle.place.partition("'")[2].rpartition("'")[0]


async def _open_runs(client: Client, new: NewDocument, runs: Sequence[RunId]) -> tuple[list[RunRow], bool]:
    if runs:
        turns, named = ShortTurns(), []
        for run in dict.fromkeys(runs):
            await turns.pause()
            named.append(row := await client.find(run))
            if (row.language, row.namespace, row.name) != (new.language.name, new.namespace, new.name):
                raise BadRequest(
                    f"run {row.id} is one of {row.language} {row.namespace}/{row.name},"
                    f" not of {new.language.name} {new.namespace}/{new.name}"
                )
        return named, False
    rows: list[RunRow] = []
    behind = (2**62, RunId(""))
    while len(rows) < MOST_RUNS:
        about = RunFilter(OPEN_STATUSES, new.name, new.language.name, namespaces=[new.namespace])
        page = await client.search(msgspec.structs.replace(about, limit=PAGE, behind=behind))
        rows += page
        if len(page) < PAGE:
            return rows, False
        behind = (page[-1].created_at, page[-1].id)
    return rows, True


async def _find_obstacles(client: Client, row: RunRow, new: NewDocument, mapping: Mapping[str, str]) -> list[Obstacle]:
    _, execution, _ = await client.outlook(row.id)
    pinned = await client.store.program(row.program)
    assert pinned is not None, "a run keeps its document"
    change = DocumentChange(pinned[1], new.pinned, new.program, mapping)
    return await _obstacles(execution, change)


async def _obstacles(execution: Execution, change: DocumentChange) -> list[Obstacle]:
    start = execution.state.input
    size = len(change.document) + len(change.before) + (len(start) if isinstance(start, bytes) else 0)
    return await done_aside(size, partial(obstacles, execution, change))


def _verdict(obstacle_list: Sequence[Obstacle]) -> ImpactVerdict:
    if not obstacle_list:
        return ImpactVerdict.SAFE
    return (
        ImpactVerdict.NEEDS_MAPPING
        if all(obstacle.needs_mapping for obstacle in obstacle_list)
        else ImpactVerdict.BLOCKED
    )


def _run_json(row: RunRow, verdict: ImpactVerdict, obstacle_list: Sequence[Obstacle]) -> dict[str, Any]:
    return {
        "id": row.id,
        "status": row.status.value,
        "document": row.program.hex(),
        "verdict": verdict.value,
        "obstacles": [msgspec.to_builtins(obstacle) for obstacle in obstacle_list],
    }


# Migration.

ActingClient = Callable[[RunId], Awaitable[Client]]
"""The client with which a run is moved: what it does is recorded."""


async def migrate(
    client: Client, plan: MigrationPlan, acting: ActingClient, *, dry_run: bool = False, key: str | None = None, by: str
) -> dict[str, Any]:
    """DocumentChange the runs of a plan. Each is answered for itself: moved, recorded, current, refused."""
    if sum(len(move.runs) for move in plan.moves) > MOST_MOVED:
        raise BadRequest(f"one call moves at most {MOST_MOVED} runs", hint="Split the plan.")
    applied = [AppliedDocument(f"apply[{place}]", text) for place, text in enumerate(plan.apply)]
    new = await read_new_document(
        client, "the plan's document", plan.document.encode(), applied, plan.namespace, plan.name
    )
    if new.digest.hex() != plan.to or new.language.name != plan.language or new.name != plan.name:
        raise Conflict(
            "the plan's document is not the one that the plan was made for: it was edited, or what it refers to has"
            " changed in the catalog",
            hint="Make the plan again with `perdure impact NEW_DOC --plan FILE`.",
        )
    answers, turns = [], ShortTurns()
    for move in plan.moves:
        if unnamed := [step for step, name in move.mapping.items() if name == TO_BE_NAMED]:
            raise BadRequest(
                f"the plan does not say which step of the new document {', '.join(map(repr, unnamed))} is",
                hint="Write its name in place of '?', or null if what is known of the step may be dropped.",
            )
        for run in move.runs:
            await turns.pause()
            answers.append(await _answered(RunId(run), _move(client, RunId(run), new, move, acting, dry_run, key, by)))
    return _answer(answers, dry_run)


async def _move(
    client: Client,
    run: RunId,
    new: NewDocument,
    move: PlannedMove,
    acting: ActingClient,
    dry_run: bool,
    key: str | None,
    by: str,
) -> tuple[str, str]:
    row = await client.find(run)
    if (row.language, row.namespace, row.name) != (new.language.name, new.namespace, new.name):
        raise RunNotFound(f"there is no run {run!r} of {new.namespace}/{new.name}")
    if row.program == new.digest:
        return "current", "it has the new document already"
    if row.program.hex() != move.before:
        raise Conflict(f"it has another document now: {row.program.hex()[:12]}, not {move.before[:12]}")
    mapping = _plain(move.mapping)
    if dry_run:
        obstacle_list = await _find_obstacles(client, row, new, mapping)
        if obstacle_list:
            return "refused", "; ".join(_phrase(obstacle) for obstacle in obstacle_list)
        return "safe", ""
    pinned = await client.store.program(row.program)
    assert pinned is not None, "a run keeps its document"
    message = i.Migrate(
        row.program,
        *pinned,
        pinned_language(new.language),
        new.pinned,
        mapping,
        key=key or new_key(),
        by=by,
        from_api=client.from_api,
    )
    return await _sent(await acting(run), run, message)


async def undo(
    client: Client,
    runs: Sequence[RunId],
    acting: ActingClient,
    *,
    dry_run: bool = False,
    key: str | None = None,
    by: str,
) -> dict[str, Any]:
    """Let runs go on with the document that they had before their last move."""
    if len(runs) > MOST_MOVED:
        raise BadRequest(f"one call moves at most {MOST_MOVED} runs")
    answers, turns = [], ShortTurns()
    for run in runs:
        await turns.pause()
        answers.append(await _answered(run, _undo(client, run, acting, dry_run, key, by)))
    return _answer(answers, dry_run)


async def _undo(
    client: Client, run: RunId, acting: ActingClient, dry_run: bool, key: str | None, by: str
) -> tuple[str, str]:
    row, execution, _ = await client.outlook(run)
    state = execution.state
    if not state.documents_before:
        return "refused", "it was not moved to another document, or that was undone"
    if state.program != row.program:
        reason = f"its move to document {state.program.hex()[:12]} is recorded, and happens when it is resumed"
        return "refused", f"{reason}: undo it then"
    former = state.documents_before[-1]
    text = await client.text(run, former.document)
    pinned = await client.store.program(row.program)
    assert pinned is not None, "a run keeps its document"
    back = {name: step for step, name in former.mapping.items() if name != FORGOTTEN}
    if dry_run:
        program = await run_views.compiled(execution.dialect, former.language, text)
        change = DocumentChange(pinned[1], text, program, back, undoes=True)
        obstacle_list = await _obstacles(execution, change)
        return (
            ("refused", "; ".join(_phrase(obstacle) for obstacle in obstacle_list)) if obstacle_list else ("safe", "")
        )
    message = i.Migrate(row.program, *pinned, former.language, text, back, True, key or new_key(), by)
    return await _sent(await acting(run), run, message)


async def _sent(client: Client, run: RunId, message: i.Migrate) -> tuple[str, str]:
    result = await client.tell(run, message)
    if not result.is_new:
        return "current", "it was moved before" if result.is_decided else "its move is recorded already"
    if result.is_decided:
        return "moved", ""
    return "recorded", "its owner has not answered yet" if result.is_live else "it is moved when it is resumed"


async def _answered(run: RunId, moving: Awaitable[tuple[str, str]]) -> dict[str, str]:
    """A store that fails ends the call; whatever else is wrong concerns this run alone."""
    try:
        outcome, reason = await moving
    except StoreError:
        raise
    except PerdureError as error:
        outcome, reason = "refused", str(error).removeprefix(f"run {run}: ")
    return {"id": run, "outcome": outcome, "reason": reason}


def _answer(answers: Sequence[dict[str, str]], dry_run: bool) -> dict[str, Any]:
    outcomes = ("safe",) if dry_run else ("moved", "recorded")
    counts = {name: sum(each["outcome"] == name for each in answers) for name in (*outcomes, "current", "refused")}
    return {"dry_run": dry_run, "counts": counts, "runs": list(answers)}


def _plain(mapping: Mapping[str, str | None]) -> dict[str, str]:
    return {step: FORGOTTEN if name is None else name for step, name in mapping.items()}


def _phrase(obstacle: Obstacle) -> str:
    return f"{obstacle.place}: {obstacle.reason}" if obstacle.place else obstacle.reason
