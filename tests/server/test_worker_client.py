"""A worker asks for a document while its server goes away: refusals are passed over, a lost connection is not."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import msgspec
import pytest

from perdure.kernel.json_values.values import RunId
from perdure.kernel.tasks.assignments import Assignment
from perdure.kernel.tasks.task_sources import TaskGrant
from perdure.server.worker_protocol.worker_client import ServerSource

DIGEST = bytes(range(32))
GONE = {"code": "LEASE-GONE", "detail": "it is not yours any more"}
MISSING = {"code": "VALUE-NOT-FOUND", "detail": "the task of this lease asks for no document"}
NOT_ALLOWED = {"code": "FORBIDDEN", "detail": "not with this token"}
FOUND = {"language": "playbook", "text": "a: 1"}

Answer = tuple[int, dict[str, str]] | None


@contextmanager
def _server(answers: list[Answer]) -> Iterator[tuple[str, list[str]]]:
    """Answers one request after the other; None: the connection is lost. Afterwards nobody listens."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[str] = []

    def answer_all() -> None:
        with closing(listener):
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(65_536).decode().split()[1].split("/")[5])
                    if answer is not None:
                        body = msgspec.json.encode(answer[1])
                        head = f"HTTP/1.1 {answer[0]} .\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                        connection.sendall(head.encode() + body)

    thread = threading.Thread(target=answer_all, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    thread.join(60)


def _source(url: str, lines: list[str]) -> ServerSource:
    source = ServerSource(
        url, "token", worker="w", pools=["p"], slots=1, known=(), languages={}, now=lambda: 0, say=lines.append
    )
    for lease in ("first", "second"):
        assignment = Assignment(RunId("r"), 1, "/a", "http", b"{}", b"null", 1, 1, "key", None, sealed=True)
        source._asking[lease] = TaskGrant(lease, assignment, 0.0)
    return source


@pytest.mark.parametrize("refusal", [(410, GONE), (404, MISSING)])
async def test_a_refusal_is_passed_over_and_a_lost_connection_is_tried_again(refusal: Answer) -> None:
    lines: list[str] = []
    with _server([None, (503, {}), refusal, None, (200, FOUND)]) as (url, asked):
        document = await _source(url, lines).document(DIGEST)

    assert document == ("playbook", b"a: 1")
    assert asked == ["first", "first", "first", "second", "second"]
    assert [line.partition(":")[0] for line in lines] == [
        "the server cannot be reached, will retry",
        "the server is there again",
    ]


async def test_a_server_that_stays_away_is_no_missing_document() -> None:
    with _server([None]) as (url, _):
        source = _source(url, [])
        source.lease_for = 0.3
        with pytest.raises(ConnectionError):
            await source.document(DIGEST)


async def test_what_no_other_lease_would_change_reaches_the_worker() -> None:
    with _server([(403, NOT_ALLOWED)]) as (url, asked), pytest.raises(Exception, match="not with this token"):
        await _source(url, []).document(DIGEST)

    assert asked == ["first"]
