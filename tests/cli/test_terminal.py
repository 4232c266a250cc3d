"""In a terminal: progress that is redrawn in place, tables that fit, colours unless somebody objects."""

import json
import re
import signal

import pytest
from tests.cli.commandline import CommandLine, in_terminal, in_terminal_here, live_terminal

ESCAPE = re.compile(r"\x1b\[\??[0-9;]*[A-Za-z]")
PIECE = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|(.)", re.DOTALL)


SLOW = """
import time
from pathlib import Path

import perdure


@perdure.provider("charge")
def charge():
    while not Path("fail").exists():
        time.sleep(0.02)
    raise perdure.EngramError("the bank is closed", exit_class="retry")


@perdure.engram("charge")
def charge_for_story(inputs):
    charge()
"""

POLICY = {"match": {"codes": ["*"]}, "attempts": 3, "backoff": {"initial": "PT1H"}}
FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "charge",
    "steps": {
        "charge": {
            "action": "Call",
            "middleware": [
                {"provider": "mwl:provider.middleware/mwl/retry/v1", "onEntry": {"with": {"policies": [POLICY]}}}
            ],
            "call": {"provider": "mwl:provider.call/perdure/charge/v1"},
            "next": "end",
        },
        "end": {"action": "Return"},
    },
}

STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: pay}
spec:
  steps:
  - name: charge
    ref: charge
    execution: {timeout: 2h, retry: {maxRetries: 2, delay: 1h, maxDelay: 2h}}
