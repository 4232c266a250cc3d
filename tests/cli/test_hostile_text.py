"""Names, messages and answers of strangers do nothing to a terminal."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine, in_terminal

from perdure.cli.console import Paint, harmless

HOSTILE = "evil\x1b]0;owned\x07\x1b[2J\x9b31m\rgone\u202ereversed\x08\x00"


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.end_all()


def flow(step: dict[str, object]) -> str:
    return json.dumps({"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a", "steps": {"a": step}})


def has_control(text: str) -> bool:
    return any(
        (ord(character) < 32 and character not in "\n\t") or 127 <= ord(character) < 160 or character == "\u202e"
        for character in text
    )


def on_terminal(perdure: CommandLine, *words: str) -> str:
    """What a terminal of 80 columns gets, colours left out."""
    env = {"NO_COLOR": "1", "COLUMNS": "80", "PERDURE_DB": "sqlite:///runs.db"}
    return in_terminal(perdure.folder, *words, env=env)[1].replace("\r\n", "\n")


def test_what_steers_a_terminal_is_spelled_out() -> None:
    shown = harmless(HOSTILE)

    assert not has_control(shown)
    assert "\\x1b]0;owned\\x07" in shown and "\\u202e" in shown
    assert harmless("lines\nand\ttabs é 漢") == "lines\nand\ttabs é 漢"
    assert "\x1b" not in harmless("\ufdd00123456789abcdef\ufdd1[2J")


def test_our_own_colours_still_come() -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    paint = Paint(Terminal())  # type: ignore[arg-type]
    paint.is_on = True

    assert harmless(paint("x\x1by", "red")) == "\x1b[31mx\\x1by\x1b[0m"


def test_answers_failures_labels_and_names_do_nothing_to_a_terminal(perdure: CommandLine) -> None:
    (perdure.folder / "good.json").write_text(flow({"action": "Return", "value": HOSTILE}))
    (perdure.folder / "bad.json").write_text(flow({"action": "Raise", "code": "Evil.Code", "message": HOSTILE}))
    (perdure.folder / "broken.json").write_text(flow({"action": HOSTILE, HOSTILE: 1}))
    seen = on_terminal(perdure, "run", "good.json", "--label", f"k={HOSTILE.replace(chr(0), '')}")
    seen += on_terminal(perdure, "run", "bad.json")
    seen += on_terminal(perdure, "check", "broken.json")
    seen += on_terminal(perdure, "ps", "--all")
    for row in perdure.here("ps", "--all", "--json", "--db", "sqlite:///runs.db").json:
        seen += on_terminal(perdure, "show", row["id"])
        seen += on_terminal(perdure, "history", row["id"], "--full")

    assert "owned" in seen
    for line in re.sub(r"\x1b\[\d+F\x1b\[J", "", seen).splitlines():  # the block that we redraw ourselves
        assert not has_control(line), line


def test_text_that_is_not_utf8_is_a_usage_error(perdure: CommandLine) -> None:
    command = [sys.executable.encode(), b"-m", b"perdure", b"run", b"flow-\xff.json", b"--json"]
    done = subprocess.run(command, cwd=perdure.folder, capture_output=True)

    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "USAGE"
    assert b"is not UTF-8 text" in done.stderr


def test_half_a_character_in_an_input_is_a_usage_error(perdure: CommandLine) -> None:
    (perdure.folder / "flow.json").write_text(flow({"action": "Return"}))

    done = perdure("run", "flow.json", "--input", '"\\ud800"', code=2)

    assert "surrogate" in done.err.lower() or "json" in done.err.lower()
    assert not (perdure.folder / "perdure.db").exists()


def test_lines_that_data_bring_along_are_not_taken_for_lines_of_ours(perdure: CommandLine) -> None:
    """Names, codes and messages with line breaks: what stands behind one is indented, wherever people read it."""
    forged = "\n✓ run 000 succeeded\nperdure: all is well\n01forged: child started"
    failure = {"code": "My.Code", "message": f"no{forged}"}
    (perdure.folder / "flow.json").write_text(flow({"action": "Raise", "failure": failure}))
    book = {
        "apiVersion": "noetl.io/v10",
        "kind": "Playbook",
        "metadata": {"name": f"n{forged}", "path": "p"},
        "workflow": [{"step": "s", "tool": {"kind": "playbook", "path": "kid"}}],
    }
    (perdure.folder / "book.yaml").write_text(json.dumps(book))
    (perdure.folder / "kid.yaml").write_text(
        json.dumps(
            {**book, "metadata": {"name": "kid", "path": "kid"}}
            | {"workflow": [{"step": "s", "tool": {"kind": "python", "code": f"raise ValueError({forged!r})"}}]}
        )
    )

    forging = {**book, "metadata": {"name": f"n{forged}", "path": f"p{forged}", "labels": {"x": forged}}}
    (perdure.folder / "forging.yaml").write_text(json.dumps(forging))
    notes = {"name": "s", "annotations": {f"a{forged}": forged}}
    told_story = {"apiVersion": "bubustack.io/v1alpha1", "kind": "Story", "metadata": notes}
    steps = [{"name": "a", "type": "sleep", "with": {"duration": "1s"}}]
    (perdure.folder / "story.yaml").write_text(json.dumps({**told_story, "spec": {"steps": steps}}))

    applied = [perdure("apply", "-f", "story.yaml"), perdure("apply", "-f", "forging.yaml", code=None)]
    applied += [perdure("describe", "story", "s"), perdure("get", "playbook"), perdure("delete", "story", "s")]
    outputs = [
        *applied,
        perdure("run", "flow.json", code=None),
        perdure("run", "book.yaml", "--apply", "kid.yaml", code=None),
    ]
    for row in perdure("ps", "--json", "--all").json:
        outputs += [perdure("show", row["id"]), perdure("history", row["id"]), perdure("ps", "--all")]

    lines = [line for done in outputs for line in (done.out + done.err).splitlines()]
    assert any("all is well" in line for line in lines)
    assert not [line for line in lines if line.startswith(("✓ run 000", "perdure: all", "01forged"))]
