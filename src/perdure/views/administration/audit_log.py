"""The audit log: who changed what, and what was refused; sealed in a chain, so that a change of it is found."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

import msgspec

from perdure.engine.client import Client
from perdure.engine.clock import until_beat
from perdure.engine.random_ids import random_bytes
from perdure.kernel.inputs import Sender
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.stores.access import Act, AuditRow, AuditSeal, seal_hash
from perdure.views.access import NoParameters, Query, Question, Scope
from perdure.views.errors import BadRequest
from perdure.views.runs.run_pages import page_mark, read_page_cursor, write_page_cursor
from perdure.views.times import iso

SEAL_EVERY = 1.0  # seconds
REFUSALS_TOGETHER = 60 * SECOND  # equal refusals of this span are one row
KEPT = 90 * 86_400 * SECOND
KEYS_KEPT = 86_400 * SECOND
DROP_EVERY = 60 * SECOND  # what is older is looked for
SEALS_AT_ONCE = 200
TOOL_HEADER = "perdure-tool"  # of a request: which tool of a language model has sent it
NO_SEAL = "0:"  # the head of a log without records


class AuditEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change, or some equal refusals. Names and ids only, never what was sent."""

    who: str
    via: str  # token, anonymous, store
    verb: str
    outcome: str  # ok, or the code of the refusal
    object: str = ""
    namespace: str = ""
    source: str = ""  # the address it came from
    request: str = ""
    count: int = 1
    given_by: str = ""  # whom the caller named; that counts nowhere


class AuditLog:
    """What one server records. Changes are on disk before they are answered; refusals within a second."""

    def __init__(self, client: Client, server: str, keep: Instant | None = None) -> None:
        """`keep`: for how long rows are kept; None: whoever serves the store removes them."""
        self._client = client
        self._server = server
        self._keep = keep
        self._waiting: list[AuditRow] = []
        self._turn = asyncio.Lock()
        self._refusals: dict[tuple[str, str, str, str], tuple[AuditEntry, int]] = {}
        self._told: dict[tuple[str, str, str, str], Instant] = {}
        self._dropped_at: Instant | None = None

    async def record(self, act: Act) -> None:
        """On disk when it returns, for an act that has changed nothing; rows that wait together share a transaction."""
        row = act.record().audit
        self._waiting.append(row)
        async with self._turn:
            if row in self._waiting:
                await self._write()

    def refuse(self, entry: AuditEntry) -> None:
        """Equal refusals (who, from, verb, code) of a minute become one row with a count."""
        key = (entry.who, entry.source, entry.verb, entry.outcome)
        first, count = self._refusals.get(key, (entry, 0))
        self._refusals[key] = (first, count + 1)

    async def _write(self) -> None:
        rows, self._waiting = self._waiting, []
        if rows:
            await self._client.store.add_audit_rows(rows)

    async def keep(self) -> None:
        """Write refusals and seals, until cancelled."""
        while True:
            await asyncio.sleep(until_beat(SEAL_EVERY))
            await self.seal()

    async def seal(self, *, at_end: bool = False) -> None:
        now = self._client.clock.now()
        self._told = {key: at for key, at in self._told.items() if now - at < REFUSALS_TOGETHER}
        for key, (entry, count) in list(self._refusals.items()):
            if at_end or key not in self._told:
                del self._refusals[key]
                self._told[key] = now
                self._waiting.append(audit_row(msgspec.structs.replace(entry, count=count), now, None))
        async with self._turn:
            await self._write()
        await self._client.store.seal_audit(
            lambda rows, last: AuditSeal.over(rows, last, self._server, self._client.clock.now())
        )
        if self._dropped_at is None or now - self._dropped_at >= DROP_EVERY:
            self._dropped_at = now
            if self._keep is not None:
                await self._client.store.drop_audit(now - self._keep)
            await self._client.store.drop_request_keys(now - KEYS_KEPT)


def act_on_store(client: Client, verb: str, object: str, *, run: RunId | None = None, namespace: str = "") -> Act:
    """What a command does on the store itself."""

    def write(act: Act) -> AuditRow:
        entry = AuditEntry("", "store", verb, "ok", act.object, act.namespace)
        return audit_row(entry, client.clock.now(), act.run)

    act = Act(write)
    act.sender = Sender("store")
    act.about(object, run=run, namespace=namespace)
    return act


C = TypeVar("C", bound=Client)


async def audited(client: C, verb: str, object: str, *, run: RunId | None = None, namespace: str = "") -> C:
    """The client for a command on the store itself: it is recorded if the store has an audit log."""
    if await client.store.last_audit_seal() is None:
        return client
    return client.acting(act_on_store(client, verb, object, run=run, namespace=namespace))


async def seal_on_store(client: Client) -> None:
    """Seal what a command has recorded where perhaps no server ever does."""
    await AuditLog(client, "store").seal()


def audit_row(entry: AuditEntry, at: Instant, run: str | None) -> AuditRow:
    """Ids are in order of time, and of nobody else."""
    return AuditRow(f"{at:016x}{random_bytes()[:6].hex()}", at, run, msgspec.json.encode(entry))


def audit_json(row: AuditRow, *, with_source: bool = True) -> dict[str, Any]:
    entry = msgspec.json.decode(row.body, type=AuditEntry)
    shown = {
        "id": row.id,
        "at": iso(row.at),
        "who": {"name": entry.who, "via": entry.via},
        "verb": entry.verb,
        "object": entry.object,
        "namespace": entry.namespace or None,
        "run": row.run,
        "outcome": entry.outcome,
        "request": entry.request,
        "count": entry.count,
        "seal": row.seal,
    }
    shown |= {"givenBy": entry.given_by} if entry.given_by else {}
    return shown | ({"from": entry.source} if with_source else {})