"""


def _screen(seen: str, columns: int) -> list[str]:
    """What a person sees in the end: the lines after all movements of the cursor; long ones are wrapped."""
    lines, row, column = [""], 0, 0
    for argument, final, letter in PIECE.findall(seen):
        if final == "A":
            row = max(0, row - int(argument or 1))
        elif final == "K" and argument == "2":
            lines[row] = ""
        elif final in ("m", "h", "l"):
            pass  # colours, the cursor's visibility
        elif final:
            raise AssertionError(f"an escape sequence that the test does not know: {argument}{final}")
        elif letter == "\r":
            column = 0
        elif letter == "\n" or column == columns:
            row += 1
            lines += [""] * (row + 1 - len(lines))
            column = 0 if letter != "\n" else column
        if letter and letter not in "\r\n":
            lines[row] = lines[row][:column].ljust(column) + letter + lines[row][column + 1 :]
            column += 1
    return lines


@pytest.mark.parametrize("columns", [80, 140])
def test_progress_is_redrawn_in_place_and_gone_at_the_end(perdure: CommandLine, columns: int) -> None:
    call = {"call": "shell", "with": {"script": "sleep 0.3"}}
    name = "a-name-that-leaves-no-room-for-the-tasks-in-eighty-columns-but-in-more"
    file = perdure.drill(call, {"sleep": "900ms"}, {"return": "the answer"}, name=name)
    code, seen = in_terminal(perdure.folder, "run", file, columns=columns)
    frames = [ESCAPE.sub("", line) for line in re.split(r"[\r\n]+", seen) if name[:20] in line]

    assert code == 0
    assert "waits for a timer, due in 0." in seen
    assert "\x1b[36m" in seen
    assert ("0 tasks done, 1 open (shell)" in seen) == (columns == 140)
    assert len(frames) > 5
    assert max(map(len, frames[1:])) <= columns
    first, *rest, end, answer = [line for line in _screen(seen, columns) if line.strip()]
    assert first.startswith("run ") and len(rest) <= 1  # a long first line is wrapped
    assert re.search(r"succeeded in [1-9]\d*\.\d s", end) and answer == "the answer"


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("language", ["flow", "story"])
def test_the_block_of_a_run_says_what_it_does_and_is_gone_at_the_end(
    perdure: CommandLine, language: str, columns: int
) -> None:
    """At work it waits for nothing; then for its next attempt; Ctrl-C leaves lines that say how to go on."""
    (perdure.folder / "tasks.py").write_text(SLOW)
    (perdure.folder / "pay.json").write_text(json.dumps(FLOW))
    (perdure.folder / "pay.yaml").write_text(STORY)
    file = "pay.json" if language == "flow" else "pay.yaml"
    with live_terminal(perdure.folder, "run", file, "--load", "./tasks.py", columns=columns) as terminal:
        at_work = terminal.look_until(lambda seen: "1 open (" in seen)
        (perdure.folder / "fail").touch()
        terminal.look_until(lambda seen: "step 'charge' tries again in 59 m" in seen and "(attempt 2 of 3)" in seen)
        terminal.process.send_signal(signal.SIGINT)
        seen = terminal.look_until(lambda seen: "perdure resume " in seen)
        assert terminal.process.wait(60) == 130

    frames = [ESCAPE.sub("", line).rstrip() for line in re.split(r"[\r\n]+", seen)]
    assert "waits for" not in at_work and "\x1b[36m" in at_work
    assert max(len(line) for line in frames if "tries again" in line or " open (" in line) <= columns
    left = [line for line in _screen(seen, columns) if line.strip()]
    assert not any("tries again" in line or " open (" in line for line in left), left
    assert any("the bank is closed" in line for line in left), left


def test_messages_appear_above_the_progress(perdure: CommandLine) -> None:
    (perdure.folder / "tasks.py").write_text(
        "import perdure\n\n@perdure.provider('breaks')\ndef breaks():\n    raise ValueError('a reason')\n"
    )
    file = perdure.drill({"sleep": "300ms"}, {"call": "breaks"}, name="above")
    code, seen = in_terminal(perdure.folder, "run", file, "--load", "./tasks.py")
    lines = [line for line in _screen(seen, 80) if line.strip()]

    assert code == 3
    assert "waits for a timer" in seen
    assert not any("waits for" in line for line in lines)
    assert any(line.startswith("  task 2 (breaks) failed") for line in lines), lines


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_refused(perdure: CommandLine, env: dict[str, str]) -> None:
    _, seen = in_terminal(perdure.folder, "run", perdure.drill({"return": 1}), env=env)

    assert not re.search(r"\x1b\[[0-9;]*m", seen)
    assert "succeeded" in seen


def test_a_pipe_gets_no_escape_sequence(perdure: CommandLine) -> None:
    done = perdure("run", perdure.drill({"signal": "go", "timeout": "1h"}), "--wait-timeout", "1s", code=6)

    assert not ESCAPE.search(done.out + done.err)
    assert "waits for signal 'go'\n" in done.err


@pytest.mark.parametrize("columns", [80, 140])
def test_a_table_fits_the_terminal_with_ids_that_can_be_used(perdure: CommandLine, columns: int) -> None:
    name = "a-name-that-is-longer-than-a-column-should-be"
    run = perdure.here("run", perdure.drill({"return": 1}, name=name), "--json").json["id"]
    _, seen = in_terminal(perdure.folder, "ps", columns=columns)
    lines = [ESCAPE.sub("", line) for line in seen.splitlines()]
    (row,) = [line for line in lines if line.startswith(run[:10])]

    assert (run in row) == (columns == 140)
    assert perdure.here("show", row.split()[0], "--json").json["id"] == run
    assert max(map(len, lines)) <= columns
    assert "a-name" in row and (name in row) == (columns == 140)
    assert ("STARTED" in lines[0]) == (columns == 140)
    assert name in perdure("ps").out


def test_ids_that_begin_alike_are_shortened_to_beginning_and_end(
    perdure: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    file = perdure.drill({"fail": "Bad"}, name="nightly")
    tokens = [f"cron:nightly:night:2026-05-0{day}T03:30:00Z" for day in (1, 2, 3)]
    for token in tokens:
        perdure.here("run", file, "--token", token, "--quiet", code=3)
    _, seen = in_terminal_here(perdure.folder, "ps", "--no-color", columns=80)
    lines = seen.splitlines()
    ids = [line.split()[0] for line in lines[1:] if "…" in line.split()[0]]

    assert len(ids) == 3 and max(map(len, lines)) <= 80
    assert all("nightly" in line.split()[1] and line.rstrip().endswith("Bad") for line in lines[1:4]), lines
    assert len({perdure.here("show", run, "--json").json["id"] for run in ids}) == 3


def test_rich_is_imported_only_for_what_a_terminal_shows(perdure: CommandLine) -> None:
    perdure.here("run", perdure.drill({"return": 1}), "--json")
    showing_imports = {"PYTHONPROFILEIMPORTTIME": "1"}

    assert " rich." not in perdure("ps", PYTHONPROFILEIMPORTTIME="1").err
    assert " rich." in in_terminal(perdure.folder, "ps", env=showing_imports)[1]
    assert " rich." not in in_terminal(perdure.folder, "ps", "--json", env=showing_imports)[1]
