"""A request that is made to take long does not: other runs share its event loop."""

import threading
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from perdure.kernel.outcomes import Outcome
from perdure.providers import http as http_module
from tests.security.test_http_answers import answering, head
from tests.workers.scene import failure_of, on_loop, outcome_of, value_of


async def http(**arguments: Any) -> Outcome:
    with answering(head(b"Content-Length: 2") + b"hi") as url:
        return await outcome_of("http", {"url": url, "method": "POST", **arguments})


@pytest.mark.parametrize(
    "headers", [{f"x{number}": "1" for number in range(5000)}, {"x": "y" * 1_000_000}], ids=["many", "long"]
)
def test_a_request_has_few_headers(headers: dict[str, str]) -> None:
    """The library compares each with all the others: a hundred thousand stopped the engine for minutes."""

    @on_loop
    async def check() -> None:
        assert failure_of(await http(headers=headers)) == ("Provider.Call.Http.BadArguments", False)

    check()


@pytest.mark.parametrize("params", [{f"p{number}": 1 for number in range(6000)}, {"p": [1] * 6000}])
def test_a_request_has_few_parameters(params: Any) -> None:
    @on_loop
    async def check() -> None:
        outcome = await http(params=params)
        assert failure_of(outcome) == ("Provider.Call.Http.BadUrl", False)
        assert "more than 5000 parameters" in str(outcome)

    check()


@pytest.mark.parametrize(
    ("content", "is_on_loop"),
    [
        ({"form": {"a": "1 2"}}, True),
        ({"json": [1]}, True),
        ({"form": {f"f{number}": "x" for number in range(20_000)}}, False),
        ({"json": [[number] for number in range(20_000)]}, False),
        ({"body": "x" * 1_000_000}, False),
    ],
)
def test_large_content_is_written_by_a_thread(
    content: dict[str, Any], is_on_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[bool] = []
    written = http_module._content

    def watched(*arguments: Any) -> dict[str, Any]:
        places.append(threading.current_thread() is threading.main_thread())
        return written(*arguments)

    monkeypatch.setattr(http_module, "_content", watched)

    @on_loop
    async def check() -> None:
        value_of(await http(**content))

    check()
    assert places == [is_on_loop]


def test_a_form_is_written_as_before() -> None:
    sent: dict[str, str] = {}
    form = {"a b": "1 2", "ü": "&="}

    assert http_module._content(msgspec.UNSET, form, None, sent) == {"content": urlencode(form).encode()}
    assert sent == {"content-type": "application/x-www-form-urlencoded"}
