"""`perdure`: finds the verb, gives it its words, and turns its end into an exit code.

Knows verbs by name only. Help and version import nothing that is heavy: every call of the tool pays for this file.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import NoReturn

from perdure.cli.console import Console, harmless, refuse_colours
from perdure.cli.exit_codes import Exit
from perdure.cli.verbs import UNLISTED, VERBS
from perdure.services import COMMAND_ALIASES

EXIT_CODES = """\
exit codes:
  0 ok  1 engine error  2 usage  3 run failed  4 run cancelled  5 run timed out
  6 wait timed out  7 problems found  8 not found  9 conflict  10 not allowed
"""

EXAMPLES = """\
examples:
  perdure run examples/hello.json             start a run, follow it and print its result
  perdure ps                                  list open, interrupted and recent runs
  perdure resume                              continue all interrupted runs
  perdure run FILE --db sqlite:///runs.db     use another store (default: $PERDURE_DB, else sqlite:///perdure.db)

`perdure VERB --help` explains a verb.

"""


def main(words: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    _begin_anew()
    try:
        code = _perform(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read our answer has enough; nothing may be said when the interpreter flushes once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.PIPE_CLOSED
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    finally:
        capture = sys.modules.get("perdure.workers.output_capture")
        if capture is not None:
            capture.uninstall_capture()


def _begin_anew() -> None:
    """Tests perform several commands in one process."""
    answer = sys.modules.get("perdure.cli.stdout")
    if answer is not None:
        answer.forget()


def _perform(words: Sequence[str]) -> int:
    refuse_colours("--no-color" in words)
    talk = Console(sys.stderr)
    as_json = _Parser.as_json = "--json" in words  # so also when the words are not understood
    verb, choice = "VERB", None
    try:
        _check_text(words)
        words = _translate_aliases(_behind_verb(words))
        args = _parser(words).parse_args(words)
        if args.verb is None:
            _parser(()).print_help(sys.stderr)
            return Exit.USAGE
        talk, as_json, verb = _console(args), args.json, args.verb
        from perdure.cli.server_choice import chosen_server

        args.choice = choice = chosen_server(args)
        return _answered(int(args.perform(args, talk)), as_json)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return _answered(Exit.INTERRUPTED, as_json)
    except Exception as error:
        from perdure.cli.error_output import complain

        return complain(error, talk, verb, as_json=as_json, choice=choice)


def _console(args: argparse.Namespace) -> Console:
    if getattr(args, "log_format", "text") == "text":
        return Console(sys.stderr, is_quiet=args.quiet)
    from perdure.cli.log_output import JsonConsole

    return JsonConsole(sys.stderr, is_quiet=args.quiet)


def _behind_verb(words: Sequence[str]) -> Sequence[str]:
    """`--server URL` and `--access-token T` may stand before the verb: they choose where all of them go."""
    moved: list[str] = []
    rest = list(words)
    while rest and rest[0].partition("=")[0] in ("--server", "--access-token"):
        moved += [rest.pop(0)]
        if "=" not in moved[-1] and rest:
            moved.append(rest.pop(0))
    return [*rest[:1], *moved, *rest[1:]] if rest else words


def _translate_aliases(words: Sequence[str]) -> Sequence[str]:
    """Commands as users of another tool spell them, in our spelling."""
    for module in COMMAND_ALIASES:
        words = import_module(module).translate_arguments(words)
    return words


def _help_on_aliases() -> str:
    return "".join(import_module(module).HELP for module in COMMAND_ALIASES)


def _check_text(words: Sequence[str]) -> None:
    """Bytes that are not UTF-8 come as halves of characters, which no store and no JSON can hold."""
    for word in words:
        if any("\ud800" <= letter <= "\udfff" for letter in word):
            _parser(()).error(f"the argument {word.encode('utf-8', 'surrogateescape')!r} is not UTF-8 text")


def _answered(code: int, as_json: bool) -> int:
    """With --json there is one value on stdout, also when a signal came before the answer."""
    if as_json and code in (Exit.INTERRUPTED, Exit.TERMINATED):
        from perdure.cli.stdout import give_json, has_given, interrupted

        if not has_given():
            give_json(interrupted("stopped before there was an answer"))
    return code


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the verb that the words begin with, or of all verbs without their options: their list is help.

    All of them would take most of the time of a short command.
    """
    parser = _empty_parser()
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    asked_verb = _verb_of(parser, words)
    for name in VERBS if asked_verb is None else (asked_verb,):
        _add_verb(verbs, name, with_options=asked_verb is not None)
    return parser


