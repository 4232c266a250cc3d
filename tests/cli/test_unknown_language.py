"""A store with runs in a language that is not known here: they are left alone, visibly, and others go on."""

import subprocess
import sys
from typing import Any

from tests.cli.commandline import CommandLine, strict_json


def as_shipped(perdure: CommandLine, *words: str) -> "subprocess.CompletedProcess[str]":
    """`perdure` without the test language."""
    command = [sys.executable, "-m", "perdure", *words]
    return subprocess.run(command, cwd=perdure.folder, capture_output=True, text=True, timeout=60, check=False)


def listed(perdure: CommandLine) -> dict[str, Any]:
    done = as_shipped(perdure, "ps", "--json")
    assert done.returncode == 0, done.stderr
    return {row["id"]: (row["language"], row["status"]) for row in strict_json(done.stdout)}


def test_the_test_language_is_not_shipped(perdure: CommandLine) -> None:
    done = as_shipped(perdure, "run", perdure.drill({"return": 1}))

    assert done.returncode == 7 and "(expected one of flow, playbook, story)" in done.stderr


def test_runs_in_an_unknown_language_are_left_alone(perdure: CommandLine) -> None:
    asks = perdure.here("run", perdure.drill({"signal": "go"}, {"return": "gone"}), "--detach").out.strip()
    due = perdure.here("run", perdure.drill({"sleep": "1ms"}, {"return": "woken"}), "--detach").out.strip()
    perdure.here("signal", asks, "go")
    expected = {asks: ("drill", "waiting"), due: ("drill", "waiting")}
    assert listed(perdure) == expected

    resumed = as_shipped(perdure, "resume")
    assert resumed.returncode == 1 and f"run {asks}" in resumed.stderr and f"run {due}" in resumed.stderr
    assert "'drill'" in as_shipped(perdure, "show", asks).stderr
    assert listed(perdure) == expected

    assert perdure("resume", asks).out == "gone\n"
    assert perdure("resume", due).out == "woken\n"
