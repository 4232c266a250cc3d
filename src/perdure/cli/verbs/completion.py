"""`completion`: a script by which a shell completes verbs, options and file names, made by shtab."""

import argparse

from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.stdout import give_json, give_text

SHELLS = ("bash", "zsh", "tcsh")

EXAMPLES = """\
examples:
  perdure completion bash > ~/.local/share/bash-completion/completions/perdure
  perdure completion zsh > ~/.zfunc/_perdure      a folder of $fpath
  eval "$(perdure completion bash)"               for this shell only

Verbs, options, the values of options and file names are completed. Write the script again after an upgrade.
"""

FILE_METAVARS = frozenset({"FILE", "PATH", "SOURCE", "BACKUP"})
FOLDER_METAVARS = frozenset({"DIR"})


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=SHELLS, help="the shell that the script is for")


def perform(asked: argparse.Namespace, talk: Console) -> int:
    script = completion_script(asked.shell)
    if asked.json:
        give_json({"shell": asked.shell, "script": script})
    else:
        give_text(script.rstrip("\n"))
    return Exit.OK


def completion_script(shell: str) -> str:
    import shtab

    from perdure.cli.main import full_parser

    parser = full_parser()
    _complete_paths(parser, shtab.FILE, shtab.DIRECTORY)
    return str(shtab.complete(parser, shell=shell))


def _complete_paths(parser: argparse.ArgumentParser, files: object, folders: object) -> None:
    """Mark the arguments that take a file or a folder, in the parser and in those of its verbs."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _complete_paths(inner, files, folders)
        elif action.metavar in FILE_METAVARS:
            action.complete = files  # type: ignore[attr-defined]
        elif action.metavar in FOLDER_METAVARS:
            action.complete = folders  # type: ignore[attr-defined]
