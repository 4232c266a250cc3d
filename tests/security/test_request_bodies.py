"""Bodies of requests are read in threads and in pieces; what is large is refused before it costs much."""

import asyncio
import base64
import gc
import json
import time
import weakref
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.large_json import read_large
from perdure.kernel.turn_budget import TurnBudget
from perdure.server.application import Application
from perdure.server.authentication import Authentication
from perdure.server.browser_sessions import BrowserSessions
from perdure.server.calls import Answer, ApiCall, Caller, Result
from perdure.server.limits import LargeBytes, RequestLimits
from perdure.server.noetl.noetl_catalog import read_content
from perdure.server.request_reading import MOST_VALUES, convert_body, largest_body, read_headers, read_json
from perdure.server.request_types import SandboxBody
from perdure.server.route_table import Route
from perdure.server.routes import ROUTES
from perdure.stores.access import LONGEST_OBJECT, Act
from perdure.views.administration.access_tokens import AccessRole
from perdure.views.api_errors import TooManyRequests
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
    assert _read(lambda source: read_large(source, STRICT, window), spoilt) == _read(STRICT.decode, spoilt)


@pytest.mark.sampled(2)
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


@pytest.mark.sampled(4)
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


class Planted:
    """Something that a body holds."""


@pytest.mark.parametrize("is_refused", [False, True], ids=["accepted", "refused"])
@on_loop
async def test_nobody_keeps_the_body_of_a_request_that_was_answered(is_refused: bool) -> None:
    """The collector of circular garbage does not look at large bodies: each was kept, 48 MB for one of 2 MB."""
    seen: list[weakref.ref[Planted]] = []

    async def handle(call: ApiCall) -> Result:
        call.body["planted"] = planted = Planted()
        seen.append(weakref.ref(planted))
        call.audit("something")
        if is_refused:
            refusal = BadRequest("refused")
            raise refusal
        engine: Any = call.engine
        await engine.record(call.act)
        return Answer({"done": True})

    async def caller(*_: Any, **how: Any) -> Caller:
        return Caller("somebody", AccessRole.OPERATOR)

    async def record(act: Act | None) -> None:
        assert act is not None
        act.record()

    def acting(act: Act) -> Any:
        return SimpleNamespace(record=record, act=act, clock=SimpleNamespace(now=lambda: 1))

    engine = SimpleNamespace(acting=acting)
    server: Any = SimpleNamespace(
        engine=engine,
        documents=engine,
        authentication=SimpleNamespace(
            caller=caller, check_known=caller, read_headers=lambda scope, peer: (read_headers(scope), peer)
        ),
        audit=SimpleNamespace(refuse=lambda entry: None),
        live=None,
        routes=[Route("POST", "/x", AccessRole.OPERATOR, handle, "", body=dict[str, Any], changes=True)],
        limits=RequestLimits(),
        metrics=None,
        version="0",
        hosts=frozenset({"localhost"}),
        facade=SimpleNamespace(routes=[]),
        is_stopping=False,
    )
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"2")]
    scope = {"type": "http", "method": "POST", "path": "/x", "headers": headers, "query_string": b"", "client": None}
    messages: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    gc.collect()
    gc.disable()
    try:
        await Application(server)(scope, receive, send)
        assert messages[0]["status"] == (400 if is_refused else 200)
        assert [planted() for planted in seen] == [None]
    finally:
        gc.enable()


def test_a_cookie_of_many_quotes_and_backslashes_is_read_at_once() -> None:
    """Somebody without a token stopped the server for two seconds with each request: `http.cookies` is quadratic."""
    sessions = BrowserSessions(SimpleNamespace(store=None, clock=None), SimpleNamespace())  # type: ignore[arg-type]
    sessions.listen(1, is_tls=False)
    began = time.process_time()
    for value in ("\\" * 30_000, '"' + "\\" * 30_000 + '"', "=" * 30_000, '"\\"' * 10_000):
        assert sessions._secret({"cookie": f"a=b; perdure-1={value};perdure-12=no"}) == value
        assert sessions._secret({"cookie": f"perdure-2={value}"}) == ""
    assert time.process_time() - began < 1


