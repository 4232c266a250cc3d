"""How a run stands: what is done, what is open, what it waits for, and whether that comes by itself.

Read from the kernel's part of a run, which is the same for every language. Only what somebody has to say, a signal or a
patch, is the language's own to name.
"""

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from perdure.engine import run_views
from perdure.engine.client import Client
from perdure.kernel.assignments import short_name
from perdure.kernel.errors import RunNotFound
from perdure.kernel.execution import Execution
from perdure.kernel.instants import format_instant
from perdure.kernel.outcomes import Status
from perdure.kernel.permits import resource_of
from perdure.kernel.values import Instant, RunId
from perdure.stores.protocol import RunRow
from perdure.views.times import span

MAX_CHILDREN_LISTED = 20
ENGRAM_CODE = "EngramCode"
KINDS_PROVIDED_BY_CODE = ("Engram", "EngramTemplate")  # loaded code stands for them


class WaitReason(Enum):
    TIMER = "timer"
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

    def text(self, now: Instant) -> str:
        return self.about if self.due is None else f"{self.about}, due in {span(self.due - now)}"


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


async def run_status(client: Client, run: RunId) -> RunStatus:
    row = await client.find(run)
    return await status_of_execution(client, row, await run_views.load(client.store, client.languages, row))


async def status_of_execution(client: Client, row: RunRow, execution: Execution) -> RunStatus:
    state = execution.state
    is_open = not state.status.is_final
    return RunStatus(
        row,
        state.activity,
        state.started_at,
        state.seq,
        state.tasks_ended,
        Counter(task.provider for task in state.tasks.values() if not task.held and not task.is_kept_back),
        tuple(await _waits(client, execution)) if is_open else (),
        is_open and bool(await client.store.owned([row.partition])),
        is_open
        and ((state.sliced and not state.is_held) or (client.runtime is not None and client.runtime.is_moving(row.id))),
    )


async def _waits(client: Client, execution: Execution) -> list[Wait]:
    state = execution.state
    if state.is_held:
        return [_pause(execution)]
    waits = _missing_providers(client, execution)
    if state.pause is not None:
        waits.append(_pause(execution))
    waits += await _workers(client, execution)
    held = Counter(task.held for task in state.tasks.values() if task.held)
    waits += [Wait(WaitReason.SETTLEMENT, f"somebody to settle the effect {key!r}", comes=False) for key in held]
    scopes = Counter(permit.scope for permit in state.permits.values() if not permit.granted)
    waits += [_permit(scope) for scope in scopes]
    waits += await _children(client, execution)
    if state.activity is Status.WAITING:
        waits += [Wait(WaitReason.SIGNAL, awaited, comes=False) for awaited in execution.dialect.awaits(execution)]
    return waits + _timers(client, execution, waits)


async def _workers(client: Client, execution: Execution) -> list[Wait]:
    language = execution.dialect.name
    tasks = [task for task in execution.state.tasks.values() if task.pool and not task.held]
    pools = Counter(task.pool for task in tasks)
    if not pools:
        return []
    from perdure.views.worker_pools import why_nobody_works  # most runs have no pool

    nobody = await why_nobody_works(client, list(pools), {short_name(task.provider, language) for task in tasks})
    waits = [Wait(WaitReason.WORKER, f"a worker: {why}", comes=False) for why in nobody]
    more = [Wait(WaitReason.WORKER, f"a worker of pool {pool!r} ({count} tasks)") for pool, count in pools.items()]
    return waits + more


def _timers(client: Client, execution: Execution, waits: list[Wait]) -> list[Wait]:
    """Sleeps and delays are waits; a bound, and the timeout of a wait, only limit something else."""
    ahead = client.clock.wall() - client.clock.now()
    timers = execution.state.timers.values()
    delays = sorted(timer.due_with(ahead) for timer in timers if timer.rank <= 0)
    limits = [timer.due_with(ahead) for timer in timers if timer.rank > 0]
    # Where code is missing, a bound around it does not make the run go on: it only says how long it may wait.
    lacks_code = any(wait.reason is WaitReason.PROVIDER or wait.is_code for wait in waits)
    found = []
    if delays:
        more = f" (the first of {len(delays)})" if len(delays) > 1 else ""
        found.append(Wait(WaitReason.TIMER, f"a timer{more}", delays[0]))
    if limits:
        found.append(Wait(WaitReason.TIMER, "a timeout", min(limits), comes=not lacks_code, is_limit=True))
    return found


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


def _missing_providers(client: Client, execution: Execution) -> list[Wait]:
    if client.runtime is None:
        return []
    missing = Counter(client.runtime.waiting_for_provider(execution.id).values())
    return [
        Wait(WaitReason.PROVIDER, f"provider {name!r}, which is not loaded (see --load)", comes=False)
        for name in missing
    ]


async def _children(client: Client, execution: Execution) -> list[Wait]:
    children = execution.state.children
    if len(children) > MAX_CHILDREN_LISTED:
        return [Wait(WaitReason.CHILD, f"{len(children)} children")]
    return [await _child(client, execution.child_id(number)) for number in children]


async def _child(client: Client, run: RunId) -> Wait:
    try:
        child = await run_status(client, run)
    except RunNotFound:
        return Wait(WaitReason.CHILD, f"child {run}, about to start")
    if child.status.is_final or child.goes_on or not child.awaited:
        return Wait(WaitReason.CHILD, f"child {run}")
    return Wait(WaitReason.CHILD, f"child {run}, which waits for {child.awaited[0].about}", comes=False)
