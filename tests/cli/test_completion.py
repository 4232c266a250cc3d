"""`perdure completion`: a shell that has read the script completes verbs, options, values and file names."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine

from perdure.cli.verbs import VERBS
from perdure.cli.verbs.completion import SHELLS, completion_script

ASK = r"""
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
$(complete -p perdure | sed -E 's/.*-F ([^ ]+).*/\1/')
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    path = folder / "perdure.bash"
    path.write_text(CommandLine(folder)("completion", "bash").out)
    return path


def _completions(script: Path, folder: Path, *words: str) -> set[str]:
    """What bash offers for the last word."""
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK, "ask", str(script), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return set(done.stdout.split())


def test_verbs_options_and_their_values_are_completed(script: Path, tmp_path: Path) -> None:
    assert VERBS.keys() <= _completions(script, tmp_path, "perdure", "")
    assert _completions(script, tmp_path, "perdure", "his") == {"history"}
    assert {"--status", "--since", "--json"} <= _completions(script, tmp_path, "perdure", "ps", "--")
    assert {"running", "failed"} <= _completions(script, tmp_path, "perdure", "ps", "--status", "")
    assert {"status", "copy"} <= _completions(script, tmp_path, "perdure", "db", "")
    assert _completions(script, tmp_path, "perdure", "completion", "b") == {"bash"}


def test_file_names_are_completed_where_a_file_is_expected(script: Path, tmp_path: Path) -> None:
    (tmp_path / "flow.json").write_text("{}")

    assert "flow.json" in _completions(script, tmp_path, "perdure", "run", "fl")
    assert "flow.json" in _completions(script, tmp_path, "perdure", "check", "--apply", "fl")
    assert "flow.json" not in _completions(script, tmp_path, "perdure", "show", "fl")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_script_is_accepted_by_its_shell(perdure: CommandLine, shell: str) -> None:
    text = perdure("completion", shell).out

    assert "perdure" in text and "redrive" in text
    assert perdure("completion", shell, "--json").json["script"].rstrip("\n") == text.rstrip("\n")
    if shell != "tcsh" and (program := shutil.which(shell)):  # tcsh cannot check without running
        subprocess.run([program, "-n"], input=text, text=True, check=True, timeout=30)


def test_fish_is_told_of_verbs_options_values_and_files() -> None:
    lines = completion_script("fish").splitlines()
    conditions = [line.removeprefix("complete -c perdure -n ") for line in lines]

    for verb in VERBS:
        assert any(line.startswith(f"'__fish_perdure_needs_verb' -a {verb} -d '") for line in conditions), verb
    assert any(line.startswith("'__fish_perdure_needs_verb db' -a copy -d '") for line in conditions)
    (status,) = [line for line in conditions if line.startswith("'__fish_perdure_is_at ps' -l status ")]
    assert " -x -a 'running waiting " in status
    assert any(line.startswith("'__fish_perdure_is_at logs' -s f -l follow -d '") for line in conditions)
    assert any(line.startswith("'__fish_perdure_is_at check' -l apply -r -F -d '") for line in conditions)
    assert "'__fish_perdure_is_at run' -F" in conditions and "'__fish_perdure_is_at show' -F" not in conditions
    assert "'__fish_perdure_is_at completion' -a 'bash zsh fish tcsh'" in conditions


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_as_it_was_told(tmp_path: Path) -> None:
    script = tmp_path / "perdure.fish"
    script.write_text(completion_script("fish"))
    (tmp_path / "flow.json").write_text("{}")

    def completions(line: str) -> set[str]:
        command = ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        return {offer.partition("\t")[0] for offer in done.stdout.splitlines()}

    assert VERBS.keys() <= completions("perdure ")
    assert completions("perdure his") == {"history"}
    assert {"running", "failed"} <= completions("perdure ps --status ")
    assert {"status", "copy"} <= completions("perdure db ")
    assert completions("perdure run fl") == {"flow.json"} and completions("perdure show fl") == set()


def test_an_unknown_shell_is_a_usage_error(perdure: CommandLine) -> None:
    assert "invalid choice: 'ksh'" in perdure("completion", "ksh", code=2).err
