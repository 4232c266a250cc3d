"""Errors of whoever asks, and the family that each error belongs to.

A family says what kind of answer is due: the command line turns it into an exit code, an HTTP API into a status.
"""

from enum import Enum

from perdure.kernel.errors import PerdureError


class BadRequest(PerdureError):
    """What was asked for cannot be understood: a name, a time or an option is malformed, or two do not fit together."""

    code = "USAGE"
    hint = "See `perdure VERB --help`."


class ProviderNotFound(PerdureError):
    """No provider of that name is shipped, installed or loaded."""

    code = "PROVIDER-NOT-FOUND"
    hint = "List them with `perdure providers`; bring your own with --load."


class ErrorFamily(Enum):
    USAGE = "usage"
    INVALID_DOCUMENT = "invalid document"
    NOT_FOUND = "not found"
    CONFLICT = "conflict"
    NOT_ALLOWED = "not allowed"
    ENGINE_ERROR = "engine error"


def family_of(error: Exception) -> ErrorFamily:
    """Anything that is not expected is an engine error."""
    # Imported here: start-up does not pay for the engine before something has gone wrong.
    from perdure.engine.catalog import ResourceNotFound, UnknownKind
    from perdure.engine.effects import EffectNotFound
    from perdure.kernel.errors import (
        Conflict,
        InvalidDocument,
        ReferenceNotAvailable,
        RunNotFound,
        StartRefused,
        UnfitInput,
    )
    from perdure.stores.errors import StoreAccessDenied, StoreInUse, StoreMissing, StoreNotEmpty, StoreRightsMissing

    match error:
        case BadRequest() | UnfitInput():
            return ErrorFamily.USAGE
        case InvalidDocument():
            return ErrorFamily.INVALID_DOCUMENT
        case ResourceNotFound() | UnknownKind() | ReferenceNotAvailable() | EffectNotFound():
            return ErrorFamily.NOT_FOUND
        case RunNotFound() | ProviderNotFound() | StoreMissing() | FileNotFoundError():
            return ErrorFamily.NOT_FOUND
        case Conflict() | FileExistsError() | StoreInUse() | StoreNotEmpty():
            return ErrorFamily.CONFLICT
        case PermissionError() | StartRefused() | StoreAccessDenied() | StoreRightsMissing():
            return ErrorFamily.NOT_ALLOWED
        case _:
            return ErrorFamily.ENGINE_ERROR
