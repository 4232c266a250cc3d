"""What would have happened with another document: recorded results answer its tasks, in virtual time.

Results are found by the path of a task, and otherwise by the steps in it: a step that was moved keeps its results.
Signals and other control messages come when they came. Nothing is called. The new history is compared with the
recorded one.
"""

import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure.analysis.differences import HistoryComparison, compare_histories
from perdure.analysis.mocks import MockAnswer, MockedCall, Mocks, names_of, steps_in
from perdure.analysis.scenarios import DocumentScenario, ScenarioAction
from perdure.engine.client import Client
from perdure.engine.resources.document_validation import DocumentValidator
from perdure.engine.runs import run_views
from perdure.kernel.codec import Turns
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import InvalidDocument, PerdureError
from perdure.kernel.events import CancelRequested, RunStarted, SignalReceived, Steered, TaskEnded, TaskScheduled
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, Payload, Ref, RunId
from perdure.kernel.outcomes import Failed, Outcome, Succeeded
from perdure.services.scenarios.mocked_tasks import scenario_languages
from perdure.services.scenarios.stage import ScenarioStage
from perdure.services.scenarios.suite import MEMORY, validate_document
from perdure.stores.protocol import RunFilter, RunRow

NOT_RECORDED = "Replay.NotRecorded"
MOST_BELOW = 1_000  # runs below the one that is replayed


class RunReplay(msgspec.Struct):
    """How the new document would have done."""

    run: RunId
    name: str
    verdict: str  # same, diverges, needs output, not replayed
    comparison: HistoryComparison | None = None
    needs: list[str] = []  # tasks whose result nobody recorded
    status: str = ""  # that the new document comes to
    reason: str = ""  # why it could not be replayed


class RecordedTasks(Mocks):
    """Answers with what was recorded, each result once; knows what was missing."""

    def __init__(self) -> None:
        super().__init__({})
        self._by_path: dict[str, list[MockAnswer]] = {}
        self._by_steps: dict[tuple[str, ...], list[MockAnswer]] = {}
        self._given: set[int] = set()
        self.missing: list[str] = []

    def add(self, path: str, answer: MockAnswer) -> None:
        self._by_path.setdefault(path, []).append(answer)
        self._by_steps.setdefault(tuple(steps_in(path)), []).append(answer)

    def knows(self, provider: str) -> bool:
        return True

    def mocks(self, provider: str, path: str) -> bool:
        return True

    def _new_answer(self, call: MockedCall) -> MockAnswer:
        for answers in (self._by_path.get(call.path, ()), self._by_steps.get(tuple(steps_in(call.path)), ())):
            for answer in answers:
                if id(answer) not in self._given:
                    self._given.add(id(answer))
                    return answer
        self.missing.append(f"{call.path} ({names_of(call.provider)[-1]})")
        return MockAnswer(Failed(NOT_RECORDED, f"no result of {call.path} was recorded", False))


