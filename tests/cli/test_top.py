"""`top`: a live screen that leaves the terminal as it was; one plain look in a pipe."""

import re
import signal

import pytest
from tests.cli.commandline import CommandLine, in_terminal, live_terminal
from tests.cli.test_overview import GATE, _flow, _retried, _write
from tests.cli.test_terminal import ESCAPE

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
LOADED = ("--load", "app.py", "--wait-timeout", "1s")
PATIENCE = 100.0


def _waiting(perdure: CommandLine) -> str:
    run: str = perdure.here("run", perdure.drill({"signal": "go"}, name="patient"), "--detach").out.strip()
    perdure.here("run", perdure.drill({"fail": "Bad"}, name="broken"), code=3)
    return run


def test_one_look_says_what_there_is_and_why(perdure: CommandLine) -> None:
    run = _waiting(perdure)
    output = perdure("top").out
    frame = perdure("top", "--json").json

    assert "waiting" in output and "1 failed" in output
    assert "owners  none: no engine is running" in output
    assert run in output and "broken" in output
    assert frame["runs"]["open"] == 1 and frame["runs"]["failed"] == 1
    assert [(row["id"], row["name"], row["live"]) for row in frame["list"][:1]] == [(run, "patient", False)]
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
    with live_terminal(perdure.folder, "top", "--every", "200ms") as terminal:
        terminal.look_until(lambda seen: seen.count("patient") >= 2)
        if way_out == "q":
            terminal.type(b"q")
        else:
            terminal.process.send_signal(signal.SIGINT)
        seen = terminal.look_until(lambda seen: LEAVE in seen)
        code = terminal.process.wait(PATIENCE)

    assert code == (0 if way_out == "q" else 130)
    assert seen.startswith(ENTER) and seen.rstrip().endswith(LEAVE)
    assert "per second" in seen  # from the second frame on


@pytest.mark.parametrize("columns", [80, 140])
def test_the_live_screen_says_what_flows_and_stories_do(perdure: CommandLine, columns: int) -> None:
    """A Flow between two attempts, a Story at its gate, each on one line of the terminal."""
    perdure("run", _flow(perdure, charge=_retried(5, "PT1H"), end={"action": "Return"}), *LOADED, code=6)
    perdure("run", _write(perdure, GATE), *LOADED, code=6)
    with live_terminal(perdure.folder, "top", "--every", "200ms", columns=columns) as terminal:
        seen = terminal.look_until(lambda seen: seen.count("release") >= 2)
        terminal.type(b"q")
        terminal.look_until(lambda seen: LEAVE in seen)
        assert terminal.process.wait(PATIENCE) == 0

    frame = [ESCAPE.sub("", line).rstrip() for line in re.split(r"[\r\n]+", seen)]
    assert max(map(len, frame)) <= columns
    why = "step 'charge' tries again in 59 m"
    seen_of_it = why if columns == 140 else why[:20]
    assert any(" pay " in line and seen_of_it in line for line in frame), [line for line in frame if " pay " in line]
    assert any(" release " in line and "a decision at gate 'ok'" in line for line in frame), frame
    assert not any("a timer" in line for line in frame)
