from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.end_all()
