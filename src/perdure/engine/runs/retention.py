"""Removing what has been kept long enough, as the operator's rules or its language say: children first, then the run.

In bounded batches. A run is told to `clean` and records it before anything of it goes, so that a crash between the two
is made up for by the next sweep.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase

import msgspec

from perdure.engine.client import Client
from perdure.engine.decision_threads import ShortTurns
from perdure.engine.resources.catalog import ResourceNotFound
from perdure.engine.resources.resource_views import find_views
from perdure.engine.runs import run_views
from perdure.engine.runs.message_sending import SendResult, not_ended
from perdure.engine.runs.run_removal import descendants, remove_runs
from perdure.kernel import inputs as i
from perdure.kernel.documents.lookups import ResourceKey
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.errors import Conflict, NewerRecord
from perdure.kernel.execution import Execution
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Retention, Status
from perdure.kernel.versions import read_pinned
from perdure.stores.commit_types import Message
from perdure.stores.protocol import RunRow

LOOKED_AT_ONCE = 500
MOST_KNOWN = 100_000
REQUEST_ENTRY = "perdure.dev/request"
"""The label of a run that names the request which started it, as `kind/namespace/name`; it is removed with the run."""
OWNER_CHECKS = 40  # looks, 50 ms apart, at a run that another process has to write to


class Swept(msgspec.Struct, frozen=True):
    cleaned: int = 0
    removed: int = 0

    @property
    def count(self) -> int:
        return self.cleaned + self.removed

    def __add__(self, other: "Swept") -> "Swept":
        return Swept(self.cleaned + other.cleaned, self.removed + other.removed)


class RetentionRule(msgspec.Struct, frozen=True):
    """How long an operator keeps ended runs; an empty member fits every run. The first rule that fits a run counts."""

    keep: Instant | None  # None: for ever
    language: str = ""
    document: str = ""  # its name, or a pattern such as `etl/*`
    namespace: str = ""
    statuses: tuple[Status, ...] = ()

    def fits(self, row: RunRow) -> bool:
        return (
            self.language in ("", row.language)
            and (not self.document or fnmatchcase(row.name, self.document))
            and self.namespace in ("", row.namespace)
            and (not self.statuses or row.status in self.statuses)
        )


class Sweeper:
    def __init__(self, client: Client, rules: Sequence[RetentionRule] = ()) -> None:
        """`rules` come before what a run's own language says."""
        self._client = client
        self._rules = rules
        self._keeping: dict[bytes, Retention] = {}
        self._clean: set[RunId] = set()  # known to be

    async def sweep(self, limit: int = 500) -> Swept:
        """Clean or remove up to `limit` runs whose time has come, those that ended first first."""
        languages = self._client.languages
        keeping = [name for name, language in languages.items() if language.has_retention]
        swept = await self._sweep(keeping, self._client.clock.now(), limit)
        spans = [rule.keep for rule in self._rules if rule.keep is not None]
        if spans:
            ruled = [name for name in languages if name not in keeping and self._may_rule(name)]
            swept += await self._sweep(ruled, self._client.clock.now() - min(spans), limit - swept.count)
        if len(self._clean) > MOST_KNOWN:
            self._clean.clear()
        if swept.removed:
            await self._client.store.prune(0, 1)  # which finds none, and clears what no run names any more
        return swept

    def _may_rule(self, language: str) -> bool:
        return any(rule.keep is not None and rule.language in ("", language) for rule in self._rules)

    async def _sweep(self, languages: Sequence[str], ended_by: Instant, limit: int) -> Swept:
        """Those of these languages that ended until then."""
        swept, turns = Swept(), ShortTurns()
        behind: tuple[Instant, RunId] = (0, RunId(""))
        while languages and swept.count < limit:
            rows = await self._client.store.ended(languages, behind, LOOKED_AT_ONCE)
            for row in rows:
                if swept.count >= limit or (row.ended_at or 0) > ended_by:
                    return swept
                with suppress(NewerRecord):  # who can read it looks after it
                    swept += await self._sweep_run(row)
                await turns.pause()
            if len(rows) < LOOKED_AT_ONCE:
                break
            behind = (rows[-1].ended_at or 0, rows[-1].id)
        return swept

    async def _sweep_run(self, row: RunRow) -> Swept:
        keeping = await self._keeping_of(row)
        if keeping is None or row.ended_at is None:
            return Swept()
        age = self._client.clock.now() - row.ended_at
        cleaned = 0
        if keeping.children is not None and age >= keeping.children and row.id not in self._clean:
            was_clean = await self._cleaned(row)
            if was_clean is None:
                return Swept()  # something of it has not ended, or nobody could write to it
            cleaned += not was_clean
        if keeping.record is None or age < keeping.record or not await self.remove(row.id):
            return Swept(cleaned)
        self._clean.discard(row.id)
        return Swept(cleaned, 1)

    async def remove(self, run: RunId) -> bool:
        """The run, its children before it; False if some have not ended or have undecided control messages."""
        store = self._client.store
        below = await descendants(store, run)
        if any(not row.status.is_final for row in below) or await store.unstarted_children(run):
            return False
        if any(row.has_control_messages for row in (await self._client.find(run), *below)):
            return False
        await self._remove_entries(run)
        return run in await self._erase([*(row.id for row in reversed(below)), run])

    async def _erase(self, runs: Sequence[RunId]) -> list[RunId]:
        return await remove_runs(self._client.store, self._client.languages, runs)

    async def disown(self, run: RunId) -> None:
        """Have a run removed, by whoever owns it, once what is below it has been cancelled and has stopped."""
        await self._remove_entries(run)
        await self._client.store.send(Message(run, self._client.clock.now(), i.encode(i.Disown())))

    async def _remove_entries(self, run: RunId) -> None:
        row = await self._client.find(run)
        execution = await run_views.load(self._client.store, self._client.languages, row)
        entries = self._client.languages[row.language].goes_with(execution)
        kind, _, rest = row.labels.get(REQUEST_ENTRY, "").partition("/")
        if rest:
            entries = [*entries, ResourceKey(kind, *rest.split("/", 1))]
        if entries:
            await self._client.catalog.delete(entries)

    async def _keeping_of(self, row: RunRow) -> Retention | None:
        language = self._client.languages.get(row.language)
        if language is None:
            return None
        if row.program not in self._keeping:
            pinned = await self._client.store.program(row.program)
            if pinned is None:
                return None
            program = read_pinned(language, *pinned)
            own = language.retention(program) if language.has_retention else Retention(None, None)
            self._keeping[row.program] = own
        own = self._keeping[row.program]
        for rule in self._rules:
            if rule.fits(row):
                return Retention(own.children, None if rule.keep is None else max(rule.keep, own.children or 0))
        return own

    async def _cleaned(self, row: RunRow) -> bool | None:
        """Have the run note that its children go, and remove them; whether that was done before; None: not now."""
        client = self._client
        below = await descendants(client.store, row.id)
        if any(not row_below.status.is_final for row_below in below):
            return None
        execution = await client.execution(row.id)
        was_clean = self._is_clean(execution)
        if not was_clean:
            await client.steer(row.id, "clean", key=f"clean:{execution.state.incarnation}", by="retention")
            if client.runtime is not None and not await client.store.owned([row.partition]):
                await client.runtime.adopt([row.id])
            for _ in range(OWNER_CHECKS):
                if self._is_clean(await client.execution(row.id)):
                    break
                await asyncio.sleep(0.05)
            else:
                return None
        if below:
            await self._erase([run_row.id for run_row in reversed(below)])
        self._clean.add(row.id)
        return was_clean

    def _is_clean(self, execution: Execution) -> bool:
        dialect = execution.dialect
        return dialect.has_retention and dialect.is_clean(execution)


