"""The provider `run`: another document, of any language, as a child run. It holds no worker while it runs."""

from typing import Any

from perdure.dialects.flow.envelopes import Envelope, cancellation, failure
from perdure.dialects.flow.schemas import Parameters
from perdure.kernel import jsontext
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Status

NAME = "run"

PARAMETERS = Parameters(
    {
        "type": "object",
        "required": ["document"],
        "properties": {
            "document": {"type": ["object", "string"], "description": "The document, as data or as its text."},
            "language": {"type": "string", "default": "flow", "description": "The language it is written in."},
            "name": {"type": "string", "description": "How the run is called in lists."},
            "arguments": {"type": "object", "description": "What else the run is told at its start."},
        },
    }
)


def document_text(arguments: dict[str, Any]) -> bytes:
    document = arguments["document"]
    return document.encode() if isinstance(document, str) else jsontext.encode(document)


def envelope_of(outcome: Outcome, status: Status | None = None) -> Envelope:
    """The failure envelope that stands for the end of a task or a child run that did not succeed."""
    match outcome:
        case Failed(code, message, retryable, details):
            kind = {Status.TIMED_OUT: "timeout", Status.CANCELLED: "cancellation"}.get(status or Status.FAILED, "error")
            envelope = failure(code, message, type=kind)
            if retryable is not None:
                envelope["retryable"] = retryable
            if details is not None:
                envelope["details"] = jsontext.decode(details)
            return envelope
        case Cancelled(reason):
            return cancellation(message=reason) if reason else cancellation()
        case _:
            raise ValueError("a success has no envelope")
