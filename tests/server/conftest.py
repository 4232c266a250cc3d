from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.serving import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests of a file; each test starts runs of its own."""
    folder: Path = tmp_path_factory.mktemp("server")
    running = Server.start(folder)
    try:
        yield running
        running.stop()
    finally:
        running.commands.end_all()