def full_parser() -> argparse.ArgumentParser:
    """The parser with all verbs and all their options, for shell completion: it imports every verb."""
    parser = _empty_parser()
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for name in VERBS:
        _add_verb(verbs, name, with_options=True)
    return parser


def _empty_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="perdure",
        description="Run workflows durably: no acknowledged step is ever lost.",
        epilog=f"{EXAMPLES}{_help_on_aliases()}\n{EXIT_CODES}",
        formatter_class=Formatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    return parser


def _add_verb(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, *, with_options: bool) -> None:
    module, line = (VERBS | UNLISTED)[name]
    verb = verbs.add_parser(
        name,
        help=line,
        description=line[0].upper() + line[1:] + ".",
        formatter_class=Formatter,
        allow_abbrev=False,  # an option that scripts use must not change its meaning when another one is added
    )
    if with_options:
        _configure(verb, module)


def _configure(verb: argparse.ArgumentParser, module: str) -> None:
    from perdure.cli.arguments import add_shared

    verb_module = import_module(module)
    verb_module.configure(verb)
    add_shared(verb)
    verb.epilog = f"{verb.epilog or ''}\n{EXIT_CODES}"
    verb.set_defaults(perform=verb_module.perform)


def _verb_of(parser: argparse.ArgumentParser, words: Sequence[str]) -> str | None:
    if not words or words[0] in ("-h", "--help", "--version"):
        return None
    first = words[0]
    if first.startswith("-"):
        parser.error(f"options come after the verb: perdure VERB {first} …")
    if first not in VERBS and first not in UNLISTED:
        from difflib import get_close_matches

        near = get_close_matches(first, VERBS, n=1)
        guess = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(VERBS)}"
        parser.error(f"there is no verb {first!r}{guess}")
    return first


class _Parser(argparse.ArgumentParser):
    """Tells of a usage error in the same two lines as of any other."""

    as_json = False  # of the command that is being read

    def error(self, message: str) -> NoReturn:
        message += self._near_options(message)
        verbs = [verb.prog for verb in self._verbs() if verb.get_default("perform") is not None]
        hint = f"See `{verbs[0] if verbs else self.prog} --help`."
        if _Parser.as_json:
            import json

            print(json.dumps({"error": {"code": "USAGE", "message": message, "hint": hint}}), flush=True)
        self.exit(Exit.USAGE, harmless(f"perdure: {message}\nhint: {hint}\n"))

    def _near_options(self, message: str) -> str:
        """`; did you mean --strict?` for an option that the verb does not have."""
        prefix, _, words = message.partition("unrecognized arguments: ")
        unknown = [word.partition("=")[0] for word in words.split() if word.startswith("--")]
        if prefix or not unknown:
            return ""
        from difflib import get_close_matches

        options = [
            option
            for parser in (self, *self._verbs())
            for option in parser._option_string_actions
            if option.startswith("--")
        ]
        near = get_close_matches(unknown[0], options, n=1)
        return f"; did you mean {near[0]}?" if near else ""

    def _verbs(self) -> list[argparse.ArgumentParser]:
        groups = [group for group in self._actions if isinstance(group, argparse._SubParsersAction)]
        return [verb for group in groups for verb in group.choices.values()]


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of examples, wraps paragraphs at the width, and puts the verbs into one column."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = max(map(len, VERBS)) + 6  # argparse forgets that verbs are indented

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(_wrapped(paragraph, width) for paragraph in text.strip("\n").split("\n\n")) + "\n"


def _wrapped(paragraph: str, width: int) -> str:
    import textwrap

    lines = paragraph.split("\n")
    if not any("  " in line for line in lines):
        return textwrap.fill(paragraph, width, break_on_hyphens=False)
    if lines[0] != "examples:":
        return paragraph
    return "\n".join(map(partial(_folded, width=width), lines))


def _folded(line: str, width: int) -> str:
    """An example that is too wide for the terminal: its explanation goes below the command."""
    command, _, explanation = line.strip().partition("  ")
    if len(line) <= width or not explanation or not line.startswith("  "):
        return line
    return f"  {command}\n      {explanation.strip()}"


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        import perdure

        print(f"perdure {perdure.__version__}")
        parser.exit()