def test_a_token_begins_only_some_sessions_a_minute() -> None:
    """Each is kept for days, and recorded."""
    engine: Any = SimpleNamespace(store=None, clock=None)
    authentication = Authentication(engine, None)
    with pytest.raises(TooManyRequests, match="log-ins"):
        for _ in range(1_000):
            authentication.count_log_in("somebody")
    authentication.count_log_in("somebody else")


def test_an_act_is_recorded_with_a_short_description() -> None:
    act = Act(partial(pytest.fail, "not recorded"))
    act.about("x" * 1_000_000)
    assert len(act.object) <= LONGEST_OBJECT + 1


@given(st.text("ab\n", max_size=400), st.integers(0, 100))
def test_base64_is_read_in_pieces_as_at_once(text: str, begin: int) -> None:
    packed = base64.encodebytes((text * 500).encode()).decode()
    assert read_content(packed) == text * 500
    spoilt = packed[:begin] + "=" + packed[begin + 1 :]
    if "=" in "".join(spoilt.split())[:-2]:
        assert read_content(spoilt) == spoilt


async def test_large_bodies_and_answers_of_a_token_have_a_limit_together() -> None:
    """With the token of a viewer 100 unfinished bodies took 1.6 GB, and 60 answers that nobody read 3.6 GB."""
    megabyte = 1 << 20
    large = LargeBytes(RequestLimits(large=10 * megabyte, all_large=15 * megabyte, expensive_wait=0.0))
    first = large.hold("a", 6 * megabyte)
    large.hold("a", megabyte)  # small ones are not counted
    with pytest.raises(TooManyRequests):
        large.hold("a", 5 * megabyte)
    body = await large.room("b", 9 * megabyte)
    with pytest.raises(TooManyRequests):
        large.hold("c", 2 * megabyte)
    body.set(500)  # it was announced, and is small
    large.hold("c", 2 * megabyte).set(0)
    with pytest.raises(TooManyRequests):
        await large.room("a", 8 * megabyte)
    first.set(0)
    first.set(0)
    large.hold("a", 60 * megabyte).set(0)  # one that is allowed by itself is never refused for its size
    assert not large._held


async def test_a_body_waits_until_earlier_ones_are_over() -> None:
    large = LargeBytes(RequestLimits(large=3 << 20, expensive_wait=60.0))
    first, order = large.hold("a", 2 << 20), list[str]()

    async def read() -> None:
        await large.room("a", 2 << 20)
        order.append("second")

    reading = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    order.append("first")
    first.set(0)
    await reading
    assert order == ["first", "second"]


def test_a_body_counts_as_much_as_it_announces() -> None:
    limits = RequestLimits()
    route, value = (
        Route("POST", "/x", None, lambda call: None, "", takes_value=is_value)  # type: ignore[arg-type,return-value]
        for is_value in (False, True)
    )
    assert largest_body(route, {"content-length": "5"}, limits) == 5
    assert largest_body(route, {"content-length": str(limits.body + 1)}, limits) == 0, "it is not kept"
    assert largest_body(route, {"content-length": "9" * 30}, limits) == 0
    assert largest_body(route, {"transfer-encoding": "chunked"}, limits) == limits.body
    assert largest_body(value, {"transfer-encoding": "chunked"}, limits) == limits.value
    assert largest_body(route, {}, limits) == 0


@pytest.mark.parametrize("member", ["mocks", "signals", "gates"])
def test_a_document_is_tried_out_with_at_most_a_thousand_mocks(member: str) -> None:
    """60,000 of them took the event loop for more than a second; each is read and declared before the trial."""
    many = {f"m{number}": "Approved" for number in range(1_001)}
    with pytest.raises(BadRequest):
        convert_body(SandboxBody, {"document": "x", member: many})
    many.popitem()
    assert len(getattr(convert_body(SandboxBody, {"document": "x", member: many}), member)) == 1_000


def test_processes_of_one_server_share_the_memory_for_bodies() -> None:
    """SRV-015: each process of `serve --processes` had as much as a whole server."""
    whole, part = RequestLimits(), RequestLimits().divided(4)
    assert (4 * part.large, 4 * part.all_large, 4 * part.rate) == (whole.large, whole.all_large, whole.rate)
    assert (part.body, part.value) == (whole.body, whole.value), "what one request may have stays"