async def delete_run(client: Client, run: RunId) -> SendResult:
    """Remove a run that has ended, with all below it. If some of that is open, it is cancelled first."""
    row = await client.find(run)
    if not row.status.is_final:
        raise not_ended(run)
    if row.has_control_messages:
        hint = f"Let it be decided with `perdure resume {run}`; then remove it."
        raise Conflict(f"run {run} has a control message that is not decided yet", hint=hint, run=run)
    if row.parent is not None and await client.store.find(row.parent) is not None:
        hint = f"It is removed with the run that started it: `perdure delete run {row.parent}`."
        raise Conflict(f"run {run} is part of run {row.parent}", hint=hint, run=run)
    sweeper = Sweeper(client)
    if await sweeper.remove(run):
        return SendResult(True, True)
    await sweeper.disown(run)
    is_live = bool(await client.store.owned([row.partition])) or any(
        server.serves for server in await client.store.servers()
    )
    return SendResult(False, is_live, remarks=("it is removed when its sub-runs have stopped",))


class DeletedResources(msgspec.Struct, frozen=True):
    keys: list[ResourceKey]
    waiting: list[RunId]  # runs that are removed when their sub-runs have stopped


async def delete_resources(
    client: Client, kinds: Mapping[ResourceKey, ResourceKind], *, ignore_missing: bool = False
) -> DeletedResources:
    """Delete entries of the catalog and ended runs by the names under which they are shown; all of them, or none."""
    entries = await client.store.resources(list(kinds))
    runs = {key: run for key, kind in kinds.items() if kind.of_runs for run in await _ended_runs(client, kind, key)}
    missing = [key for key in kinds if key not in entries and key not in runs]
    if missing and not ignore_missing:
        titles = ", ".join(kinds[key].title(key.name) for key in missing)
        raise ResourceNotFound(f"there is no {titles}; nothing was removed")
    waiting = []
    sweeper = Sweeper(client)
    for run in runs.values():
        if not await sweeper.remove(run):  # sub-runs of it are open: they stop first (STY-091)
            await sweeper.disown(run)
            waiting.append(run)
    return DeletedResources([*await client.catalog.delete(list(entries)), *runs], waiting)


async def _ended_runs(client: Client, kind: ResourceKind, key: ResourceKey) -> list[RunId]:
    """The run of that name, if there is one; one that has not ended is not removed (STY-191)."""
    rows = [row for row, _ in await find_views(client, kind, key.name, key.namespace)]
    for row in rows:
        if not row.status.is_final:
            hint = f"Cancel it first: `perdure cancel {row.id}`."
            raise Conflict(f"{kind.title(key.name)} has not ended; nothing was removed", hint=hint)
        if row.has_control_messages:
            hint = f"Let it be decided with `perdure resume {row.id}`; then remove it."
            raise Conflict(f"{kind.title(key.name)} has a control message that is not decided yet; it stays", hint=hint)
    return [row.id for row in rows]
