"""How a run stands: what is done, what is open, what it waits for, and whether that comes by itself.

Read from the kernel's part of a run, which is the same for every language. Only what somebody has to say, a signal or a
patch, is the language's own to name.
"""

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from perdure.engine.runs import run_views
from perdure.kernel.errors import RunNotFound
from perdure.kernel.execution import Execution
from perdure.kernel.graphs.step_overview import StepDelay
from perdure.kernel.instants import format_instant
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Status
from perdure.kernel.state import OpenTask, State
from perdure.kernel.tasks.assignments import short_name
from perdure.kernel.tasks.permits import resource_of
from perdure.stores.protocol import RunRow
from perdure.views.times import span

if TYPE_CHECKING:
    from perdure.engine.client import Client

MAX_CHILDREN_LISTED = 20
ENGRAM_CODE = "EngramCode"
KINDS_PROVIDED_BY_CODE = ("Engram", "EngramTemplate")  # loaded code stands for them


class WaitReason(Enum):
    TIMER = "timer"
    RETRY = "retry"
    SIGNAL = "signal"
    CHILD = "child"
    PERMIT = "permit"
    PROVIDER = "provider"
    RESOURCE = "resource"
    WORKER = "worker"
    SETTLEMENT = "settlement"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that must happen before the run goes on."""

    reason: WaitReason
    about: str
    due: Instant | None = None
    comes: bool = True  # by itself; a signal and a missing provider need a person
    is_code: bool = False  # code that can be loaded would bring it
    is_limit: bool = False  # only says how long something else may take
    retry: StepDelay | None = None

    def text(self, now: Instant) -> str:
        """What it waits for: `a permit of 'db'`, `the next try of step 'pay' (attempt 2 of 3), due in 4 s`."""
        return self.about if self.due is None else f"{self.about}, due in {span(self.due - now)}"

    def sentence(self, now: Instant) -> str:
        """`waits for a permit of 'db'`, `step 'pay' tries again in 4 s (attempt 2 of 3)`."""
        if self.retry is None or self.due is None:
            return f"waits for {self.text(now)}"
        return f"step {self.retry.step!r} tries again in {span(self.due - now)} ({self.retry.count})"


@dataclass(frozen=True, slots=True)
class RunStatus:
    row: RunRow
    status: Status
    started_at: Instant
    seq: int
    tasks_done: int
    tasks_open: Counter[str]  # by provider
    waits: tuple[Wait, ...]
    is_owned: bool
    is_moving: bool  # it has moves to make, and needs nothing from outside for them

    @property
    def awaited(self) -> tuple[Wait, ...]:
        """What it waits for; a timeout around its work or its wait does not count."""
        return tuple(wait for wait in self.waits if not wait.is_limit)

    @property
    def goes_on(self) -> bool:
        """Whether anything will happen without a person doing something."""
        waiting_tasks = sum(wait.reason is WaitReason.PROVIDER for wait in self.waits)
        comes = any(wait.comes for wait in self.waits)
        return self.is_moving or comes or len(self.tasks_open) > waiting_tasks


async def run_status(client: "Client", run: RunId) -> RunStatus:
    row = await client.find(run)
    return await status_of_execution(client, row, await run_views.load(client.store, client.languages, row))


async def status_of_execution(client: "Client", row: RunRow, execution: Execution) -> RunStatus:
    state = execution.state
    is_open = not state.status.is_final
    return RunStatus(
        row,
        state.activity,
        state.started_at,
        state.seq,
        state.tasks_ended,
        Counter(task.provider for task in state.tasks.values() if _can_work(task)),
        tuple(await _waits(client, execution)) if is_open else (),
        is_open and bool(await client.store.owned([row.partition])),
        is_open
        and ((state.sliced and not state.is_held) or (client.runtime is not None and client.runtime.is_moving(row.id))),
    )


def count_open_tasks(state: State) -> int:
    return sum([_can_work(task) for task in state.tasks.values()])


def _can_work(task: OpenTask) -> bool:
    return not task.held and not task.is_kept_back


async def _waits(client: "Client", execution: Execution) -> list[Wait]:
    return _listed(client, execution, await _workers(client, execution), await _children(client, execution))


def waits_at_hand(client: "Client", execution: Execution) -> list[Wait] | None:
    """What it waits for, without a look into the store; None where that is not enough."""
    state = execution.state
    if state.status.is_final:
        return []
    if state.children or any(task.pool for task in state.tasks.values()):
        return None
    return _listed(client, execution, [], [])


def _listed(client: "Client", execution: Execution, workers: list[Wait], children: list[Wait]) -> list[Wait]:
    state = execution.state
    if state.is_held:
        return [_pause(execution)]
    waits = _missing_providers(client, execution)
    if state.pause is not None:
        waits.append(_pause(execution))
    waits += workers
    held = Counter(task.held for task in state.tasks.values() if task.held)
    waits += [Wait(WaitReason.SETTLEMENT, f"somebody to settle the effect {key!r}", comes=False) for key in held]
    scopes = Counter(permit.scope for permit in state.permits.values() if not permit.granted)
    waits += [_permit(scope) for scope in scopes]
    waits += children
    if state.activity is Status.WAITING:
        waits += [Wait(WaitReason.SIGNAL, awaited, comes=False) for awaited in execution.dialect.awaits(execution)]
    return waits + _timers(client, execution, waits)


async def _workers(client: "Client", execution: Execution) -> list[Wait]:
    language = execution.dialect.name
    tasks = [task for task in execution.state.tasks.values() if task.pool and not task.held]
    if not tasks:
        return []
    from perdure.views.administration.worker_pools import why_nobody_works  # most runs have no pool

    places = Counter((task.pool, short_name(task.provider, language)) for task in tasks)
    nobody = await why_nobody_works(client, list({pool for pool, _ in places}), {provider for _, provider in places})
    waits = [
        Wait(WaitReason.WORKER, f"a worker: {why}", comes=False) for why in dict.fromkeys(why for _, why in nobody)
    ]
    explained = {(backlog.pool, backlog.provider) for backlog, _ in nobody}
    pools: Counter[str] = Counter()
    for place, count in places.items():
        if place not in explained:
            pools[place[0]] += count
    return waits + [
        Wait(WaitReason.WORKER, f"a worker of pool {pool!r} ({count} task{'s' * (count > 1)})")
        for pool, count in pools.items()
    ]


def _timers(client: "Client", execution: Execution, waits: list[Wait]) -> list[Wait]:
    """Sleeps and delays are waits; a bound, and the timeout of a wait, only limit something else."""
    ahead = client.clock.wall() - client.clock.now()
    timers = execution.state.timers
    delays = {number: timer.due_with(ahead) for number, timer in timers.items() if timer.rank <= 0}
    limits = [timer.due_with(ahead) for timer in timers.values() if timer.rank > 0]
    # Where code is missing, a bound around it does not make the run go on: it only says how long it may wait.
    lacks_code = any(wait.reason is WaitReason.PROVIDER or wait.is_code for wait in waits)
    delayed = _delays(execution, delays) if delays else []
    if limits:
        delayed.append(Wait(WaitReason.TIMER, "a timeout", min(limits), comes=not lacks_code, is_limit=True))
    return delayed


def _delays(execution: Execution, dues: dict[int, Instant]) -> list[Wait]:
    """One per step, the next first: a step may have many, such as the items of a loop."""
    steps = execution.dialect.delays(execution)
    waits: dict[tuple[str, bool], list[Wait]] = {}
    for number, due in sorted(dues.items(), key=lambda item: item[1]):
        delay = steps.get(number)
        if delay is None:
            wait = Wait(WaitReason.TIMER, "a timer", due)
        elif delay.attempt:
            about = f"the next try of step {delay.step!r} ({delay.count})"
            wait = Wait(WaitReason.RETRY, about, due, retry=delay)
        else:
            wait = Wait(WaitReason.TIMER, f"the time set in step {delay.step!r}", due)
        waits.setdefault((wait.about if delay is None else delay.step, wait.retry is None), []).append(wait)
    return [
        replace(first, about=f"{first.about} (the first of {1 + len(more)})") if more else first
        for first, *more in waits.values()
    ]


def _pause(execution: Execution) -> Wait:
    pause = execution.state.pause
    assert pause is not None
    by = f" by {pause.by}" if pause.by else ""
    reason = f" ({pause.reason})" if pause.reason else ""
    about = f"somebody to unpause it: paused at {format_instant(pause.at)}{by}{reason}; perdure unpause {execution.id}"
    return Wait(WaitReason.PAUSE, about, comes=False)


def _permit(scope: str) -> Wait:
    key_parts = resource_of(scope)
    if key_parts is None:
        return Wait(WaitReason.PERMIT, f"a permit of {scope!r}")
    kind, namespace, name = key_parts
    if kind == ENGRAM_CODE:
        return Wait(
            WaitReason.RESOURCE, f"code of {name!r}, which is not loaded (see --load)", comes=False, is_code=True
        )
    key = f"{kind}/{namespace}/{name}"
    if kind in KINDS_PROVIDED_BY_CODE:
        about = f"{key}, which is not in the catalog (see `perdure apply`) and not loaded (see --load)"
        return Wait(WaitReason.RESOURCE, about, comes=False, is_code=True)
    return Wait(WaitReason.RESOURCE, f"{key}, which is not in the catalog (see `perdure apply`)", comes=False)


def _missing_providers(client: "Client", execution: Execution) -> list[Wait]:
    if client.runtime is None:
        return []
    missing = Counter(client.runtime.waiting_for_provider(execution.id).values())
    return [
        Wait(WaitReason.PROVIDER, f"provider {name!r}, which is not loaded (see --load)", comes=False)
        for name in missing
    ]


async def _children(client: "Client", execution: Execution) -> list[Wait]:
    children = execution.state.children
    if len(children) > MAX_CHILDREN_LISTED:
        return [Wait(WaitReason.CHILD, f"{len(children)} children")]
    return [await _child(client, execution.child_id(number)) for number in children]


async def _child(client: "Client", run: RunId) -> Wait:
    try:
        child = await run_status(client, run)
    except RunNotFound:
        return Wait(WaitReason.CHILD, f"child {run}, about to start")
    if child.status.is_final or child.goes_on or not child.awaited:
        return Wait(WaitReason.CHILD, f"child {run}")
    return Wait(WaitReason.CHILD, f"child {run}, which waits for {child.awaited[0].about}", comes=False)
