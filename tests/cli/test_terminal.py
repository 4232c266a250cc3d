"""In a terminal: progress that is redrawn in place, colours unless somebody objects."""

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest
from tests.cli.commandline import PERDURE, CommandLine

ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def _in_terminal(folder: Path, *words: str, **env: str) -> tuple[int, str]:
    """What a person sees: both streams on one pseudo-terminal."""
    ours, theirs = pty.openpty()
    environment = {"TERM": "xterm", **{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, **env}
    with subprocess.Popen(
        [*PERDURE, *words],
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 65_536)
            except OSError:  # Linux says so when the last writer is gone
                break
            if not piece:
                break
            seen += piece
        os.close(ours)
        code = process.wait(30)
    return code, seen.decode()


def test_progress_is_redrawn_in_place_and_gone_at_the_end(perdure: CommandLine) -> None:
    call = {"call": "shell", "with": {"script": "sleep 0.3"}}
    file = perdure.drill(call, {"sleep": "900ms"}, {"return": "the answer"}, name="sleepy")
    code, seen = _in_terminal(perdure.folder, "run", file, TERM="xterm")

    assert code == 0
    assert "0 tasks done, 1 open (shell)" in seen
    assert "waits for a timer, due in 0." in seen
    assert "\x1b[2F\x1b[J" in seen  # two lines were taken back
    assert "\x1b[36m" in seen
    last = seen[seen.rindex("\x1b[J") :]
    assert "succeeded" in last and "the answer" in last
    assert "waits for" not in last


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_refused(perdure: CommandLine, env: dict[str, str]) -> None:
    _, seen = _in_terminal(perdure.folder, "run", perdure.drill({"return": 1}), **env)

    assert not re.search(r"\x1b\[[0-9;]*m", seen)
    assert "succeeded" in seen


def test_a_pipe_gets_no_escape_sequence(perdure: CommandLine) -> None:
    done = perdure("run", perdure.drill({"signal": "go", "timeout": "1h"}), "--wait-timeout", "1s", code=6)

    assert not ESCAPE.search(done.out + done.err)
    assert "waits for signal 'go'; a timer, due in 59 m" in done.err


def test_a_table_fits_the_terminal_without_cutting_ids(perdure: CommandLine) -> None:
    name = "a-name-that-is-much-longer-than-any-column-of-a-table-should-be"
    run = perdure.here("run", perdure.drill({"return": 1}, name=name), "--json").json["id"]
    _, seen = _in_terminal(perdure.folder, "ps")
    lines = [ESCAPE.sub("", line) for line in seen.splitlines()]

    assert max(map(len, lines)) <= 80
    assert any(line.startswith(run) and "a-name" in line for line in lines)
    assert name in perdure("ps").out
