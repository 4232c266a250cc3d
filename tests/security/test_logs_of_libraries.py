"""Readers of logs see no secret, whoever writes them: the HTTP client logs addresses and headers."""

import logging
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from tests.dialects.planting import Echoes


@pytest.fixture
def echoes() -> Iterator[Echoes]:
    server = Echoes()
    yield server
    server.close()


def call(following: str, **arguments: Any) -> dict[str, Any]:
    provider = "mwl:provider.call/perdure/http/v1"
    return {"action": "Call", "call": {"provider": provider, "with": arguments}, "next": following}


async def test_the_http_client_logs_no_secret(
    echoes: Echoes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the query and in headers of a request, of a redirect and of the answer."""
    secret = f"é/{secrets.token_urlsafe(12)}+&9z"
    monkeypatch.setenv("PERDURE_SECRET_KEY", secret)
    plain = secret.removeprefix("é/").removesuffix("+&9z")
    key = {"$secret": "KEY"}
    steps = {
        "a": call("b", url=f"{echoes.address}/echo", params={"token": key}, headers={"X-Other": "x"}),
        "b": call("c", url=f"{echoes.address}/redirect/x", params={"token": key}),
        "c": {"action": "Return", "value": 1},
    }
    flow = {"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a", "steps": steps}

    with caplog.at_level(logging.DEBUG):
        async with perdure.Engine(f"sqlite:///{tmp_path}/runs.db") as engine:
            run = await engine.start(flow)
            assert await run.result() == 1

    assert echoes.heard and any("HTTP Request" in record.getMessage() for record in caplog.records)
    assert [record.getMessage() for record in caplog.records if plain in record.getMessage()] == []
    assert any("[redacted]" in record.getMessage() for record in caplog.records if record.name == "httpx")
