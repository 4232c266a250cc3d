"""Many processes start runs, one serves them: it needs no more files than it began with."""

import subprocess
from pathlib import Path

import pytest
from tests.cli.commandline import PERDURE, CommandLine, Running


@pytest.mark.sampled(4)
def test_a_server_with_few_descriptors_takes_up_what_many_processes_have_started(perdure: CommandLine) -> None:
    """Invariant 23: what each of them left comes into the server's own partition."""
    document = perdure.drill({"call": "echo", "with": {"value": 1}, "save": "x"}, {"return": "$x"})
    server = Running(
        subprocess.Popen(
            ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *PERDURE, "serve"],
            cwd=perdure.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    )
    perdure.started.append(server)
    server.hear("serving ")
    few = _descriptors(server)
    runs = [perdure.here("run", document, "--detach", "-q").out.strip() for _ in range(110)]
    for run in runs:
        assert "RunEnded" in perdure.here("history", run, "--follow").out

    assert _descriptors(server) <= few + 2
    assert len(list(perdure.folder.glob("*-owner*"))) == 1
    assert server.process.poll() is None
    server.kill()


def _descriptors(server: Running) -> int:
    return sum(1 for _ in Path("/proc", str(server.process.pid), "fd").iterdir())
