"""Following runs until they have ended, wherever they live, or until nothing happens any more by itself."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from perdure.cli.progress import Progress
from perdure.engine.client import Client
from perdure.engine.clock import SystemClock
from perdure.engine.runs import run_views
from perdure.engine.runs.run_removal import descendants
from perdure.kernel.errors import NewerRecord, RunNotFound
from perdure.kernel.events import Event
from perdure.kernel.ids import is_family
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Outcome, Status
from perdure.views.access import Access, NoParameters
from perdure.views.administration.server_presence import is_served
from perdure.views.api_errors import NotReady, ServerUnreachable
from perdure.views.runs.progress_events import ProgressNarrator, RunNarrators, event_of_history
from perdure.views.runs.run_list import RunRow
from perdure.views.runs.run_screen import LIVE_STATUS
from perdure.views.runs.run_status import RunStatus, run_status

LOOK_AT_SERVER_EVERY = 0.5  # seconds
LOOKS_AT_ONCE = 50  # of many runs only some are looked at each time, in turn
MESSAGES_LOOKED_AT = 1_000


@dataclass(frozen=True, slots=True)
class Ended:
    status: Status


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing will happen before a person does something."""

    run_status: RunStatus


@dataclass(frozen=True, slots=True)
class Stuck:
    """The run cannot be decided, and says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Orphaned:
    """No live process owns the run, and we cannot take it up."""


@dataclass(frozen=True, slots=True)
class Removed:
    """The run is not there any more: its parent started over, or was deleted."""


End = Ended | Idle | Stuck | Orphaned | Removed


@contextmanager
def listening(client: Client, progress: Progress) -> Iterator[None]:
    """Pass on what is notable about every run of this process; begun before a start, so that nothing is missed."""
    if client.runtime is None:
        yield
        return
    narrators = RunNarrators()
    loop = asyncio.get_running_loop()

    def listen(run: RunId, turns: list[tuple[Instant, list[Event]]]) -> None:
        for sentence in narrators.sentences(run, turns):
            loop.call_soon(progress.happened, run, sentence)  # whoever began the run speaks first

    forget = client.runtime.watch(listen)
    try:
        yield
    finally:
        forget()
        progress.done()


async def follow(
    client: Client, runs: Sequence[RunId], progress: Progress, *, until_idle: bool = False
) -> dict[RunId, End]:
    """How each run ends. With `until_idle` it is enough that all which are left wait for a person."""
    ends: dict[RunId, End] = {}
    idle: dict[RunId, End] = {}
    waits = {run: asyncio.ensure_future(client.wait(run)) for run in runs}
    queue = list(waits)
    pause = progress.every
    try:
        while len(ends) + len(idle) < len(waits):
            await asyncio.wait([waits[run] for run in queue], timeout=pause)
            ends |= {run: _end_of(wait) for run, wait in waits.items() if run not in ends and wait.done()}
            queue = [run for run in queue if run not in ends]
            seen, began = [], asyncio.get_running_loop().time()
            for run in queue[:LOOKS_AT_ONCE]:
                try:
                    status, end = await _read_status(client, run, until_idle)
                except RunNotFound:
                    ends[run] = Removed()
                    continue
                except NewerRecord as error:
                    ends[run] = Stuck(str(error))
                    continue
                seen.append(status)
                idle.pop(run, None)
                if end is not None:
                    (idle if isinstance(end, Idle) else ends)[run] = end
            idle = {run: end for run, end in idle.items() if run not in ends}
            queue = queue[LOOKS_AT_ONCE:] + queue[:LOOKS_AT_ONCE]
            # Reading wide runs is expensive: it may take a tenth of the time, the rest is for the work.
            pause = max(progress.every, 10 * (asyncio.get_running_loop().time() - began))
            progress.show_statuses(seen, client.clock.now())
        return {run: ends.get(run) or idle[run] for run in waits}
    finally:
        progress.done()
        for wait in waits.values():
            wait.cancel()


def _end_of(wait: "asyncio.Future[tuple[Status, Outcome]]") -> End:
    return Removed() if isinstance(wait.exception(), RunNotFound) else Ended(wait.result()[0])


async def follow_on_server(access: Access, run: RunId, progress: Progress) -> End:
    """The same through a server: its events arrive by themselves, and each of them is a reason to look at the run."""
    narrator, changed = ProgressNarrator(run), asyncio.Event()

    async def listen() -> None:
        async for shown in access.follow(run, raw=True):
            event = event_of_history(shown)
            if event is not None and (sentence := narrator.sentence(event)) is not None:
                progress.happened(run, sentence)
            changed.set()

    listening = asyncio.ensure_future(listen())
    clock, statuses, looked_at = SystemClock(), [await access.ask(LIVE_STATUS, NoParameters(), run)], 0.0
    try:
        while not listening.done():
            now = asyncio.get_running_loop().time()
            if changed.is_set() and now - looked_at >= LOOK_AT_SERVER_EVERY:
                changed.clear()
                looked_at = now
                with suppress(ServerUnreachable, NotReady):  # the stream says so, and tries again
                    statuses = [await access.ask(LIVE_STATUS, NoParameters(), run)]
                if statuses[0].row.stuck:
                    return Stuck(statuses[0].row.stuck)
            progress.show_statuses(statuses, clock.now())
            await asyncio.wait([listening], timeout=progress.every)
        listening.result()
        return Ended(await access.status(run))
    finally:
        listening.cancel()
        progress.done()


async def follow_below(client: Client, run: RunId, progress: Progress) -> None:
    """A run may end before those below it that it waited for have stopped: until they have ended too, if they can."""
    while True:
        below = await descendants(client.store, run)
        stopping = [row.id for row in below if not row.status.is_final and await _is_stopping(client, row)]
        ends = await follow(client, stopping, progress, until_idle=True) if stopping else {}
        if not any(isinstance(end, Ended) for end in ends.values()):
            return


async def _is_stopping(client: Client, row: RunRow) -> bool:
    """Whether it was asked to stop, or is about to be: it has words to decide, or nobody waits for it any more."""
    if row.has_control_messages:
        return True
    state = (await run_views.load(client.store, client.languages, row)).state
    return state.cancel_requested or (state.parent is not None and state.parent[1] > 0)


async def _read_status(client: Client, run: RunId, until_idle: bool) -> tuple[RunStatus, End | None]:
    """The status of the run, and whether following it has come to an end other than its own."""
    # Messages first: one that is decided between the two reads is then seen in the status.
    has_messages = until_idle and await _has_messages(client, run)
    status = await run_status(client, run)
    if status.status.is_final:
        return status, None  # its end is being told already
    if status.row.stuck:
        return status, Stuck(status.row.stuck)
    if not status.is_owned and not (await client.find(run)).status.is_final:
        if client.runtime is not None:
            await client.resume([run])  # its owner has died
        elif not await is_served(client):
            return status, Orphaned()
    elif until_idle and not has_messages and not status.goes_on:
        return status, Idle(status)
    return status, None


async def _has_messages(client: Client, run: RunId) -> bool:
    row = await client.find(run)
    inbox = await client.store.inbox([row.partition], MESSAGES_LOOKED_AT)
    return any(is_family(item.message.to, run) for item in inbox)


async def messages_taken(client: Client, runs: Sequence[RunId]) -> None:
    """Until what lay in the inboxes of these runs is decided, so that a reopened run is seen to be open."""
    for run in runs:
        # Perhaps another process decides them: there is no event to wait for.
        with suppress(RunNotFound):
            while await _has_messages(client, run) and not (await client.find(run)).stuck:
                await asyncio.sleep(0.02)