class Replayer:
    """A document that recorded runs are replayed with."""

    def __init__(self, client: Client, origin: str, text: bytes, applied: Sequence[AppliedDocument] = ()) -> None:
        self._client = client
        self._origin = origin
        self._text = text
        self._applied = applied
        self._dialects = scenario_languages((), has_everything=True)
        self._validator = DocumentValidator(self._dialects)

    async def replay(self, row: RunRow) -> RunReplay:
        try:
            return await self._replay(row)
        except (PerdureError, TimeoutError) as error:
            reason = str(error) or f"it did not come to rest ({type(error).__name__})"
            return RunReplay(row.id, row.name, "not replayed", reason=reason)

    async def _replay(self, row: RunRow) -> RunReplay:
        client = self._client
        language, validated = await validate_document(
            self._validator, self._origin, self._text, self._applied, row.namespace
        )
        if language.name != row.language:
            raise InvalidDocument(f"{self._origin} is in {language.name}, and the run in {row.language}")
        tasks = RecordedTasks()
        turns = await run_views.turns(client.store, run_views.dialect_of(client.languages, row.language), row.id)
        await self._record(row, turns, tasks)
        start = turns[0][1][0]
        assert isinstance(start, RunStarted)
        scenario = DocumentScenario(
            name=row.name,
            input=await self.value_of(row.id, start.input),
            options=jsontext.decode(start.options),
            namespace=row.namespace,
            actions=tuple([action async for action in self.actions(row.id, turns)]),
            to_end=row.status.is_final,
        )
        with tempfile.TemporaryDirectory(prefix="perdure-replay-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
            stage = ScenarioStage(
                Path(folder),
                scenario,
                self._dialects,
                tasks,
                seed=start.seed,
                begins_at=turns[0][0],
                title=row.name,
            )
            async with stage:
                play = await stage.play(self._text, (language, validated), self._applied)
                replayed = await stage.engine.find(stage.run)
        mask = await run_views.mask_of_run(client.store, client.languages, row)
        names = [run_views.names_of(item, language) for item in (row, replayed)]
        comparison = compare_histories(
            await client.history(row.id),
            mask.data(play.seen.events),
            (names[0], names[1]),
            is_open=not row.status.is_final,
        )
        verdict = "needs output" if tasks.missing else "same" if comparison.values is None else "diverges"
        return RunReplay(row.id, row.name, verdict, comparison, tasks.missing, play.seen.status)

    async def _record(self, row: RunRow, turns: Turns, tasks: RecordedTasks) -> None:
        """The results of a run and of those below it."""
        pending = [(row, turns)]
        count = 0
        while pending:
            row, turns = pending.pop()
            scheduled: dict[int, tuple[str, Instant]] = {}
            for at, events in turns:
                for event in events:
                    if isinstance(event, TaskScheduled):
                        scheduled[event.task] = (event.path, at)
                    elif isinstance(event, TaskEnded) and event.task in scheduled:
                        path, began = scheduled[event.task]
                        tasks.add(path, MockAnswer(await self.whole_outcome(row.id, event.outcome), at - began))
            for child in await self._client.search(RunFilter(parent=row.id, limit=MOST_BELOW)):
                count += 1
                if count > MOST_BELOW:
                    raise InvalidDocument(f"run {row.id} has more than {MOST_BELOW} runs below it")
                dialect = run_views.dialect_of(self._client.languages, child.language)
                pending.append((child, await run_views.turns(self._client.store, dialect, child.id)))

    async def actions(self, run: RunId, turns: Turns) -> AsyncIterator[ScenarioAction]:
        """What was sent to the run, and the time that passed before it."""
        now = turns[0][0]
        for at, events in turns:
            for event in events:
                if not isinstance(event, SignalReceived | Steered | CancelRequested):
                    continue
                if at > now:
                    yield ScenarioAction("advance", at - now)
                    now = at
                if isinstance(event, SignalReceived):
                    value = await self.value_of(run, event.value)
                    yield ScenarioAction("signal", {"name": event.name, "value": value, "by": event.by})
                elif isinstance(event, Steered):
                    body = await self.value_of(run, event.body)
                    yield ScenarioAction("steer", {"verb": event.verb, "body": body, "by": event.by})
                else:
                    yield ScenarioAction("cancel", {"reason": event.reason})
        if turns[-1][0] > now:
            yield ScenarioAction("advance", turns[-1][0] - now)

    async def whole_outcome(self, run: RunId, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Succeeded) and isinstance(outcome.value, Ref):
            return Succeeded(await self._text_of(run, outcome.value))
        return outcome

    async def value_of(self, run: RunId, payload: Payload) -> Any:
        return jsontext.decode(await self._text_of(run, payload))

    async def _text_of(self, run: RunId, payload: Payload) -> bytes:
        if not isinstance(payload, Ref):
            return payload
        values = await self._client.store.values(run, [payload.digest])
        return values[payload.digest]
