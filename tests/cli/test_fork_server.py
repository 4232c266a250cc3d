"""Commands of tests are forked from a process that imports all that is installed (`fork_server.py`)."""

import os
from pathlib import Path

import pytest
from tests.cli.fork_server import Forked, ForkServer


def fork_with(module: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Forked:
    """A command of a fork server that finds this text where it imports a module."""
    (folder / f"{module}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    server = ForkServer()
    try:
        with (folder / "said").open("w") as output:
            forked = server.start(["--version"], folder, os.environ, [output.fileno()] * 3)
        forked.wait(60)
        return forked
    finally:
        server.close()


@pytest.mark.sampled(4)
def test_commands_are_forked_where_an_extra_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forked = fork_with("pygls", "raise ModuleNotFoundError('there is none', name='pygls')", tmp_path, monkeypatch)

    assert forked.returncode == 0
    assert "perdure" in (tmp_path / "said").read_text()


def test_a_process_that_cannot_fork_commands_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="the process that forks commands for tests has ended with code 3"):
        fork_with("msgspec", "raise SystemExit(3)", tmp_path, monkeypatch)
