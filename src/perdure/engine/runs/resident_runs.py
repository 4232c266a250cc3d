"""The runs in memory: how they come in, folded from what is recorded of them, and how they leave.

offer ─▶ wanted ─▶ found in the store ─▶ ready
                ├▶ not there: it begins, if a start is in the mail
                ├▶ another's: dropped
                └▶ cannot be read: set aside
"""

import asyncio
import logging
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from perdure.engine.context import EngineContext
from perdure.engine.decision_threads import SMALL, WORK_OF_TEXT, ProgramCache, done_aside
from perdure.engine.runs.run_views import compiled, dialect_of, fold_stored, size_of
from perdure.engine.slot import ELSEWHERE, Mail, Slot, SlotPhase
from perdure.kernel import inputs as i
from perdure.kernel.control_messages import kind_of
from perdure.kernel.dialect import Dialect
from perdure.kernel.errors import NewerRecord, PerdureError
from perdure.kernel.execution import Execution
from perdure.kernel.ids import is_family
from perdure.kernel.inputs import Start
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.versions import pinned_language
from perdure.stores.commit_types import NewRun, RunSummary, Transition
from perdure.stores.protocol import StoredRun

if TYPE_CHECKING:
    from perdure.engine.scheduler import Scheduler

# Bringing runs into memory: many at a time, each folded from what is recorded.

LOADED_AT_ONCE = 256
PROGRAMS_KEPT = 256
PARKED_KEPT = 16 * 1024 * 1024  # bytes of what is recorded of runs that are kept folded


class ParkedRuns:
    """Runs that left memory while workers elsewhere have their tasks: each answer brings one back, and what was folded
    of it is still true if nothing was recorded since. Those that were parked last are kept.
    """

    def __init__(self) -> None:
        self._parked: OrderedDict[RunId, tuple[Execution, int]] = OrderedDict()
        self._bytes = 0

    def add(self, slot: Slot) -> None:
        self.take(slot.id)
        size = slot.snapshot_bytes + slot.tail_bytes
        if slot.execution is None or size > PARKED_KEPT // 4:
            return
        self._parked[slot.id] = (slot.execution, size)
        self._bytes += size
        while self._bytes > PARKED_KEPT:
            _, (_, oldest) = self._parked.popitem(last=False)
            self._bytes -= oldest

    def take(self, run: RunId) -> Execution | None:
        execution, size = self._parked.pop(run, (None, 0))
        self._bytes -= size
        return execution

    def find(self, stored: StoredRun) -> Execution | None:
        """The run as it is recorded; None if it is not here, or another server has gone on with it meanwhile."""
        execution = self.take(stored.row.id)
        last = stored.rows[-1][0] if stored.rows else stored.snapshot[0] if stored.snapshot else 0
        if execution is None or execution.state.seq != last or execution.state.started_at < stored.row.created_at:
            return None
        return execution

    def __contains__(self, run: RunId) -> bool:
        return run in self._parked


class RunLoader:
    def __init__(self, context: EngineContext, runs: "ResidentRuns") -> None:
        """`runs` gets each slot with what the store has of it, if anything."""
        self._store = context.store
        self._dialects = context.dialects
        self._tasks = context.tasks
        self._runs = runs
        self.parked = ParkedRuns()
        self._wanted: deque[Slot] = deque()
        self._programs: ProgramCache[bytes, Any] = ProgramCache(PROGRAMS_KEPT)
        self._is_busy = False
        self._aside = 0  # runs that are being taken in beside the others, because that takes long
        self._compiling: dict[bytes, asyncio.Event] = {}

    @property
    def is_idle(self) -> bool:
        return not self._wanted and not self._is_busy and not self._aside

    def want(self, slot: Slot) -> None:
        self._wanted.append(slot)
        if not self._is_busy:
            self._is_busy = True
            self._tasks.spawn(self._load())

    def close(self) -> None:
        self._wanted.clear()

    async def _load(self) -> None:
        while self._wanted:
            slots = [self._wanted.popleft() for _ in range(min(len(self._wanted), LOADED_AT_ONCE))]
            stored = {run.row.id: run for run in await self._store.load([slot.id for slot in slots])}
            for slot in slots:
                stored_run = stored.get(slot.id)
                if self._is_quick(slot, stored_run):
                    await self._runs.on_loaded(slot, stored_run)
                else:
                    self._aside += 1
                    self._tasks.spawn(self._find_aside(slot, stored_run))
            await asyncio.sleep(0)
        self._is_busy = False

    def _is_quick(self, slot: Slot, stored: StoredRun | None) -> bool:
        """Whether those behind it may wait: there is little to fold and nothing to compile."""
        if stored is not None:
            is_small = size_of(stored) <= SMALL or slot.id in self.parked
            return is_small and stored.row.program in self._programs
        starts = (mail.input for mail in slot.mailbox if isinstance(mail.input, Start))
        return all(start.program in self._programs for start in starts)

    async def _find_aside(self, slot: Slot, stored: StoredRun | None) -> None:
        try:
            await self._runs.on_loaded(slot, stored)
        finally:
            self._aside -= 1

    async def fold(self, stored: StoredRun) -> Execution:
        if (execution := self.parked.find(stored)) is not None:
            return execution
        dialect = dialect_of(self._dialects, stored.row.language)
        return await fold_stored(self._store, stored, dialect, await self.program(stored.row.program, dialect))

    async def program(self, name: bytes, dialect: Dialect) -> Any:
        while (under_way := self._compiling.get(name)) is not None:
            await under_way.wait()
        if (known := self._programs.get(name)) is not None:
            return known
        done = self._compiling[name] = asyncio.Event()
        try:
            pinned = await self._store.program(name)
            if pinned is None:
                raise LookupError(f"document {name.hex()[:12]} is not in the store")
            program = await compiled(dialect, *pinned)
        finally:
            del self._compiling[name]
            done.set()
        self._programs.add(name, program, len(pinned[1]))
        return program

    def mark_editions(self, change: Transition) -> None:
        """Documents as they are pinned, so that an older program does not misread them."""
        editions = {name: pinned_language(dialect) for name, dialect in self._dialects.items()}
        change.programs = [(name, editions.get(language, language), text) for name, language, text in change.programs]


