"""Bodies of requests are read in threads and in pieces; what is large is refused before it costs much."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure.kernel import jsontext
from perdure.kernel.large_json import read_large
from perdure.kernel.turn_budget import TurnBudget
from perdure.kernel.validation import AppliedDocument
from perdure.server.limits import RequestLimits
from perdure.server.request_reading import MOST_VALUES, read_json
from perdure.server.routes import ROUTES
from perdure.views.errors import BadRequest
from tests.workers.scene import on_loop

STRICT = json.JSONDecoder(object_pairs_hook=jsontext._unique_members)
VALUES = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text('a,[{"\\\\\n€😀'),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text('b,]}"\\\\'), inner, max_size=8),
    max_leaves=60,
)
SPACES = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")])


def _read(read: Any, text: str) -> Any:
    try:
        return read(text)
    except ValueError:
        return ValueError


@given(VALUES, SPACES, st.integers(40, 90), st.data())
def test_a_large_text_is_read_as_the_decoder_reads_it(
    value: Any, spaces: tuple[str, str], window: int, data: st.DataObject
) -> None:
    text = json.dumps([value, value], separators=spaces)
    assert read_large(text, STRICT, window) == [value, value]

    at = data.draw(st.integers(0, len(text)))
    spoilt = text[:at] + data.draw(st.sampled_from(["", ",", "]", "}", "[", '"', "e", ":", "\\\\"])) + text[at + 1 :]
    assert _read(lambda one: read_large(one, STRICT, window), spoilt) == _read(STRICT.decode, spoilt)


@pytest.mark.parametrize(
    "text",
    [
        "[" + "1," * 500_000 + "1]",
        "{" + ",".join(f'"{n}":[1,2]' for n in range(100_000)) + "}",
        '[{"a":"%s"}]' % ("x," * 300_000),
    ],
    ids=["a list", "an object", "a text"],
)
def test_others_have_their_turn_while_a_large_text_is_read(text: str) -> None:
    rests = 0

    def rest() -> None:
        nonlocal rests
        rests += 1

    with TurnBudget(10**12, rest):
        assert jsontext.read_strict(text) == json.loads(text)
    pieces = len(text) // jsontext.PIECE
    assert rests >= (1 if "x" in text else pieces)


def test_a_body_of_very_many_values_is_refused() -> None:
    start = next(route for route in ROUTES if route.verb == "start_run")
    assert RequestLimits().body > 2 * MOST_VALUES

    with pytest.raises(BadRequest, match="more than 500,000 values"):
        read_json(start, {"content-type": "application/json"}, b'{"input":[' + b"1," * MOST_VALUES + b"1]}")


def _playbook(name: str) -> dict[str, Any]:
    step = {"step": "start", "tool": {"kind": "noop"}}
    return {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": name, "path": name},
        "workflow": [step],
    }


@on_loop
async def test_documents_that_are_applied_together_are_read_once_not_once_for_each(tmp_path: Any) -> None:
    """A hundred were read ten thousand times: a request of a megabyte took all threads for minutes."""
    documents = [AppliedDocument(f"{number}.json", json.dumps(_playbook(f"p{number}"))) for number in range(30)]
    reads = 0
    async with perdure.Engine(f"sqlite:///{tmp_path}/perdure.db") as engine:
        language_of = engine.validator.language_of

        def counted(text: bytes) -> Any:
            nonlocal reads
            reads += 1
            return language_of(text)

        engine.validator.language_of = counted  # type: ignore[method-assign]
        await engine.validator.recorded(documents)
    assert reads <= 3 * len(documents)
