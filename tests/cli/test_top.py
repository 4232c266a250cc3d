"""`top`: a live screen that leaves the terminal as it was; one plain look in a pipe."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
from tests.cli.commandline import PERDURE, CommandLine, in_terminal
from tests.cli.test_terminal import ESCAPE

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
PATIENCE = 100.0


def _waiting(perdure: CommandLine) -> str:
    run: str = perdure.here("run", perdure.drill({"signal": "go"}, name="patient"), "--detach").out.strip()
    perdure.here("run", perdure.drill({"fail": "Bad"}, name="broken"), code=3)
    return run


def test_one_look_says_what_there_is_and_why(perdure: CommandLine) -> None:
    run = _waiting(perdure)
    told = perdure("top").out
    frame = perdure("top", "--json").json

    assert "waiting" in told and "1 failed" in told
    assert "owners  nobody: no engine is running" in told
    assert run in told and "broken" in told
    assert frame["runs"]["open"] == 1 and frame["runs"]["failed"] == 1
    assert [(one["id"], one["name"], one["live"]) for one in frame["list"][:1]] == [(run, "patient", False)]
    assert frame["rates"] is None


@pytest.mark.parametrize("columns", [80, 140])
def test_a_look_fits_the_terminal(perdure: CommandLine, columns: int) -> None:
    _waiting(perdure)
    code, seen = in_terminal(perdure.folder, "top", "--once", "--no-color", columns=columns)

    assert code == 0
    assert not ESCAPE.search(seen)
    assert max(map(len, seen.splitlines())) <= columns


@pytest.mark.parametrize("way_out", ["q", "Ctrl-C"])
def test_the_live_screen_leaves_the_terminal_clean(perdure: CommandLine, way_out: str) -> None:
    _waiting(perdure)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(theirs)
    with subprocess.Popen(
        [*PERDURE, "top", "--every", "200ms"],
        cwd=perdure.folder,
        env={**os.environ, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        seen = _read_until(ours, lambda text: text.count(b"patient") >= 2)
        if way_out == "q":
            os.write(ours, b"q")
        else:
            process.send_signal(signal.SIGINT)
        seen += _read_until(ours, lambda text: LEAVE in text)
        code = process.wait(PATIENCE)
    after = termios.tcgetattr(theirs)
    os.close(theirs)
    os.close(ours)

    assert code == (0 if way_out == "q" else 130)
    assert seen.startswith(ENTER) and seen.rstrip().endswith(LEAVE)
    assert b"per second" in seen  # from the second frame on
    assert after == before


def _read_until(descriptor: int, is_enough: object) -> bytes:
    assert callable(is_enough)
    seen, until = b"", time.monotonic() + PATIENCE
    while not is_enough(seen) and time.monotonic() < until:
        ready, _, _ = select.select([descriptor], [], [], 0.2)
        if ready:
            seen += os.read(descriptor, 65_536)
    assert is_enough(seen), seen
    return seen
