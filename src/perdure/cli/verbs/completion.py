"""`completion`: a script by which a shell completes verbs, options and file names: made by shtab, for fish here."""

import argparse
from collections.abc import Iterator

from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.stdout import give_json, give_text

SHELLS = ("bash", "zsh", "fish", "tcsh")

EXAMPLES = """\
examples:
  perdure completion bash > ~/.local/share/bash-completion/completions/perdure
  perdure completion zsh > ~/.zfunc/_perdure      a folder of $fpath
  perdure completion fish > ~/.config/fish/completions/perdure.fish
  eval "$(perdure completion bash)"               for this shell only

Verbs, options, the values of options and file names are completed. Write the script again after an upgrade.
"""

FILE_METAVARS = frozenset({"FILE", "PATH", "SOURCE", "BACKUP"})
FOLDER_METAVARS = frozenset({"DIR"})


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=SHELLS, help="the shell that the script is for")


def perform(args: argparse.Namespace, talk: Console) -> int:
    script = completion_script(args.shell)
    if args.json:
        give_json({"shell": args.shell, "script": script})
    else:
        give_text(script.rstrip("\n"))
    return Exit.OK


def completion_script(shell: str) -> str:
    from perdure.cli.main import full_parser

    parser = full_parser()
    if shell == "fish":
        return FISH_FUNCTIONS + "".join(f"{line}\n" for line in _fish_lines(parser, ()))
    import shtab

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


FISH_FUNCTIONS = """\
# Completions of perdure for fish.

function __fish_perdure_is_at --description 'whether the command line begins with these verbs'
    set -l words (commandline -opc)[2..-1]
    test (count $words) -ge (count $argv); or return 1
    for place in (seq (count $argv))
        test "$words[$place]" = "$argv[$place]"; or return 1
    end
end

function __fish_perdure_needs_verb --description 'whether a verb follows these'
    test (count (commandline -opc)) -eq (math 1 + (count $argv)); and __fish_perdure_is_at $argv
end

complete -c perdure -f
"""


def _fish_lines(parser: argparse.ArgumentParser, verbs: tuple[str, ...]) -> Iterator[str]:
    """The lines of one parser and of those below it."""
    needs = f"complete -c perdure -n {_fish_text(' '.join(('__fish_perdure_needs_verb', *verbs)))}"
    at = f"complete -c perdure -n {_fish_text(' '.join(('__fish_perdure_is_at', *verbs)))}" if verbs else needs
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, inner in action.choices.items():
                yield f"{needs} -a {name} -d {_fish_text(helps.get(name, ''))}"
                yield from _fish_lines(inner, (*verbs, name))
        elif action.option_strings:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in action.option_strings
            )
            yield f"{at} {names}{_fish_values(action)} -d {_fish_text(_help_of(action))}"
        elif values := _fish_values(action).removeprefix(" -x").removeprefix(" -r"):
            yield f"{at}{values}"


def _fish_values(action: argparse.Action) -> str:
    """What follows an option or stands for an argument; empty: an option without a value."""
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return f" -x -a {_fish_text(' '.join(map(str, action.choices)))}"
    if action.metavar in FILE_METAVARS:
        return " -r -F"
    return " -x -a '(__fish_complete_directories)'" if action.metavar in FOLDER_METAVARS else " -x"


def _help_of(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%")


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
