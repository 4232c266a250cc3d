"""Runs take up their mail in turns. What they decide goes to the committer; what they need is fetched meanwhile."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from perdure.engine.background_tasks import BackgroundTasks
from perdure.engine.clock import Clock
from perdure.engine.decision_threads import ON_THE_LOOP, TakesTooLong, threads
from perdure.engine.document_validation import Fetch
from perdure.engine.group_commit import GroupCommit
from perdure.engine.inbox import Inbox
from perdure.engine.settings import Settings
from perdure.engine.slot import COMMITTING, READY, Phase, Slot
from perdure.engine.stuck_runs import StuckRuns
from perdure.engine.transition_builder import transition
from perdure.kernel.codec import fold
from perdure.kernel.execution import Execution, decide
from perdure.kernel.turn import MissingValues, Turn
from perdure.kernel.turn_budget import TurnBudget, TurnTooExpensive, current
from perdure.kernel.values import Instant
from perdure.stores.protocol import Store, Transition

DECIDED_AT_ONCE = 256
LONGEST_AT_ONCE = 0.01  # seconds before the event loop gets its turn; no decision depends on it

Made = tuple[Turn, MissingValues] | Transition | None
"""What a slot has decided: it needs values first, something has to be written, or nothing."""


class Decider:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        chores: BackgroundTasks,
        committer: GroupCommit,
        inbox: Inbox,
        trouble: StuckRuns,
        *,
        answers: Fetch,
        look: Callable[[], None],
        pin: Callable[[Transition], None],
        erase: Callable[[Slot], None],
        settle: Callable[[Slot], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """`look` drops what is not ours any more, `pin` marks documents, `settle` ends what needs no commit."""
        self._store = store
        self._clock = clock
        self._settings = settings
        self._chores = chores
        self._committer = committer
        self._inbox = inbox
        self._trouble = trouble
        self.answers = answers
        self._look = look
        self._pin = pin
        self._erase = erase
        self._settle = settle
        self._failed = failed
        self._effort = TurnBudget(ON_THE_LOOP)  # of the slot that is being decided on the loop
        self._ahead: Instant = 0  # of the wall, compared with the store's clock, when this pump began
        self._ready: deque[Slot] = deque()
        self._undelivered = 0  # slots decided since the committer was told
        self._listening: list[Slot] = []
        self._is_due = False
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        return not self._ready and not self._is_due

    def close(self) -> None:
        """Nothing more is decided."""
        self._is_closed = True
        self._ready.clear()

    def make_ready(self, slot: Slot) -> None:
        slot.phase = READY
        self._ready.append(slot)
        self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """A callback of the event loop has no caller: an error stops the engine instead of vanishing."""
        self._is_due = False
        try:
            self._decide_some()
        except Exception as error:
            self._failed(error)

    def _decide_some(self) -> None:
        ready = self._ready
        if self._is_closed:
            ready.clear()
        self._look()
        end = time.perf_counter() + LONGEST_AT_ONCE
        self._ahead = self._clock.wall() - self._clock.now()
        while ready and self._undelivered < DECIDED_AT_ONCE:
            slot = ready.popleft()
            self._undelivered += 1
            if slot.phase is READY:
                self._decide(slot)
            if ready and time.perf_counter() > end:
                self._pump_soon()  # the event loop gets its turn; what was decided is committed with what comes next
                return
        self._undelivered = 0
        if ready:
            self._pump_soon()
        self._committer.flush(alone=not ready)

    def _decide(self, slot: Slot) -> None:
        execution = slot.execution
        assert execution is not None
        now = self._clock.now()
        if slot.unfinished is None:
            slot.ahead = self._ahead
            if slot.calendar:
                slot.look_at_wall(now, self._clock.wall())
            if not slot.take(now, self._heard):
                self._listen_first(slot)
                return
            if execution.state.status.is_final and slot.is_disowned and not slot.puts_words_first():
                self._erase(slot)
                return
        if slot.is_dear:
            slot.phase = Phase.FETCHING
            self._chores.spawn(self._decide_elsewhere(slot))
            return
        try:
            self._effort.left = ON_THE_LOOP
            before = current.set(self._effort)
            try:
                made = self._make_turns(slot, now)
            finally:
                current.reset(before)
        except TurnTooExpensive:
            self._begin_anew(slot)
            return
        except Exception as error:
            self._trouble.undecided(slot, error)
            return
        if type(made) is Transition and not made.programs:  # nearly always
            slot.phase = COMMITTING
            self._committer.add(slot, made)
        else:
            self._conclude(slot, made)

    def _make_turns(self, slot: Slot, now: Instant | None = None) -> Made:
        """Decide what was taken up. Touches nothing but the slot, so it may be done in a thread.

        `now` stamps all turns, where they take no time; otherwise each of them reads the clock.
        """
        execution, held, limits = slot.execution, slot.held, self._settings.limits
        assert execution is not None
        for at in range(slot.decided, len(slot.taken)):
            mail = slot.taken[at]
            turn = slot.unfinished
            if turn is None:
                decided_at = self._clock.now() if now is None else now
                turn = Turn(execution, mail.given, mail.at, decided_at, self._store.min_record_version)
                turn.is_acknowledged = mail.position is not None
                turn.ahead = slot.ahead
                turn.name_holders = slot.rivals
                if mail.values:
                    turn.texts.update(mail.values)
            if held:
                needs = decide(turn, limits, is_held=at in held, owes_moves=at - 1 in held)
            else:
                needs = decide(turn, limits)
            if needs is not None:
                slot.unfinished = turn
                return turn, needs
            slot.finish(turn)
        return transition(slot, self._settings.snapshot_bytes)

    def _conclude(self, slot: Slot, made: Made) -> None:
        if isinstance(made, tuple):
            slot.phase = Phase.FETCHING
            self._chores.spawn(self._fetch(slot, *made))
        elif made is None:
            self._settle(slot)
        else:
            if made.programs:
                self._pin(made)
            slot.phase = COMMITTING
            self._committer.add(slot, made)

    def _begin_anew(self, slot: Slot) -> None:
        """The turn is dear and was dropped half-way: what is recorded is folded, and it is decided in a thread."""
        slot.is_dear = True
        slot.cheap = 0
        execution = slot.execution
        if slot.creation is None or execution is None:
            self._trouble.fold_anew(slot)
            return
        slot.put_back()
        fresh = Execution(slot.id, execution.dialect, execution.program)
        if not slot.lived:
            slot.install(fresh)
            self.make_ready(slot)
        else:  # a fork that is not stored yet
            slot.phase = Phase.FETCHING
            self._chores.spawn(self._live_again(slot, fresh))

    async def _live_again(self, slot: Slot, fresh: Execution) -> None:
        await threads.do(lambda: fold(fresh, slot.lived))
        if not slot.is_gone:
            slot.install(fresh)
            self.make_ready(slot)

    async def _decide_elsewhere(self, slot: Slot) -> None:
        try:
            made = await threads.decide(slot, self._make_turns)
        except TurnTooExpensive:
            if not slot.is_gone:
                self._trouble.set_stuck(slot, TakesTooLong("a decision lasts too long; what it computes is too much"))
            return
        except Exception as error:
            if not slot.is_gone:
                self._trouble.undecided(slot, error)
            return
        if not slot.is_gone and not self._is_closed:
            self._conclude(slot, made)
            self._committer.flush(alone=False)  # what was dear may be large, and the disk slow

    def _heard(self, slot: Slot) -> Instant:
        """Letters to a run that is being handed over are for its next owner."""
        return self._clock.now() if slot.is_leaving else self._inbox.heard(slot.partition)

    def _listen_first(self, slot: Slot) -> None:
        """A timer is due. What was acknowledged before it comes first, and may still lie in the store."""
        slot.phase = Phase.FETCHING
        self._listening.append(slot)
        if len(self._listening) == 1:
            self._chores.spawn(self._listen())

    async def _listen(self) -> None:
        listening, self._listening = self._listening, []  # who comes later needs a later look
        await self._inbox.read()
        for slot in listening:
            if slot.phase is Phase.FETCHING:
                self.make_ready(slot)

    async def _fetch(self, slot: Slot, turn: Turn, needs: MissingValues) -> None:
        if needs.lookups:
            turn.answers.update(await self.answers(needs.lookups))
        wanted = needs.digests
        found = {name: slot.unsynced[name] for name in wanted if name in slot.unsynced}
        found.update(await self._store.values(slot.id, [name for name in wanted if name not in found]))
        for mail in slot.taken:
            for source, name in mail.borrowed:
                if name in wanted and name not in found:
                    found.update(await self._store.values(source, [name]))
        if slot.is_gone:
            return
        missing = [name for name in wanted if name not in found]
        if missing and not needs.may_be_absent:
            names = ", ".join(name.hex()[:12] for name in missing)
            self._trouble.set_stuck(slot, LookupError(f"large values {names} are not in the store"))
            return
        turn.absent.update(missing)
        turn.texts.update(found)
        self.make_ready(slot)
