"""A hostile run harms no other run: no single call, and no round of the event loop, works on all of a large value."""

import asyncio
import gc
import hashlib
import json
import random
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure.dialects.flow.document.flows import FLOW_SCHEMA
from perdure.dialects.story.resources.names import canonical as canonical_of_story
from perdure.engine.decision_threads import ON_THE_LOOP, DecisionThreads
from perdure.expressions.gotemplate.functions import word_case
from perdure.kernel.json_values import jsontext, large_json, large_values
from perdure.kernel.json_values.values import Ref, digest
from perdure.kernel.outcomes import MOST_DETAILS
from perdure.kernel.turn_budget import TurnBudget, TurnTooExpensive
from perdure.providers import http as http_provider
from perdure.providers.command import LINES_LOGGED, CommandResult
from perdure.providers.off_loop import resting
from perdure.providers.process import OutputCapture
from perdure.services.story.engrams.step_log import MAX_REPORT_BYTES, StepLog
from tests.workers.scene import on_loop

MANY = 60_000
HOSTILE = {
    "members": {f"k{at}": at for at in range(MANY)},
    "members within": {"a": "x" * 300_000, "b": {f"k{at}": [at] for at in range(MANY)}},
    "an object, then numbers": [{}, *range(2 * MANY)],
    "a list, then numbers": [[], *range(2 * MANY)],
    "a text full of commas, then numbers": ["," * 300_000, *range(2 * MANY)],
    "objects and numbers": [part for at in range(MANY) for part in ({"a": at}, at)],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_elements_and_members_are_separated_a_few_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object of 900,000 members held the interpreter for 0.4 seconds, each time that it was read."""
    separated: list[int] = []

    def noting(separate: Any) -> Any:
        def note(text: bytes) -> Any:
            parts = separate(text)
            separated.append(len(parts))
            return parts

        return note

    monkeypatch.setattr(jsontext, "_elements", noting(jsontext._elements))
    monkeypatch.setattr(jsontext, "_members", noting(jsontext._members))
    text = msgspec.json.encode(HOSTILE[name])

    assert jsontext.decode(text) == HOSTILE[name]
    assert max(separated, default=0) < MANY // 2


texts = st.text(st.sampled_from('a"\\/é😀\n,[]{}:'), max_size=30)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | texts,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(texts, inner, max_size=8),
    max_leaves=40,
)


@pytest.mark.sampled(2)
@given(values, st.booleans())
@settings(deadline=None, max_examples=80)
def test_windows_of_any_size_give_the_same_value(value: Any, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "_SEPARATED_AT_ONCE", 2)
        patch.setattr(jsontext, "PIECE", 16)
        patch.setattr(large_json, "_BLANKS_AT_ONCE", 2)
        patch.setattr(large_json, "_SCANNED_AT_ONCE", 4)
        assert jsontext.decode(msgspec.json.encode(value)) == value
        assert jsontext.read_strict(text) == value
        assert jsontext.read_strict(json.dumps(value, indent=3, ensure_ascii=is_ascii)) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"' + "a" * 90, "line 1, column 1: Unterminated string"),
        ('["b", "' + "a" * 90 + "\\q" + "a" * 90 + '"]', "line 1, column 98: Invalid \\escape"),
        ('"' + "a" * 90 + "\n" + "a" * 90 + '"', "line 1, column 92: Invalid control character"),
        ('["' + "\\ud83d" * 40 + '"]', "unpaired surrogate"),
    ],
)
def test_a_long_text_that_is_wrong_is_refused_where_it_is_wrong(
    text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsontext, "PIECE", 32)

    with pytest.raises(jsontext.NotJson) as refusal:
        jsontext.read_strict(text)
    assert message in str(refusal.value)


def test_no_call_reads_much_of_a_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty megabytes of escapes in one text held the interpreter for 0.16 seconds."""
    pauses: list[None] = []
    text = json.dumps("é" * 1_000_000).encode()
    with TurnBudget(10**12, lambda: pauses.append(None)):
        assert jsontext.read_strict(text) == "é" * 1_000_000

    assert len(pauses) >= len(text) // jsontext.PIECE


@pytest.mark.parametrize("encode", [jsontext.canonical, lambda value: canonical_of_story(value).encode()])
def test_very_many_names_are_sorted_a_few_at_a_time(encode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of 900,000 members were sorted by one call, for half a second."""
    monkeypatch.setattr(large_json, "_SORTED_AT_ONCE", 1_000)
    names = [f"k{at}" for at in range(5_000)]
    random.Random(7).shuffle(names)
    value = {name: [{"b": "x", "a": None}] for name in names}
    whole = encode(value)
    sorts: list[int] = []

    def noting(names: list[str]) -> list[str]:
        sorts.append(len(names))
        return sorted(names)

    monkeypatch.setattr(large_json, "sorted", noting, raising=False)
    with TurnBudget(10**12, lambda: None):
        assert encode(value) == whole == msgspec.json.encode(value, order="sorted")
    assert len(sorts) >= 5
    assert max(sorts) <= 1_000


# Turns.


def test_a_turn_pays_for_values_that_it_joins_and_keeps() -> None:
    megabytes = b"x" * (4 << 20)
    with TurnBudget(ON_THE_LOOP), pytest.raises(TurnTooExpensive):
        large_values.check_joined([Ref(b"", 1 << 20)] * 40)
    with TurnBudget(ON_THE_LOOP), pytest.raises(TurnTooExpensive):
        large_values.digest_to_keep(megabytes)
    with TurnBudget(ON_THE_LOOP):
        assert large_values.digest_to_keep(megabytes[:100_000]) == hashlib.sha256(megabytes[:100_000]).digest()


@given(st.lists(st.binary(max_size=9)), st.sampled_from([b",", b""]), st.sampled_from([b"[]", b'""', b"{}"]))
def test_texts_are_joined_in_pieces_as_at_once(parts: list[bytes], separator: bytes, around: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_values, "_JOINED_AT_ONCE", 4)
        assert large_values.join_texts(parts, separator, around) == around[:1] + separator.join(parts) + around[1:]


GATHER = {
    "$schema": FLOW_SCHEMA,
    "entrypoint": "g",
    "steps": {
        "g": {
            "action": "Gather",
            "over": "{{ lists.range(40) }}",
            "call": {"provider": "mwl:provider.call/perdure/give_together/v1"},
            "next": "r",
        },
        "r": {"action": "Return", "value": "{{ 1 }}"},
    },
}


@on_loop
async def test_results_that_come_together_are_hashed_and_joined_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty results of a megabyte held the event loop for 0.15 seconds when they were joined."""
    arrived, all_there = 0, asyncio.Event()

    @perdure.provider("give_together")
    async def give_together() -> str:
        nonlocal arrived
        arrived += 1
        if arrived == 40:
            all_there.set()
        await all_there.wait()
        return "x" * 200_000

    on_the_loop: list[int] = []

    def noting(text: bytes) -> bytes:
        if threading.current_thread() is threading.main_thread():
            on_the_loop.append(len(text))
        return digest(text)

    decided_in_threads: list[None] = []
    decide = DecisionThreads._decided
    monkeypatch.setattr(large_values, "digest", noting)
    monkeypatch.setattr(
        DecisionThreads,
        "_decided",
        lambda *about: decided_in_threads.append(None) or decide(*about),  # type: ignore[func-returns-value]
    )
    async with perdure.Engine(f"sqlite:///{tmp_path}/store.db") as engine:
        assert await (await engine.start(GATHER)).result() == 1

    assert sum(on_the_loop) < 20 * 200_000
    assert decided_in_threads


# Tasks.


@on_loop
async def test_no_garbage_is_collected_while_a_task_reads_or_writes_much() -> None:
    """A look at the values of one large answer held the interpreter for 0.1 seconds, several times in a row."""
    assert gc.isenabled()
    with resting():
        assert not gc.isenabled()
    assert not await http_provider._aside(lambda *_: gc.isenabled(), None, b"x" * 1_000_000)  # type: ignore[arg-type]
    assert gc.isenabled()


class Lines(list[str]):
    """In place of a task's context."""

    def log(self, line: str, **_: Any) -> None:
        self.append(line)


def captured(data: bytes) -> OutputCapture:
    capture = OutputCapture(len(data))
    capture.data_received(data)
    return capture


@on_loop
async def test_of_millions_of_lines_only_the_last_are_split() -> None:
    """16 MiB of empty lines took the event loop for 0.4 seconds and 290 MB."""
    out, err = captured(b"\n" * 4_000_000 + b"last\n"), captured(b"one\ntwo")
    lines = Lines()
    tracemalloc.start()
    rounds = 0

    async def count_rounds() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_rounds())
    await CommandResult(0, out, err).log(lines, "stdout", "stderr")  # type: ignore[arg-type]
    counting.cancel()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert lines[0] == f"[{4_000_001 - LINES_LOGGED} lines before these are not shown]"
    assert lines[LINES_LOGGED - 1 :] == ["", "last", "one", "two"]
    assert peak < 32_000_000
    assert rounds > 10, "others have their turn"


@on_loop
async def test_a_command_that_fails_after_much_output_tells_the_end_of_it() -> None:
    failed = CommandResult(3, captured(b"x" * 4_000_000 + b"why"), captured(b"short"))
    failure = failed.failure("P")

    assert isinstance(failure.details, dict)
    assert len(msgspec.json.encode(failure.details)) < MOST_DETAILS
    assert failure.details["stdout"].endswith("why")
    assert failure.details["stdout_truncated"]
    assert failure.details["stderr"] == "short"


def test_of_the_output_of_an_engram_as_many_lines_are_kept_as_can_be_reported() -> None:
    """A megabyte of short lines took the event loop for more than a second."""
    log = StepLog()
    log.add_text("a\n" * 500_000)
    assert len(log._lines) < 2_000

    class Nothing:
        def redact(self, value: Any) -> Any:
            return value

    report = log._report(Nothing())  # type: ignore[arg-type]
    assert len(report["log"]) + report["dropped"] == 500_000
    assert MAX_REPORT_BYTES - 200 < len(msgspec.json.encode(report["log"])) < MAX_REPORT_BYTES + 2_000


@pytest.mark.parametrize(
    "text", ["a b" * 40_000, "aB" * 60_000, " _-" * 40_000, "x" * 49_999 + " - " + "y" * 60_000, ""]
)
def test_words_are_joined_by_short_calls(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`snakecase` of 800,000 letters held the interpreter for 0.13 seconds."""
    joints, sizes = word_case._JOINTS, []

    class Noting:
        match = joints.match

        @staticmethod
        def sub(joint: str, piece: str) -> str:
            sizes.append(len(piece))
            return joints.sub(joint, piece)

    monkeypatch.setattr(word_case, "_PIECE", 10**9)
    whole = word_case.join_words(text, "-")
    monkeypatch.undo()
    monkeypatch.setattr(word_case, "_JOINTS", Noting)

    assert word_case.join_words(text, "-") == whole
    assert max(sizes, default=0) <= 50_010 or not text.strip(" _-")
