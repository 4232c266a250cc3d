"""Errors that are raised on purpose. Codes are stable; messages may be improved."""

from typing import ClassVar


class PerdureError(Exception):
    """Base class: the message says what is wrong, the hint what to do."""

    code: ClassVar[str] = "PERDURE"
    hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None, **facts: object) -> None:
        super().__init__(message)
        self.advice = self.hint if hint is None else hint
        self.facts = facts  # what an operator would search for


class ReferenceNotAvailable(PerdureError):
    """The value behind a reference is not there (any more), or is not what was stored."""

    code = "REFERENCE-NOT-AVAILABLE"
    hint = "It may have expired, or its scope may have ended; see `scope` and `expires_at` of the reference."


class RunNotFound(PerdureError):
    """The store has no run with that id."""

    code = "RUN-NOT-FOUND"
    hint = "List the runs with `perdure ps --all`; an unambiguous beginning of an id is enough."


class BadRequest(PerdureError):
    """What was asked for cannot be understood: a name, a time or an option is malformed, or two do not fit together."""

    code = "USAGE"
    hint = "See `perdure VERB --help`."


class EventNotFound(PerdureError):
    """The history of the run has no event with that number."""

    code = "EVENT-NOT-FOUND"
    hint = "List the events with `perdure history RUN`."


class Conflict(PerdureError):
    """The request contradicts something that has already happened."""

    code = "CONFLICT"
    hint = "Look at the run with `perdure show RUN`."


class StartRefused(PerdureError):
    """The document is valid, but needs something that is not available here."""

    code = "START-REFUSED"
    hint = "Load or install what is missing, or run it where it is available."


class UnfitInput(PerdureError):
    """The document is valid, but cannot be started with this input."""

    code = "INPUT-UNFIT"
    hint = "Check the inputs that the document declares; --input takes JSON, --set single members of it."


class InvalidDocument(PerdureError):
    """The document cannot be run; every problem is listed with its position."""

    code = "DOC-INVALID"
    hint = "Correct the document; `perdure check FILE` lists the problems without running anything."


class ExpressionFailed(PerdureError):
    """An expression that somebody asked to be evaluated is malformed, or has no value for the data of the run."""

    code = "EXPRESSION-FAILED"
    hint = "Correct the expression; the message says where. It reads what the step reads in its document."


class EngineStopped(PerdureError):
    """The engine has stopped and answers nothing from memory."""

    code = "ENGINE-STOPPED"
    hint = "Nothing acknowledged is lost. Remove the cause, then continue with `perdure resume`."


class EngineProcessesRefused(PerdureError):
    """An engine cannot have several processes here: they need a store that they can share, and code to import."""

    code = "ENGINE-PROCESSES"
    hint = "Define functions in a module that can be imported, or open the engine without `processes`."


class EngineMissing(PerdureError):
    """Nobody would go on with the run: this server has no engine, and no server that has one works on the store."""

    code = "ENGINE-NONE"
    hint = "Nothing was stored. Start `perdure serve` without --no-engine on the same store, then try again."


class NewerRecord(PerdureError):
    """A newer Perdure has recorded something that this one does not know."""

    code = "RECORD-NEWER"
    hint = "Nothing was changed or lost: a newer version of Perdure can continue it. Upgrade this one."


def error_kind(code: str) -> type[PerdureError] | None:
    """The kind of error that has this code, of those that are loaded."""
    kinds: list[type[PerdureError]] = [PerdureError]
    for kind in kinds:  # it grows meanwhile
        if kind.code == code:
            return kind
        kinds += kind.__subclasses__()
    return None
