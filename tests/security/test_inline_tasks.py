"""Tasks of a provider that answers at once are done while they are handed out: not all of them in one go."""

import asyncio
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import perdure
from perdure.dialects.flow.document.flows import FLOW_SCHEMA
from perdure.engine.runs import run_views
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.secrets.sealed_arguments import Envelope, HideTexts, SecretRequests, seal_by_place
from perdure.kernel.secrets.secret_masking import Mask
from perdure.kernel.turn import MissingValues
from perdure.kernel.turn_budget import pay
from perdure.providers.registry import Registry
from perdure.workers.unsealer import ON_THE_LOOP, Unsealer
from perdure.workers.worker import Worker
from tests.workers.scene import Ledger, at_work, on_loop, task, value_of

ECHO = {"provider": "mwl:provider.call/perdure/echo/v1", "with": {"value": 1}}
GATHER = {"action": "Gather", "over": "{{ lists.range(100) }}", "call": ECHO, "next": "r"}
STEPS = {"g": GATHER, "r": {"action": "Return", "value": "{{ step.input.size() }}"}}


def test_many_tasks_that_answer_at_once_give_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty thousand kept the event loop for more than a second. A slice without length has one task."""
    monkeypatch.setattr("perdure.engine.tasks.task_queues.SLICE", 0.0)
    turns = 0
    begun: Counter[int] = Counter()
    perform = Worker.perform

    def counted(self: Worker, *arguments: Any) -> None:
        begun[turns] += 1
        perform(self, *arguments)

    monkeypatch.setattr(Worker, "perform", counted)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def play() -> Any:
        async with perdure.Engine(f"sqlite:///{tmp_path}/store.db") as engine:
            beside = asyncio.create_task(others())
            try:
                document = {"$schema": FLOW_SCHEMA, "entrypoint": "g", "steps": STEPS}
                return await (await engine.start(document)).result()
            finally:
                beside.cancel()

    assert asyncio.run(play()) == 100
    assert sum(begun.values()) == 100
    assert max(begun.values()) <= 2


def _is_aside() -> bool:
    return threading.current_thread() is not threading.main_thread()


@on_loop
async def test_a_function_with_large_arguments_is_called_in_a_thread() -> None:
    """Writing what it gives back took 100 ms of the event loop; so did arguments of megabytes beside a secret."""
    calls: list[bool] = []
    registry = Registry()

    @registry.provider("it", inline=True)
    def it(text: str, token: str = "") -> str:
        calls.append(_is_aside())
        return text[:3] + token

    def resolve(name: str) -> str:
        calls.append(_is_aside())
        return "secret"

    large = {"text": "x" * 200_000, "token": "NAME"}
    sealed = seal_by_place(large, [(("token",), "NAME")])
    async with at_work(registry, resolve_secret=resolve) as worker:
        assert value_of(await worker.run(task("it", {"text": "abc"}), Ledger())) == "abc"
        assert value_of(await worker.run(task("it", large), Ledger())) == "xxxNAME"
        opened = msgspec.structs.replace(task("it", sealed=True), arguments=sealed)
        assert value_of(await worker.run(opened, Ledger())) == "xxx[redacted]"
    assert calls == [False, True, True, True]


async def test_templates_of_an_envelope_that_compute_are_evaluated_in_a_thread() -> None:
    """A template beside a credential of the keychain took 230 ms of the event loop, and may cost a second."""
    steps: list[tuple[int, bool]] = []

    def opened(body: Any, run: RunId) -> SecretRequests[dict[str, Any]]:
        steps.append((0, _is_aside()))
        yield HideTexts(())
        steps.append((1, _is_aside()))
        pay(body)
        steps.append((2, _is_aside()))
        return {"paid": body}

    async def no_document(digest: bytes) -> None:
        return None

    opener: Any = SimpleNamespace(open=opened)
    source: Any = SimpleNamespace(is_for_one_task=False)
    unsealer = Unsealer({"drill": opener}, no_document, lambda: 0, source)

    async def open_envelope(work: int) -> Any:
        steps.clear()
        text = jsontext.encode(Envelope("drill", work))
        return await unsealer.open(msgspec.structs.replace(task("it"), arguments=text), Mask())

    assert await open_envelope(1) == {"paid": 1}
    assert steps == [(0, False), (1, False), (2, False)]
    assert await open_envelope(2 * ON_THE_LOOP) == {"paid": 2 * ON_THE_LOOP}
    assert steps == [(0, False), (1, False), (0, True), (1, True), (2, True)]


async def test_pictures_with_large_values_are_drawn_in_a_thread() -> None:
    """A viewer stopped the event loop for two seconds with the picture of a run of few events and a large input."""
    aside: list[bool] = []

    def show(execution: Any, texts: dict[bytes, bytes]) -> Any:
        aside.append(_is_aside())
        if not texts:
            raise MissingValues((b"digest",))
        return {"input": len(texts[b"digest"])}

    async def values(run: RunId, digests: Any) -> dict[bytes, bytes]:
        return {b"digest": b"x" * 100_000}

    dialect = SimpleNamespace(show=show, hides_inputs=False, has_streams=lambda execution: False)
    state = SimpleNamespace(seq=2, input=b"null", options=b"{}")
    execution: Any = SimpleNamespace(id=RunId("r"), dialect=dialect, state=state)
    store: Any = SimpleNamespace(values=values)
    assert await run_views.show(store, execution) == {"input": 100_000}
    assert aside == [False, True]
