"""The provider `run`: another document, of any language, as a child run. It occupies no worker while it runs.

The call's input is the child's; a Flow also gets `arguments`. The Result is the child's: a Playbook returns its
envelope, a failure comes with the chain of failures behind it.
"""

from typing import Any

from perdure.dialects.flow.plan.schemas import Parameters
from perdure.dialects.flow.state.failures import Envelope, cancellation, failure
from perdure.kernel.documents import subruns
from perdure.kernel.documents.lookups import Callee
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Status
from perdure.kernel.turn import Turn

NAME = "run"

PARAMETERS = Parameters(
    {
        "type": "object",
        "oneOf": [{"required": ["document"]}, {"required": ["path"]}],
        "properties": {
            "path": {"type": "string", "description": "The name of an applied or registered document."},
            "version": {"type": ["string", "integer"], "description": "The version of the document that `path` names."},
            "document": {"type": ["object", "string"], "description": "The document, as data or as its text."},
            "language": {"type": "string", "default": "flow", "description": "The language of `document`."},
            "name": {"type": "string", "description": "The name of the run in lists."},
            "arguments": {"type": "object", "description": "Further arguments of the run."},
        },
    }
)


class CannotRun(Exception):
    """The document cannot be run; carries the failure that the call ends with."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.envelope = failure(f"Provider.Call.Run.{code}", message, retryable=False)


def callee(turn: Turn, arguments: dict[str, Any]) -> Callee:
    """The document to run: from the arguments, or by its name."""
    if subruns.is_too_deep(turn):
        raise CannotRun("TooDeep", f"runs start each other more than {subruns.DEEPEST} levels deep")
    if "document" in arguments:
        document = arguments["document"]
        text = document.encode() if isinstance(document, str) else jsontext.encode(document)
        return Callee(arguments.get("language", "flow"), text)
    version = arguments.get("version")
    callee = subruns.find_callee(turn, arguments["path"], None if version is None else str(version))
    if callee is None:
        message = f"there is no document {arguments['path']!r}; apply it when the run is started, or register it"
        raise CannotRun("NotFound", message)
    return callee


def envelope_of(outcome: Outcome, status: Status | None = None) -> Envelope:
    """The failure envelope for the end of a task or a child run that did not succeed."""
    match outcome:
        case Failed(code, message, retryable, details):
            kind = {Status.TIMED_OUT: "timeout", Status.CANCELLED: "cancellation"}.get(status or Status.FAILED, "error")
            envelope = failure(code, message, type=kind)
            if retryable is not None:
                envelope["retryable"] = retryable
            if details is not None:
                envelope["details"] = jsontext.decode(details)
            if outcome.previous is not None:
                envelope["previous"] = jsontext.decode(outcome.previous)
            return envelope
        case Cancelled(reason):
            return cancellation(message=reason) if reason else cancellation()
        case _:
            raise ValueError("a success has no envelope")
