"""Streams are tested on a real NATS server too: one for each worker of a test session."""

from collections.abc import Iterator

import pytest

from tests.nats_server import stop_shared_server


@pytest.fixture(scope="session", autouse=True)
def _nats() -> Iterator[None]:
    yield
    stop_shared_server()
