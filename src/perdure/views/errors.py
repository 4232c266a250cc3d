"""Errors of whoever asks, and the family that each error belongs to.

A family says what kind of answer is due: the command line turns it into an exit code, an HTTP API into a status.
"""

from enum import Enum

from perdure.kernel.errors import BadRequest, PerdureError
from perdure.stores.errors import StoreError, StoreLocked, StoreMissing, StoreUnreachable

__all__ = [
    "BadRequest",
    "ContextNotFound",
    "ErrorFamily",
    "LoadFailed",
    "ProviderNotFound",
    "StoreError",
    "StoreLocked",
    "StoreMissing",
    "StoreUnreachable",
    "family_of",
]


class ProviderNotFound(PerdureError):
    """No provider of that name is shipped, installed or loaded."""

    code = "PROVIDER-NOT-FOUND"
    hint = "List them with `perdure providers`; load your own with --load."


class ContextNotFound(PerdureError):
    """No server was named like this with `perdure context add`."""

    code = "CONTEXT-NOT-FOUND"
    hint = "List the contexts with `perdure context list`; add one with `perdure context add NAME --server URL`."


class LoadFailed(PerdureError):
    """A source given with --load cannot be imported."""

    code = "LOAD-FAILED"
    hint = "Name a file (`--load ./tasks.py`) or an importable module (`--load package.tasks`)."


class ErrorFamily(Enum):
    USAGE = "usage"
    INVALID_DOCUMENT = "invalid document"
    NOT_FOUND = "not found"
    CONFLICT = "conflict"
    NOT_ALLOWED = "not allowed"
    ENGINE_ERROR = "engine error"


class FieldNotFound(PerdureError):
    """A step, or the run, has no value of that name, or not yet."""

    code = "FIELD-NOT-FOUND"
    hint = "Name a part of `input` or `output` of the step: `perdure show RUN --json` shows them."


class StepNotFound(PerdureError):
    """The run has no step of that name."""

    code = "STEP-NOT-FOUND"
    hint = "List the steps of the run with `perdure show RUN`, or `GET …/steps`."


def family_of(error: Exception) -> ErrorFamily:
    """Anything that is not expected is an engine error."""
    # Imported here: start-up does not pay for the engine before something has gone wrong.
    from perdure.engine.resources.catalog import ResourceNotFound, UnknownKind
    from perdure.engine.runs.capsules import CapsuleDamaged
    from perdure.engine.runs.effects import EffectNotFound
    from perdure.kernel.errors import (
        Conflict,
        EventNotFound,
        ExpressionFailed,
        InvalidDocument,
        ReferenceNotAvailable,
        RunNotFound,
        StartRefused,
        UnfitInput,
    )
    from perdure.stores.errors import StoreAccessDenied, StoreInUse, StoreNotEmpty, StoreRightsMissing
    from perdure.views.api_errors import ApiError

    match error:
        case BadRequest() | UnfitInput():
            return ErrorFamily.USAGE
        case InvalidDocument() | ExpressionFailed() | CapsuleDamaged():
            return ErrorFamily.INVALID_DOCUMENT
        case ResourceNotFound() | UnknownKind() | ReferenceNotAvailable() | EffectNotFound() | FieldNotFound():
            return ErrorFamily.NOT_FOUND
        case RunNotFound() | EventNotFound() | ProviderNotFound() | StepNotFound() | ContextNotFound():
            return ErrorFamily.NOT_FOUND
        case StoreMissing() | FileNotFoundError():
            return ErrorFamily.NOT_FOUND
        case ApiError():
            return _family_of_status(error.status)
        case Conflict() | FileExistsError() | StoreInUse() | StoreNotEmpty():
            return ErrorFamily.CONFLICT
        case PermissionError() | StartRefused() | StoreAccessDenied() | StoreRightsMissing():
            return ErrorFamily.NOT_ALLOWED
        case _:
            return ErrorFamily.ENGINE_ERROR


def _family_of_status(status: int) -> ErrorFamily:
    """What a server has refused, by its HTTP status."""
    families = {
        401: ErrorFamily.NOT_ALLOWED,
        403: ErrorFamily.NOT_ALLOWED,
        404: ErrorFamily.NOT_FOUND,
        410: ErrorFamily.NOT_FOUND,
        409: ErrorFamily.CONFLICT,
        412: ErrorFamily.CONFLICT,
        422: ErrorFamily.INVALID_DOCUMENT,
    }
    return families.get(status, ErrorFamily.USAGE if status < 429 else ErrorFamily.ENGINE_ERROR)