_log = logging.getLogger("perdure.engine")


EXISTS = i.Refused("the run already exists")


class ResidentRuns:
    def __init__(self, context: EngineContext, scheduler: "Scheduler") -> None:
        self._context = context
        self._store = context.store
        self._dialects = context.dialects
        self._clock = context.clock
        self._scheduler = scheduler
        self.slots = context.slots
        self.loader = RunLoader(context, self)

    # Coming in.

    def load(self, run: RunId, mail: Mail) -> None:
        """Mail for a run that is not in memory."""
        if run in self._scheduler.incompatible.moving:  # the store knows in a moment whose it is
            self._scheduler.inbox.forget([mail])
            mail.answer(ELSEWHERE)
            return
        slot = self.slots[run] = Slot(run, 0)
        slot.mailbox.append(mail)
        if self._context.stuck.pop(run, None) is None:
            self.loader.want(slot)
        else:
            self._context.tasks.spawn(self._try_again(slot))

    async def _try_again(self, slot: Slot) -> None:
        """A run that was stuck, with everything that was kept for it: a result that is known is not asked for again."""
        await self._scheduler.inbox.read()
        if not slot.is_gone:
            self.loader.want(slot)

    def prepare_creation(self, slot: Slot, start: i.Start, program: Any) -> None:
        parent = start.parent[0] if start.parent is not None else None
        now = self._clock.now()
        dialect = self._dialects[start.language]
        execution = Execution(slot.id, dialect, program)
        namespace, named = start.namespace or execution.namespace_before(start.options), None
        if dialect.names_runs:
            named = dialect.assign_name(program, slot.id, jsontext.decode(start.options), start.labels)
        slot.creation = NewRun(
            start.language, start.name, start.program, parent, start.labels, start.key, now, named, namespace
        )
        slot.install(execution)

    def reload(self, slot: Slot) -> None:
        """Its decision was not written, or nobody knows: fold what is on disk, offer the same inputs again."""
        slot.put_back()
        slot.execution = None
        slot.phase = SlotPhase.LOADING
        self.loader.want(slot)

    def load_anew(self, slot: Slot) -> None:
        """What was read of it may be of another time."""
        slot.phase = SlotPhase.GONE
        again = self.slots[slot.id] = Slot(slot.id, 0)
        again.mailbox = slot.mailbox
        again.programs = slot.programs
        self.loader.want(again)

    async def on_loaded(self, slot: Slot, stored: StoredRun | None) -> None:
        if slot.is_gone:
            return
        try:
            if stored is None:
                await self._fill_new(slot)
            elif self._may_have(stored.row.partition, slot):
                await self._fill_known(slot, stored)
            else:
                self.drop(slot, ELSEWHERE)
        except NewerRecord as error:
            await self._leave_alone(slot, stored, error)
        except PerdureError:
            raise
        except Exception as error:
            if not slot.is_gone:
                slot.partition = _home(slot, stored)
                self._scheduler.stuck.set_stuck(slot, error, is_born=stored is not None)

    def _may_have(self, partition: int, slot: Slot) -> bool:
        return partition in self._context.partitions or slot.is_leaving

    async def _leave_alone(self, slot: Slot, stored: StoredRun | None, error: NewerRecord) -> None:
        """Nothing of the run is touched: a server that can read it goes on, now or when there is one."""
        if slot.is_gone:
            return
        slot.partition = _home(slot, stored)
        is_transferred = await self._scheduler.incompatible.transfer(slot.id, slot.partition)
        if slot.is_gone:
            return
        if is_transferred:
            self.drop(slot, ELSEWHERE)
        elif stored is not None:
            self._scheduler.stuck.set_stuck(slot, error)
        else:  # its start is a message, and stays in the inbox
            _log.warning("run %s waits for a server with a newer Perdure: %s", slot.id, error, extra={"run": slot.id})
            self._context.stuck[slot.id] = slot.partition
            self.drop(slot, i.Refused(str(error)))

    async def _fill_known(self, slot: Slot, stored: StoredRun) -> None:
        row = stored.row
        execution = await self.loader.fold(stored)
        if slot.is_gone:
            return
        if not self._may_have(row.partition, slot):  # given up while it was being folded
            self.drop(slot, ELSEWHERE)
            return
        slot.partition = row.partition
        slot.creation = None
        slot.summary = RunSummary(row.status, row.has_work, row.due, row.ended_at, row.on_wall)
        slot.tail_bytes = sum(len(body) for _, body in stored.rows)
        slot.snapshot_bytes = len(stored.snapshot[1]) if stored.snapshot else 0
        if row.stuck and not slot.failures:
            slot.failures = 1
        slot.install(execution)
        self._scheduler.commands.assign_tasks(slot, execution)
        if execution.state.sliced:
            slot.mailbox.append(Mail(self._clock.now(), 0, i.Proceed()))
        self._scheduler.make_ready(slot)

    async def _fill_new(self, slot: Slot) -> None:
        """Not in the store: a child about to start, or a message to a run that was removed."""
        mail, start = next(
            ((waiting, waiting.input) for waiting in slot.mailbox if isinstance(waiting.input, i.Start)), (None, None)
        )
        if mail is None or start is None:
            mails = slot.mailbox
            for lost in [
                mail for mail in mails if mail.is_acknowledged_control
            ]:  # a store keeps runs that have control messages
                _log.warning(
                    "run %s no longer exists; a %s to it is dropped",
                    slot.id,
                    kind_of(lost.input),
                    extra={"run": slot.id},
                )
            self.drop(slot, i.Refused("there is no such run"))
            await self._scheduler.inbox.discard(mails)
            return
        dialect = dialect_of(self._dialects, start.language)
        brought = next((text for name, _, text in slot.programs if name == start.program), None)
        if brought is None:
            program = await self.loader.program(start.program, dialect)
        else:
            program = await done_aside(len(brought) * WORK_OF_TEXT, lambda: dialect.load(brought))
        if slot.is_gone:
            return
        slot.partition = slot.partition or mail.partition
        if not self._may_have(slot.partition, slot):
            self.drop(slot, ELSEWHERE)
            return
        self.prepare_creation(slot, start, program)
        self._scheduler.make_ready(slot)

    def is_moving(self, run: RunId) -> bool:
        """Whether the run, or one below it, is about to be decided here, or is being written down."""
        return any(
            slot.phase is not SlotPhase.STUCK and (slot.phase is not SlotPhase.IDLE or bool(slot.mailbox))
            for slot in self.slots.values()
            if is_family(slot.id, run)
        )

    # Leaving.

    def park(self, slot: Slot) -> None:
        """It only waits: it costs disk, not memory."""
        del self.slots[slot.id]
        if slot.pooled:
            self.loader.parked.add(slot)

    def drop(self, slot: Slot, answer: i.Refused) -> None:
        """Not a run of ours: whoever wrote to it is told, nothing is written."""
        self.remove(slot)
        slot.phase = SlotPhase.GONE
        mails = [*slot.taken, *slot.mailbox]
        self._scheduler.inbox.forget(mails)
        for mail in mails:
            mail.answer(answer)

    def refused(self, slot: Slot) -> None:
        """It was to be created, and the store said no: it is there already, or its name is another's."""
        assert slot.creation is not None
        if slot.creation.named is None:
            self.drop(slot, EXISTS)
        else:
            self._context.tasks.spawn(self._explain(slot, slot.creation))

    async def _explain(self, slot: Slot, new: NewRun) -> None:
        assert new.named is not None
        holder = await self._store.run_named(new.language, new.namespace, new.named)
        if slot.is_gone:
            return
        if holder is None or holder == slot.id:
            self.drop(slot, EXISTS)
            await self._scheduler.inbox.read()  # the messages that were to start it are still there
        else:
            self._scheduler.stuck.set_aside(
                slot, f"the name {new.named!r} in namespace {new.namespace!r} belongs to run {holder}"
            )

    def remove(self, slot: Slot) -> None:
        del self.slots[slot.id]
        if slot.is_leaving:
            self._scheduler.handover.gone(slot)


def _home(slot: Slot, stored: StoredRun | None) -> int:
    """Where a run is, or is to be born."""
    if stored is not None:
        return stored.row.partition
    return slot.partition or next((mail.partition for mail in slot.mailbox if mail.partition), 0)
