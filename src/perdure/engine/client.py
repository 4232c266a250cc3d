"""What callers see of the engine: start a document, follow it, steer it, from this process or from another one."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from perdure.engine.clock import Clock
from perdure.engine.handle import Handle
from perdure.engine.random_ids import new_key, run_id_for_name
from perdure.engine.resources.catalog import Catalog
from perdure.engine.resources.catalog_changes import Change, Finding
from perdure.engine.resources.document_validation import DocumentValidator, in_no_language
from perdure.engine.resources.lookup_answers import answer
from perdure.engine.resources.resource_views import find_part
from perdure.engine.runs import run_views
from perdure.engine.runs.document_start import Document, Seen, StartRequest, start_run
from perdure.engine.runs.dry_run import DryRun, Pending, with_pending
from perdure.engine.runs.fork_points import ForkChanges, fork
from perdure.engine.runs.message_sending import ANSWER_TIMEOUT, SendResult, tell
from perdure.engine.runs.run_removal import descendants, prune_runs
from perdure.engine.runtime import Runtime
from perdure.kernel import inputs as i
from perdure.kernel.control_messages import is_control_message
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.lookups import CalleeLookup, Lookup, LookupAnswers, ResourceKey
from perdure.kernel.documents.validation import AppliedDocument, Resource, Validated
from perdure.kernel.errors import Conflict, InvalidDocument, PerdureError, RunNotFound
from perdure.kernel.execution import Execution
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Outcome, Status
from perdure.stores.access import Act
from perdure.stores.commit_types import Message
from perdure.stores.protocol import RunFilter, RunRow, Store

STARTED_ON_STORE = ("", "store")  # by whoever can write to it
LOOK_EVERY = 0.05  # seconds between looks at a run that another process owns


class Client(AbstractAsyncContextManager["Client"]):
    """An engine together with its store. Without a runtime it can look and send messages, but runs nothing."""

    from_api = False  # its documents come through the API of a server, whose policy binds them
    act: Act | None = None  # what somebody does with it, if that is to be recorded
    answer_timeout = ANSWER_TIMEOUT  # seconds that the owner of a run elsewhere gets to decide what it is told

    def __init__(self, store: Store, languages: Mapping[str, Dialect], clock: Clock, runtime: Runtime | None) -> None:
        self.store = store
        self.languages = languages
        self.clock = clock
        self.runtime = runtime
        self.validator = DocumentValidator(languages, self.known)
        self.catalog = Catalog(store, languages, self.validator, clock.wall)
        if runtime is not None:
            runtime.answer_with(self.answers)

    async def __aenter__(self) -> Self:
        if self.runtime is not None:
            await self.runtime.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.runtime is not None:
            await self.runtime.close()
        else:
            await self.store.close()

    def acting(self, act: Act) -> Self:
        """The same engine for one act, whose record is written in the transaction that makes it."""
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__
        other.act, other.store = act, self.store.acting(act)
        other.catalog = self.catalog.on(other.store)
        return other

    def running(self) -> Runtime:
        if self.runtime is None:
            hint = "Open `perdure.Engine` on the store to start, fork or resume runs."
            raise PerdureError("an Observer only reads and sends messages", hint=hint)
        return self.runtime

    # Starting.

    async def check(
        self,
        text: bytes,
        origin: str = "document",
        *,
        applied: Sequence[AppliedDocument] = (),
        chosen: str = "",
        namespace: str = DEFAULT_NAMESPACE,
    ) -> tuple[Dialect, Validated]:
        """The language of a document, its program, and every problem it has among what was applied with it."""
        language = await self.validator.find_language(text)
        if language is None:
            raise InvalidDocument(f"{origin}: {in_no_language(self.languages)}")
        return language, await self.validator.validate(language, text, applied, chosen=chosen, namespace=namespace)

    async def start(
        self,
        document: str | Path | bytes | Mapping[str, Any],
        input: Any = None,
        *,
        name: str | None = None,
        applied: Sequence[AppliedDocument] = (),
        chosen: str = "",
        options: Mapping[str, Any] | None = None,
        token: str | None = None,
        labels: Mapping[str, str] | None = None,
        system_labels: Mapping[str, str] | None = None,
        seed: int | None = None,
        namespace: str | None = None,
        started_by: tuple[str, str] = STARTED_ON_STORE,
        from_api: bool | None = None,
        request: StartRequest | None = None,
        checked: tuple[Dialect, Validated] | None = None,
        seen: Seen | None = None,  # hears of a run that is new
    ) -> Handle:
        """Start a document; answers once the start is on disk. The same token starts the same run only once.

        `name` is for documents that have none of their own; a file is called like itself. `applied` are texts that
        the document may refer to; they are recorded with the run. `chosen` says which document of several is run.
        `namespace` is where the run and all runs that it starts belong (default: where the document says).
        """
        # For a server: `system_labels` no caller may give, `from_api` is the origin of an entry of the catalog.
        run = await self._begin(
            document,
            input,
            name=name,
            applied=applied,
            chosen=chosen,
            options=options or {},
            token=token,
            labels=labels or {},
            system_labels=system_labels or {},
            seed=seed,
            namespace=namespace,
            started_by=started_by,
            from_api=self.from_api if from_api is None else from_api,
            request=request,
            checked=checked,
            seen=seen,
        )
        return Handle(self, run)

    async def _begin(self, document: Document, input: Any, **how: Any) -> RunId:
        return await start_run(self, document, input, **how)

    async def known(self, lookups: Sequence[Lookup]) -> LookupAnswers:
        """What validation needs: entries of the catalog, and runs if their language shows them as resources."""
        answers = await answer(self.store, lookups)
        for lookup in lookups:
            if isinstance(lookup, ResourceKey) and answers[lookup] is None and lookup.kind in self._run_kinds:
                is_run = self._run_kinds[lookup.kind][2]
                answers[lookup] = await (self._named_run(lookup) if is_run else find_part(self, lookup))
        return answers

    @cached_property
    def _run_kinds(self) -> dict[str, tuple[str, Dialect, bool]]:
        """By kind: the language that shows its runs as resources of this kind, and whether one is a run itself."""
        shows = [(name, language) for name, language in self.languages.items() if language.shows_resources]
        return {
            kind.name: (name, language, kind.is_request)
            for name, language in reversed(shows)
            for kind in self.languages[name].kinds
            if kind.of_runs
        }

    async def _named_run(self, key: ResourceKey) -> Resource | None:
        name, language, _ = self._run_kinds[key.kind]
        row = await self.store.find(run_id_for_name(name, key.namespace, key.name))
        return None if row is None else language.resources(await self.show(row.id))[0]

    async def answers(self, lookups: Sequence[Lookup]) -> LookupAnswers:
        """What runs of this engine ask."""
        plain = [lookup for lookup in lookups if not isinstance(lookup, CalleeLookup)]
        answers = await answer(self.store, plain, self.languages.values())
        called = [lookup for lookup in lookups if isinstance(lookup, CalleeLookup)]
        return answers | {lookup: await self.catalog.callee(lookup) for lookup in called}

    async def fork(self, run: RunId, at: int | None = None, *, at_failure: ForkChanges | None = None) -> Handle:
        """A new run with this one's past up to an event: finished work is a fact, open work is issued anew.

        The event is counted as in `history`; the fork begins at the end of its turn. Where the run had ended by then,
        `Conflict` names the nearest event that can be forked from. `at_failure`: see `ForkChanges`.
        """
        return Handle(self, await fork(self, run, at, at_failure))

    async def resume(self, runs: Sequence[RunId] | None = None) -> None:
        """Take up what no live process owns: everything, or these runs."""
        await self.running().adopt(runs)

    # Looking.

    def handle(self, run: str) -> Handle:
        """The run of this id; nothing is read."""
        return Handle(self, RunId(run))

    async def resolve(self, name: str, namespaces: Sequence[str] | None = None) -> RunId:
        """The run of this id or name, or whose id begins so if that is unambiguous; `@latest`: the last root run.

        Looked for in these namespaces only; None: in all.
        """
        return await run_views.resolve(self.store, self.languages.values(), name, namespaces)

    async def named(self, label: str, name: str, namespaces: Sequence[str] | None = None) -> list[RunRow]:
        """Runs with a name under this label. Of those that one parent has started, life after life, the latest."""
        return await run_views.named(self.store, label, name, namespaces)

    async def find(self, run: RunId) -> RunRow:
        row = await self.store.find(run)
        if row is None:
            raise RunNotFound(f"there is no run {run!r}")
        return row

    async def search(self, filter: RunFilter) -> list[RunRow]:
        return await self.store.search(filter)

    async def body(self, run: RunId, ref: str) -> Any:
        """The body behind a reference of this run; the run's own result when the reference is empty."""
        _, execution, _ = await self.outlook(run)
        return await run_views.body_of(self.store, execution, ref, self.clock.now())

    async def execution(self, run: RunId) -> Execution:
        """The run as it is recorded, to look at."""
        return await run_views.load(self.store, self.languages, await self.find(run))

    async def outlook(self, run: RunId) -> tuple[RunRow, Execution, list[Pending]]:
        """The run as it stands, and what is recorded and not decided yet.

        Where a live process drives it that is what was decided. Where nobody does, what is recorded is rehearsed.
        """
        row = await self.find(run)
        execution = await run_views.load(self.store, self.languages, row)
        now = self.clock.now()
        ahead = self.clock.wall() - now
        timers = execution.state.timers.values()
        bounds = (timer.due_with(ahead) for timer in timers if timer.rank < i.CONTROL_WAIT_RANK)
        if not (row.has_control_messages or any(due <= now for due in bounds)) or await self.store.owned(
            [row.partition]
        ):
            return row, execution, []
        rehearsal = DryRun(self.store, self.answers, execution, now, ahead)
        mask = await run_views.mask_of(self.store, execution)
        if row.stuck:  # what it cannot decide is not tried here either
            return row, execution, [pending.masked(mask) for pending in await rehearsal.waiting()]
        await rehearsal.play()
        return row, execution, [pending.masked(mask) for pending in rehearsal.pending]

    async def show(self, run: RunId, at: int | None = None) -> Any:
        """What the run is, as `perdure show --json` prints it; `at`: as it was at an event."""
        if at is not None:
            return await run_views.show(
                self.store, await run_views.load(self.store, self.languages, await self.find(run), at)
            )
        _, execution, pending = await self.outlook(run)
        return with_pending(await run_views.show(self.store, execution), pending)

    async def text(self, run: RunId, payload: Any) -> bytes:
        if isinstance(payload, bytes):
            return payload
        return (await self.store.values(run, [payload.digest]))[payload.digest]

    async def history(
        self, run: RunId, after: int = 0, *, raw: bool = False, limit: int | None = None
    ) -> list[dict[str, Any]]:
        """What happened after event `after`, in the language's own event names where it has any.

        `raw` asks for the kernel's events, which every language has.
        """
        row = await self.find(run)
        with run_views.naming(run):
            dialect = run_views.dialect_of(self.languages, row.language)
            mask = await run_views.mask_of_run(self.store, self.languages, row)
            is_own = dialect.has_own_history and not raw
            from perdure.engine.runs.history_pages import histories_of  # most commands read none

            return await histories_of(self.store).read(dialect, row, mask, after, is_own=is_own, limit=limit)

    async def follow(self, run: RunId, after: int = 0, *, raw: bool = False) -> AsyncIterator[dict[str, Any]]:
        """The history as it grows, until the run has ended."""
        last_seq, recorded = after, 0
        while True:
            is_over = (await self.find(run)).status.is_final
            if rows := await self.store.history(run, recorded):
                recorded = rows[-1][0]
                for event in await self.history(run, last_seq, raw=raw):
                    last_seq = event["seq"]
                    yield event
            if is_over:
                return
            await self._something_happened(run)

    async def _something_happened(self, run: RunId) -> None:
        if self.runtime is None:
            return await asyncio.sleep(LOOK_EVERY)
        happened = asyncio.Event()
        forget = self.runtime.watch(lambda which, _: happened.set() if which == run else None)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await happened.wait()
        finally:
            forget()

    async def wait(self, run: RunId) -> tuple[Status, Outcome]:
        """Until the run has ended, in this process or in another."""
        while (ended := await self._wait_here(run)) is None:
            row = await self.find(run)
            if row.status.is_final:
                execution = await run_views.load(self.store, self.languages, row)
                assert execution.state.outcome is not None
                return row.status, execution.state.outcome
            await asyncio.sleep(LOOK_EVERY)
        return ended

    async def _wait_here(self, run: RunId) -> tuple[Status, Outcome] | None:
        """How a run of ours ends; None when it is not, or not any more, one of ours."""
        if self.runtime is None:
            return None
        ended = self.runtime.ended(run)  # before looking, so that no end is missed
        try:
            return await ended if self.runtime.is_open_here(run) or await self._ends_here(run) else None
        finally:
            self.runtime.unwait(run, ended)

    async def _ends_here(self, run: RunId) -> bool:
        row = await self.find(run)
        return not row.status.is_final and row.partition in self.running().partitions

    # Steering.

    async def cancel(self, run: RunId, reason: str = "", by: str = "", *, cascade: bool = False) -> SendResult:
        """Ask the run to stop; answers once the request is on disk.

        How it treats children that it waits for is its language's business. `cascade` asks every run below it too,
        also those that nobody waits for.
        """
        request = i.Cancel(reason, by)
        if not cascade:
            return await self.tell(run, request)
        # The ended ones are looked through too: their children may live on. Some are only about to begin.
        below = [row.id for row in await descendants(self.store, run) if not row.status.is_final]
        below += await self.store.unstarted_children(run)
        if not below:
            return await self.tell(run, request)
        count = "1 run below it is asked too" if len(below) == 1 else f"{len(below)} runs below it are asked too"
        try:
            result = await self.tell(run, request, along=below)
        except Conflict:  # it has ended itself
            now, body, is_control = self.clock.now(), i.encode(request), is_control_message(request)
            await self.store.send_together([Message(child, now, body, is_control) for child in below])
            result = SendResult(True, True, is_new=False)
        if self.runtime is not None:  # some of them may be ours
            await self.runtime.read_inbox()
        return msgspec.structs.replace(result, remarks=(*result.remarks, count))

    async def signal(
        self, run: RunId, name: str, value: Any = None, *, key: str | None = None, by: str = ""
    ) -> SendResult:
        """Send a signal; it is kept if the run does not wait for it yet."""
        return await self.tell(run, i.Signal(name, jsontext.encode(value), key or new_key(), by))

    async def steer(
        self, run: RunId, verb: str, body: Any = None, *, key: str | None = None, by: str = ""
    ) -> SendResult:
        return await self.tell(run, i.Steer(verb, jsontext.encode(body), key or new_key(), by))

    async def redrive(self, run: RunId, body: Any = None, *, key: str | None = None, by: str = "") -> SendResult:
        """Reopen a run that has ended: a further life under the same id."""
        return await self.tell(run, i.Reopen(jsontext.encode(body), key or new_key(), by))

    async def tell(self, run: RunId, message: i.Input, *, along: Sequence[RunId] = ()) -> SendResult:
        """Offer a control message to a run of ours, or put it durably into the inbox of another one.

        What will not count is refused, as far as anybody can know: see `message_sending`. `along`: other runs that are
        told the same, at once.
        """
        return await tell(self, run, message, along)

    async def apply(self, texts: Sequence[AppliedDocument], namespace: str = "") -> tuple[list[Change], list[Finding]]:
        """Put what these texts declare into the catalog; runs that wait for some of it hear of it at once."""
        done = await self.catalog.apply(texts, namespace)
        if self.runtime is not None:
            await self.runtime.read_inbox()
        return done

    async def prune(self, ended_before: Instant) -> int:
        """Remove runs whose whole tree ended before then, in batches, so that others may write; how many."""
        return await prune_runs(self.store, self.languages, ended_before)
