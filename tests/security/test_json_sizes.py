"""JSON from outside is bounded by the memory and time that it takes, not by its length alone."""

import asyncio
import gzip
import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure.dialects.flow.document.flows import FLOW_SCHEMA
from perdure.kernel.json_values import jsontext, values
from perdure.kernel.json_values.jsontext import MOST_VALUES, count_values
from perdure.kernel.turn_budget import TurnBudget
from perdure.providers.task_outcomes import to_outcome
from tests.security.test_http_answers import head, http
from tests.workers.scene import failure_of, on_loop, outcome_of, value_of

MANY = b"[" + b"[]," * MOST_VALUES + b"0]"


@on_loop
async def test_an_answer_of_millions_of_values_is_refused() -> None:
    """Sixty megabytes of empty lists took 1.7 GB, and held up others for ten seconds."""
    body = gzip.compress(MANY, 1)
    lines = [b"Content-Type: application/json", b"Content-Encoding: gzip", b"Content-Length: %d" % len(body)]

    assert failure_of(await http(head(*lines) + body)) == ("Provider.Call.Http.TooLarge", False)


def test_a_result_of_millions_of_values_is_refused() -> None:
    assert failure_of(to_outcome(msgspec.Raw(MANY))) == ("Platform.ResultTooLarge", False)


@pytest.mark.sampled(4)
@on_loop
async def test_rows_of_a_database_are_counted_as_well() -> None:
    rows = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT 1 FROM c LIMIT 1100000) SELECT x FROM c"

    assert failure_of(await outcome_of("sqlite", {"query": rows})) == ("Platform.ResultTooLarge", False)


def test_a_long_text_is_one_value() -> None:
    text = json.dumps({"csv": '1,2,"[{\\' * 1_000_000}).encode()

    assert count_values(text, MOST_VALUES) == 2
    assert value_of(to_outcome(msgspec.Raw(text))) == json.loads(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('a,[{"\\\n€😀'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('b,]}"\\'), inner),
)


def counted(value: Any) -> int:
    """One for the text as a whole, one for each container, and one for each comma."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if items is None else 1 + max(0, len(items) - 1) + sum(map(counted, items))


@pytest.mark.sampled(2)
@given(VALUES, st.integers(1, 40))
def test_values_are_counted_wherever_a_piece_ends(value: Any, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perdure.kernel.json_values.jsontext.PIECE", piece)
        assert count_values(json.dumps(value).encode(), 10**6) == 1 + counted(value)
        assert count_values(jsontext.encode(value), 10**6) == 1 + counted(value)


@given(st.text('ab"\\\n€😀\u2028'), st.integers(1, 40))
def test_a_long_text_is_read_and_written_in_pieces(text: str, piece: int) -> None:
    """One call for sixty megabytes kept the interpreter for a fifth of a second."""
    text *= 20
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "PIECE", piece)
        with TurnBudget(10**9, lambda: None):
            assert jsontext.encode(text) == msgspec.json.encode(text)
        for written in (msgspec.json.encode(text), json.dumps(text).encode()):
            assert jsontext.decode(written) == jsontext.decode(written.decode()) == text


@perdure.provider("security_large")
async def large(size: int) -> str:
    return "x" * size


@pytest.mark.parametrize("size", [100_000, 3_000_000])
def test_the_digest_of_a_large_result_is_not_taken_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    places: list[bool] = []

    def digest(text: bytes) -> bytes:
        places.append(threading.current_thread() is threading.main_thread())
        return values.digest(text)

    monkeypatch.setattr("perdure.kernel.json_values.large_values.digest", digest)
    target = {"provider": "mwl:provider.call/perdure/security_large/v1", "with": {"size": size}}
    steps = {
        "c": {"action": "Call", "call": target, "next": "r"},
        "r": {"action": "Return", "value": "{{ step.input.size() }}"},
    }

    async def play() -> Any:
        async with perdure.Engine(f"sqlite:///{tmp_path}/store.db") as engine:
            document = {"$schema": FLOW_SCHEMA, "entrypoint": "c", "steps": steps}
            return await (await engine.start(document)).result()

    assert asyncio.run(play()) == size
    assert places == [size < 1_000_000]


def test_long_numbers_are_written_in_pieces() -> None:
    """Digits take the square of their number: 4,000 numbers of 4,000 digits were written in one call, in a second."""
    number = 10**4_000
    assert jsontext.is_large([number] * 20) and jsontext.is_large({"a": [number] * 20})
    assert not jsontext.is_large([2**64] * 20)
    rests: list[int] = []
    with TurnBudget(10**9, lambda: rests.append(1)):
        assert jsontext.encode([number] * 60) == b"[%b]" % b",".join([b"%d" % number] * 60)
    assert len(rests) > 3