async def list_audit(
    client: Client, *, run: str | None = None, cursor: str | None = None, limit: int = 100
) -> tuple[list[AuditRow], str | None]:
    """The latest first, and the cursor for the next page."""
    mark = page_mark(["audit", run])
    before = None if cursor is None else read_page_cursor(cursor, mark, (str,))[0]
    rows = await client.store.audit_rows(run, before, limit + 1)
    return rows[:limit], write_page_cursor([rows[limit - 1].id], mark) if len(rows) > limit else None


async def audit_head(client: Client) -> str:
    """The last seal, to be kept elsewhere: with it a cut end is found."""
    last = await client.store.last_audit_seal()
    return NO_SEAL if last is None else f"{last.number}:{last.hash.hex()}"


class AuditReport(msgspec.Struct, frozen=True):
    seals: int
    rows: int
    unsealed: int
    head: str
    problems: tuple[str, ...]
    since: str | None = None  # what is older was dropped for its age, or by somebody; None: nothing was


async def verify_audit(client: Client, head: str = "") -> AuditReport:
    """Whether every seal follows from the one before and its rows. `head`: what `audit_head` told earlier."""
    expected = _read_head(head)
    problems: list[str] = []
    last: AuditSeal | None = None
    first: AuditSeal | None = None
    seals = rows = 0
    piece: list[AuditSeal] = []

    async def look() -> None:
        nonlocal rows, last
        by_seal: dict[int | None, list[AuditRow]] = {}
        for row in await client.store.rows_of_seals(piece[0].number, piece[-1].number):
            by_seal.setdefault(row.seal, []).append(row)
            rows += 1
        for seal in piece:
            problems.extend(_problems(seal, last, by_seal.pop(seal.number, [])))
            last = seal
        problems.extend(f"{len(left)} rows name seal {number}, which is not there" for number, left in by_seal.items())

    known = expected is None
    async for seal in _seals(client):
        seals += 1
        first = first or seal
        known = known or (expected is not None and (seal.number, seal.hash) == expected)
        piece.append(seal)
        if len(piece) == SEALS_AT_ONCE:
            await look()
            piece = []
    if piece:
        await look()
    if last is not None and await client.store.rows_of_seals(last.number + 1, 2**62):
        problems.append(f"rows name seals behind {last.number}, which are not there")
    if first is not None and await client.store.rows_of_seals(-(2**62), first.number - 1):
        problems.append(f"rows name seals before {first.number}, which are not there")
    if last is None and await client.store.rows_of_seals(-(2**62), 2**62):
        problems.append("rows name seals, and there is none")
    if not known and expected is not None and (last is None or last.number <= expected[0]):
        problems.append(f"seal {expected[0]} with the given hash is not there: the end was cut off or replaced")
    elif not known and expected is not None and not await _was_dropped(client, expected[0]):
        problems.append(f"seal {expected[0]} has another hash than the given one")
    unsealed = sum(row.seal is None for row in await client.store.audit_rows(limit=1_000))
    end = NO_SEAL if last is None else f"{last.number}:{last.hash.hex()}"
    since = iso(first.at) if first is not None and first.number > 1 else None
    return AuditReport(seals, rows, unsealed, end, tuple(problems), since)


async def _was_dropped(client: Client, number: int) -> bool:
    first = await client.store.audit_seals(limit=1)
    return bool(first) and number < first[0].number


async def _seals(client: Client) -> AsyncIterator[AuditSeal]:
    after = 0
    while seals := await client.store.audit_seals(after, SEALS_AT_ONCE):
        for seal in seals:
            yield seal
        after = seals[-1].number


def _problems(seal: AuditSeal, last: AuditSeal | None, rows: Sequence[AuditRow]) -> list[str]:
    if last is None and seal.number > 1 and not rows:
        return []  # the last one that was dropped for its age: its number and hash are kept, its rows are not
    name = f"seal {seal.number}"
    problems = []
    if last is None and seal.number > 1:
        problems.append(f"{name} is the first one, and seals before it are missing")
    elif last is not None and seal.number != last.number + 1:
        problems.append(f"{name} follows seal {last.number}: seals in between are missing")
    elif last is not None and seal.previous != last.hash:
        problems.append(f"{name} does not follow from seal {last.number}: one of them was changed")
    if len(rows) != seal.rows:
        problems.append(f"{name} has {len(rows)} rows instead of {seal.rows}")
    elif seal_hash(seal.number, seal.server, seal.at, seal.previous, rows) != seal.hash:
        problems.append(f"a row of {name}, or the seal itself, was changed")
    return problems


def _read_head(head: str) -> tuple[int, bytes] | None:
    if not head:
        return None
    number, _, text = head.partition(":")
    try:
        return (int(number), bytes.fromhex(text)) if int(number) else None
    except ValueError:
        raise BadRequest(f"{head!r} is not a head (expected what `perdure audit head` printed)") from None


class AuditHeadQuery(Query):
    head: str = ""


class AuditHead(msgspec.Struct):
    head: str


async def read_audit_head(client: Client, scope: Scope, query: NoParameters) -> AuditHead:
    return AuditHead(await audit_head(client))


async def read_audit_report(client: Client, scope: Scope, query: AuditHeadQuery) -> AuditReport:
    return await verify_audit(client, query.head)


AUDIT_HEAD = Question(
    "get_audit_head",
    "/audit:head",
    "number and hash of the last seal",
    NoParameters,
    AuditHead,
    read_audit_head,
    needs_all_namespaces=True,
    role="admin",
)
AUDIT_REPORT = Question(
    "verify_audit",
    "/audit:verify",
    "whether the audit log is whole",
    AuditHeadQuery,
    AuditReport,
    read_audit_report,
    needs_all_namespaces=True,
    role="admin",
)
