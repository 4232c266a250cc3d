"""Errors as people and programs see them: one line, a hint, an exit code; never a traceback that nobody asked for."""

import json
import os
import traceback

from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit, exit_of_error
from perdure.cli.server_choice import ServerChoice, leave_context
from perdure.cli.stdout import give_text, has_given
from perdure.kernel.errors import PerdureError

DEBUG = "PERDURE_DEBUG"
UNEXPECTED_HINT = f"This is a bug in Perdure or in a loaded module. Set {DEBUG}=1 to see where it happened."


def complain(error: Exception, talk: Console, verb: str, *, as_json: bool, choice: ServerChoice | None = None) -> Exit:
    """`choice`: the server that the command was for."""
    code, message, hint = _describe(error)
    if code == "SERVER-UNREACHABLE":
        hint = f"{hint} {leave_context(choice)}".strip()
    hint = hint.replace("perdure VERB", f"perdure {verb}")
    talk.clear()
    if os.environ.get(DEBUG):
        talk.always("".join(traceback.format_exception(error)).rstrip())
    paint = talk.paint
    talk.always(f"{paint('perdure:', 'red')} {message}")
    if hint:
        talk.always(f"{paint('hint:', 'dim')} {hint}")
    if isinstance(error, PerdureError):
        talk.say(paint(f"see:  docs/errors/{code}.md", "dim"))
    if as_json and not has_given():
        facts = error.facts if isinstance(error, PerdureError) else {}
        body = {"code": code, "message": message, "hint": hint, **facts}
        give_text(json.dumps({"error": body}, default=str))  # with --json stdout holds one value, whatever happens
    return exit_of_error(error)


def _describe(error: Exception) -> tuple[str, str, str]:
    match error:
        case PerdureError():
            return error.code, str(error), error.advice
        case OSError():
            file = f"{error.filename}: " if error.filename else ""
            return "SYSTEM", f"{file}{error.strerror or error}", ""
        case _:
            return "UNEXPECTED", f"unexpected {type(error).__name__}: {error}", UNEXPECTED_HINT
