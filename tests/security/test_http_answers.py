"""An answer that is made to take long, or to grow, does neither: other runs share its event loop."""

import asyncio
import bz2
import gzip
import threading
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import pytest

from perdure.kernel.outcomes import Outcome
from perdure.providers import http as http_provider
from perdure.providers import http_bodies
from perdure.providers.http_bodies import ResponseMemory
from perdure.providers.text import readable
from tests.workers.scene import details_of, failure_of, on_loop, outcome_of, value_of


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """A server that answers with these bytes, one after the other, whatever it is asked."""
    left = list(answers)

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            size = 0
            while (line := self.rfile.readline()) and line != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    size = int(line.partition(b":")[2])
            self.rfile.read(size)
            self.wfile.write(left.pop(0))

    class Server(ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


async def http(*answers: bytes) -> Outcome:
    with answering(*answers) as url:
        return await outcome_of("http", {"url": url})


def head(*lines: bytes, status: bytes = b"200 OK") -> bytes:
    return b"".join(
        [b"HTTP/1.1 " + status + b"\r\nConnection: close\r\n", *(line + b"\r\n" for line in lines), b"\r\n"]
    )


MANY = [b"x%d:" % number for number in range(5000)]


@on_loop
async def test_an_answer_with_thousands_of_headers_is_refused() -> None:
    """The library looks each of them up by reading all of them: 14,000 stopped the engine for 13 seconds."""
    outcome = await http(head(*MANY))

    assert failure_of(outcome) == ("Provider.Call.Http.TooLarge", False)


@on_loop
async def test_headers_of_bearable_number_are_told_as_before() -> None:
    outcome = await http(head(b"A: 1", b"B: 2", b"a: 3", *MANY[:900], b"Content-Length: 2") + b"hi")

    answer = value_of(outcome)
    assert (answer["body"], answer["headers"]["a"], answer["headers"]["b"], len(answer["headers"])) == (
        "hi",
        "1, 3",
        "2",
        904,
    )


@on_loop
async def test_lines_are_counted_in_the_head_alone() -> None:
    outcome = await http(head(b"Content-Length: 5000") + b"\n" * 5000)

    assert value_of(outcome)["body"] == "\n" * 5000


@on_loop
async def test_heads_that_announce_an_answer_are_counted_with_it() -> None:
    """60,000 of them, which the library reads without a pause, delayed others by 100 ms at a time."""
    some = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" * 100
    assert value_of(await http(some + head(b"Content-Length: 2") + b"hi"))["body"] == "hi"

    many = b"HTTP/1.1 100 Continue\r\n\r\n" * 60_000
    assert failure_of(await http(many + head(b"Content-Length: 2") + b"hi")) == ("Provider.Call.Http.TooLarge", False)


@on_loop
async def test_a_trailer_with_thousands_of_headers_is_refused() -> None:
    """It is parsed when it is complete: 24,000 headers stopped the engine for 170 ms."""
    chunked = head(b"Transfer-Encoding: chunked") + b"2\r\nhi\r\n0\r\n"
    assert value_of(await http(chunked + b"A: 1\r\n" * 900 + b"\r\n"))["body"] == "hi"
    assert failure_of(await http(chunked + b"a:\r\n" * 24_000 + b"\r\n"))[0] == "Provider.Call.Http.TooLarge"


@on_loop
async def test_a_chunked_body_of_many_lines_has_no_trailer() -> None:
    chunk = b"4000\r\n" + b"\n" * 0x4000 + b"\r\n"
    body = value_of(await http(head(b"Transfer-Encoding: chunked") + chunk * 10 + b"0\r\n\r\n"))["body"]

    assert body == "\n" * 0x4000 * 10


@pytest.mark.parametrize(
    ("content_type", "charset"),
    [
        ("text/plain", "utf-8"),
        ("text/plain; charset=latin-1", "latin-1"),
        ('text/plain; a=b;Charset = "koi8-r"; c=d', "koi8-r"),
        ("text/plain; xcharset=latin-1", "utf-8"),
        ("text/plain" + ";" * 90_000 + "charset=latin-1", "utf-8"),
    ],
)
def test_the_charset_is_found_in_the_beginning_of_the_content_type(content_type: str, charset: str) -> None:
    """The library reads parameters in a time that grows with their square: 90,000 took nearly a second."""
    assert http_provider._charset(content_type) == charset


@on_loop
async def test_a_time_to_wait_of_hundreds_of_digits_is_a_number() -> None:
    """It was infinite, which JSON cannot express: all details of the failure were lost."""
    outcome = await http(head(b"Retry-After: " + b"1" * 500, b"Content-Length: 2", status=b"503 Busy") + b"hi")

    assert (details_of(outcome)["retry_after"], details_of(outcome)["body"]) == (1e9, "hi")


@on_loop
async def test_an_answer_that_sets_hundreds_of_cookies_is_refused() -> None:
    cookies = [b"Set-Cookie: c%d=1" % number for number in range(200)]

    assert failure_of(await http(head(*cookies)))[0] == "Provider.Call.Http.TooLarge"


@on_loop
async def test_cookies_are_read_only_where_a_redirect_could_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []

    def make(jar: CookieJar, response: Any, request: Any) -> list[Any]:
        read.append(response)
        return []

    monkeypatch.setattr(CookieJar, "make_cookies", make)

    value_of(await http(head(b"Set-Cookie: a=b", b"Content-Length: 0")))
    assert not read
    moved = head(b"Location: /there", b"Set-Cookie: a=b", b"Content-Length: 0", status=b"302 Found")
    value_of(await http(moved, head(b"Content-Length: 0")))
    assert len(read) == 1


class Response:
    """As much of an answer as reading its body needs."""

    status_code = 200

    def __init__(self, pieces: list[bytes], encoding: str = "") -> None:
        self.headers = {"content-encoding": encoding}
        self.extensions: dict[str, Any] = {}
        self._pieces = pieces

    async def aiter_raw(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


async def read(response: Any, limit: int = 1 << 26) -> tuple[bytes, int]:
    """The body, and how often others had their turn meanwhile."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    try:
        async with ResponseMemory() as memory:
            return await http_bodies.read_body(response, limit, memory), turns
    finally:
        beside.cancel()


@pytest.mark.parametrize(
    "response",
    [
        Response([b"x"] * 200_000),
        Response([gzip.compress(bytes(1 << 25))], "gzip"),
        Response([gzip.compress(b"x") * 20_000], "gzip"),
    ],
    ids=["chunks of one byte", "a bomb", "members of one byte"],
)
def test_a_body_that_takes_long_gives_way(response: Response) -> None:
    """Nothing of it waits for the network: all pieces are there."""

    @on_loop
    async def check() -> None:
        _, turns = await read(response)
        assert turns > 3

    check()


def test_one_call_inflates_a_bounded_part() -> None:
    """What the library has been given and may not give yet comes with the next call, up to the last byte."""
    for size in (0, 1, 1 << 18, (1 << 18) + 1, 5_000_000):
        for compress in (gzip.compress, zlib.compress):
            inflater: Any = http_bodies._Inflater(
                Response([], "gzip" if compress is gzip.compress else "deflate"),  # type: ignore[arg-type]
                10_000_000,
            )
            before = 0
            for _ in inflater.feed(compress(bytes(size))):
                assert inflater.size - before <= 1 << 18
                before = inflater.size
            assert inflater.end() == bytes(size)


@on_loop
async def test_a_body_in_very_many_pieces_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_bodies, "_MOST_PIECES", 100)
    chunked = head(b"Transfer-Encoding: chunked") + b"1\r\na\r\n" * 200 + b"0\r\n\r\n"

    assert failure_of(await http(chunked)) == ("Provider.Call.Http.TooLarge", False)


@pytest.mark.parametrize("charset", ["zlib", "bz2", "hex", "base64", "uu", "quopri", "rot13", "punycode", "idna"])
def test_a_charset_that_is_not_one_of_texts_is_not_used(charset: str) -> None:
    """Python has codecs that inflate: a body of a kilobyte that is declared as `bz2` took gigabytes."""
    for data in (bz2.compress(bytes(10_000)), zlib.compress(bytes(10_000)), b"6162", b"b-9"):
        text, encoding = readable(data, charset=charset)
        assert (encoding, len(text) < 200) == ("base64", True)


@pytest.mark.parametrize(
    "charset", ["utf-8", "latin-1", "utf-16", "utf-16-le", "utf-7", "cp1252", "shift_jis", "koi8-r"]
)
def test_charsets_of_texts_are_used(charset: str) -> None:
    assert readable("hello".encode(charset), charset=charset) == ("hello", None)
