"""A document tried out: on a store of its own, in virtual time, where every task is answered by a mock.

Nothing of it is kept, no provider is called, and a sleep of a year takes no time. It ends when the run has ended, when
it waits for something that nobody will send, or after some seconds of real time.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from perdure.engine.client import Client
from perdure.engine.decision_threads import SMALL, done_aside
from perdure.engine.resources.lookup_answers import entries
from perdure.engine.runs.document_start import Document
from perdure.engine.settings import Settings
from perdure.engine.tasks.executor import NullExecutor
from perdure.engine.virtual_clock import VirtualClock
from perdure.kernel.errors import UnfitInput
from perdure.kernel.execution import Limits
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.kernel.outcomes import Failed, Outcome
from perdure.kernel.tasks.assignments import Assignment, RunPort
from perdure.providers.registry import shared
from perdure.providers.task_outcomes import to_outcome
from perdure.stores.protocol import ResourceWrite, Store
from perdure.wiring import Engine, languages

LONGEST = 10.0  # seconds of real time
MOST_ENTRIES = 1_000  # of the catalog, that a document may refer to
MOST_COPIED = 64 << 20  # bytes of them
WRITTEN_AT_ONCE = 50
MOST_CALLS = 1_000  # that are listed
MOST_BYTES = 1 << 20  # of their arguments and inputs together; of the others only the size is listed
MEMORY = Path("/dev/shm")  # where files are kept in memory; elsewhere they are temporary

LIMITS = Limits(moves=10_000, elements=10_000, caught=1_000)  # a document that never ends is told so soon

NOT_MOCKED = "Sandbox.NotMocked"


class MockedTasks(NullExecutor):
    """Answers tasks by the name of their provider or Engram: always the same, or one after another.

    A mock is `{"answer": …}`, `{"failure": {"code", "message", "retryable"}}`, or a list of these, whose last one is
    used for all further tasks.
    """

    def __init__(self, mocks: Mapping[str, Any]) -> None:
        self._mocks = {name: _read_mock(name, mock) for name, mock in mocks.items()}
        self.calls: list[dict[str, Any]] = []
        self._bytes = 0

    def can_perform(self, provider: str) -> bool:
        return True

    def perform(self, assignment: Assignment, port: RunPort, done: Callable[[Outcome], None]) -> None:
        name = next((name for name in _names(assignment.provider) if name in self._mocks), None)
        outcome = self._answer(name) if name is not None else _not_mocked(assignment.provider)
        if len(self.calls) < MOST_CALLS:
            self.calls.append(self._described(assignment, name or _names(assignment.provider)[-1]))
        done(outcome)

    def _described(self, assignment: Assignment, provider: str) -> dict[str, Any]:
        call: dict[str, Any] = {
            "run": assignment.run,
            "provider": provider,
            "path": assignment.path,
            "attempt": assignment.attempt,
        }
        size = len(assignment.arguments) + len(assignment.input)
        if self._bytes + size > MOST_BYTES:
            return {**call, "arguments": None, "input": None, "omitted_bytes": size}
        self._bytes += size
        return {**call, "arguments": jsontext.decode(assignment.arguments), "input": jsontext.decode(assignment.input)}

    def _answer(self, name: str) -> Outcome:
        answers = self._mocks[name]
        return answers.pop(0) if len(answers) > 1 else answers[0]


def _names(provider: str) -> list[str]:
    """As a task has it, and as people call it: without what its language writes before it, and without a version."""
    plain = provider.partition(":")[2].partition("@")[0] if ":" in provider else provider.rpartition(".")[2]
    return [provider, plain]


def _read_mock(name: str, mock: Any) -> list[Outcome]:
    answers = mock if isinstance(mock, list) else [mock]
    if not answers:
        raise UnfitInput(f"the mock of {name!r} has no answers")
    return [_read_answer(name, answer) for answer in answers]


def _read_answer(name: str, answer: Any) -> Outcome:
    match answer:
        case {"answer": value, **rest} if not rest:
            return to_outcome(value)
        case {"failure": {"code": str(code), **rest}, **more} if not more:
            message, retryable = rest.pop("message", ""), rest.pop("retryable", None)
            if isinstance(message, str) and (retryable is None or isinstance(retryable, bool)) and not rest:
                return Failed(code, message, retryable)
    expected = '{"answer": …} or {"failure": {"code": "…", "message": "…", "retryable": true}}'
    raise UnfitInput(f"the mock of {name!r} is not one (expected {expected}, or a list of these)")


def _not_mocked(provider: str) -> Outcome:
    name = _names(provider)[-1]
    return Failed(NOT_MOCKED, f"nothing answers for {name!r}: give it a mock", False)


@dataclass(frozen=True)
class Trial:
    """A run in a sandbox, and what can be asked about it while the sandbox is open."""

    engine: Client
    run: RunId
    calls: list[dict[str, Any]]
    seconds: float  # of virtual time
    is_cut: bool  # it took too long


@asynccontextmanager
async def sandbox(
    document: Document,
    input: Any = None,
    *,
    mocks: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
    applied: Sequence[Any] = (),
    chosen: str = "",
    namespace: str = "default",
    catalog: Store | None = None,
    signals: Mapping[str, Any] | None = None,
    gates: Mapping[str, str] | None = None,
    most: float = 366 * 86_400.0,
    longest: float = LONGEST,
) -> AsyncIterator[Trial]:
    """`catalog`: the store whose entries of this namespace the document may refer to.

    `signals` and `gates` (`Approved`, `Rejected`) are sent at the start. `most`: seconds of virtual time.
    """
    size = SMALL + 1 if jsontext.is_large(mocks) else 0
    tasks, clock = await done_aside(size, partial(MockedTasks, mocks)), VirtualClock()
    dialects = languages(lambda engram: True, lambda provider, namespace="": None, shared.with_declared(mocks))
    with tempfile.TemporaryDirectory(prefix="perdure-sandbox-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        url, settings = f"sqlite:///{folder}/sandbox.db", Settings(limits=LIMITS)
        async with Engine(url, settings=settings, clock=clock, hands=tasks, spoken=dialects, recover=False) as engine:
            if catalog is not None:
                await _copy_entries(engine, catalog, namespace)
            began, is_cut = clock.now(), False
            handle = await engine.start(
                document, input, options=options, applied=applied, chosen=chosen, namespace=namespace
            )
            try:
                async with asyncio.timeout(longest):
                    for name, value in (signals or {}).items():
                        await handle.signal(name, value)
                    for step, state in (gates or {}).items():
                        await (handle.approve(step) if state == "Approved" else handle.reject(step))
                    await _run_to_end(engine, clock, handle.id, began + int(most * SECOND))
            except TimeoutError:
                is_cut = True
            yield Trial(engine, handle.id, tasks.calls, (clock.now() - began) / SECOND, is_cut)


async def _run_to_end(engine: Engine, clock: VirtualClock, run: RunId, last: Instant) -> None:
    """Let time pass until the run has ended, or nothing is due until the last moment."""
    await settle(engine)
    while not (await engine.find(run)).status.is_final:
        due = clock.next_alarm()
        if due is None or due > last:
            return
        clock.move_to(due)
        await settle(engine)


async def settle(engine: Engine) -> None:
    """Until nothing moves by itself."""
    calm = 0
    while calm < 5:
        await asyncio.sleep(0)
        is_calm = engine.runtime.is_quiet and not engine.runtime.tasks_in_flight
        calm = calm + 1 if is_calm else 0


async def _copy_entries(engine: Client, catalog: Store, namespace: str) -> None:
    """What the namespace has, and what has no namespace."""
    count, left = 0, MOST_COPIED
    writes: list[ResourceWrite] = []
    for kind in engine.catalog.kinds:
        if kind.of_runs:
            continue
        async for row in entries(catalog, kind.name, namespace if kind.has_namespace else None):
            count, left = count + 1, left - len(row.body) - len(row.source)
            if count > MOST_ENTRIES or left < 0:
                break
            writes.append(
                ResourceWrite(
                    row.key,
                    row.uid,
                    row.generation,
                    row.body,
                    row.source,
                    row.labels,
                    row.status,
                    0,
                    None,
                    row.managers,
                )
            )
            if len(writes) == WRITTEN_AT_ONCE:
                await _write(engine, writes)
                writes = []
    await _write(engine, writes)


async def _write(engine: Client, writes: list[ResourceWrite]) -> None:
    """Into a catalog that nobody else writes to."""
    if writes:
        await engine.store.write_catalog(writes)
