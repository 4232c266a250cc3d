"""Code in a subprocess of the engine may do with that process what it likes; the engine bears it."""

import gc
from typing import Any

import pytest

from perdure.kernel.outcomes import Outcome
from perdure.providers.isolation import connections, frames
from perdure.workers.concurrency_limits import Limits
from tests.workers.scene import Ledger, at_work, details_of, failure_of, on_loop, task, value_of

LIMIT = 100_000


async def outcomes(*calls: tuple[str, dict[str, Any]]) -> list[Outcome]:
    async with at_work(limits=Limits(result_bytes=LIMIT, processes=1)) as worker:
        return [
            await worker.run(
                task(
                    "python",
                    {"function": f"tests.security.hostile_functions:{name}", "arguments": arguments, "isolated": True},
                ),
                Ledger(),
            )
            for name, arguments in calls
        ]


SAME = ("same", {"value": 7})


@on_loop
async def test_a_frame_is_not_read_beyond_the_limit_of_results() -> None:
    """Four gibibytes could be announced, and were kept in memory as they came."""
    hostile, beside = await outcomes(("announce", {"size": (1 << 32) - 1}), SAME)

    assert failure_of(hostile) == ("Platform.ResultTooLarge", False)
    assert details_of(hostile)["limit"] == LIMIT + frames.SLACK
    assert value_of(beside) == 7
    assert not [
        reader
        for reader in gc.get_objects()
        if isinstance(reader, frames.FrameReader) and len(reader._buffer) > 1 << 21
    ]


@on_loop
async def test_what_is_not_a_frame_ends_the_task_and_nothing_else() -> None:
    hostile, beside = await outcomes(("babble", {"frame": "\x7f\x7f"}), SAME)

    assert failure_of(hostile) == ("Platform.ProviderFault", False)
    assert value_of(beside) == 7


@on_loop
async def test_questions_without_end_are_not_kept() -> None:
    hostile, beside = await outcomes(("ask_without_end", {}), SAME)

    assert failure_of(hostile) == ("Platform.ProviderFault", False)
    assert value_of(beside) == 7


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_what_honest_code_tells_at_length_is_refused_to_it(size: int) -> None:
    @on_loop
    async def check() -> None:
        failed, kept, beside = await outcomes(
            ("fail_at_length", {"size": size}), ("remember_at_length", {"size": size}), SAME
        )
        is_small = size < LIMIT
        assert failure_of(failed)[0] == ("Own.Code" if is_small else "Platform.ResultTooLarge")
        assert value_of(kept) == ("kept" if is_small else "Platform.ResultTooLarge")
        assert value_of(beside) == 7

    check()


async def ledger_of(name: str, count: int) -> Ledger:
    ledger = Ledger()
    async with at_work() as worker:
        function = f"tests.security.hostile_functions:{name}"
        call = task("python", {"function": function, "arguments": {"count": count}, "isolated": True})
        assert value_of(await worker.run(call, ledger)) == 1
    return ledger


@pytest.mark.parametrize("name", ["write_lines", "print_lines"])
def test_printed_lines_are_counted(name: str) -> None:
    """A megabyte of empty lines became a million log lines, and stopped the event loop for a second at a time."""

    @on_loop
    async def check() -> None:
        lines = (await ledger_of(name, 2_000_000)).messages

        assert len(lines) == 10_001
        assert "10000 lines" in lines[-1]

    check()


@on_loop
async def test_a_child_that_says_much_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says is handled in short slices, completely and in order."""
    monkeypatch.setattr(connections, "_SLICE", 0.0)
    slices = 0
    go_on = connections.Paced._go_on

    def count(talk: connections.Paced) -> None:
        nonlocal slices
        slices += 1
        go_on(talk)

    monkeypatch.setattr(connections.Paced, "_go_on", count)

    assert (await ledger_of("log_lines", 3000)).messages == [str(number) for number in range(3000)]
    assert slices >= 3000
