"""Exit codes. Scripts rely on them: a number never changes its meaning."""

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    ENGINE_ERROR = 1
    USAGE = 2
    FAILED = 3
    CANCELLED = 4
    TIMED_OUT = 5
    WAIT_TIMED_OUT = 6
    FINDINGS = 7
    NOT_FOUND = 8
    CONFLICT = 9
    NOT_ALLOWED = 10
    INTERRUPTED = 130  # 128 + SIGINT, as shells count
    PIPE_CLOSED = 141
    TERMINATED = 143


def exit_of_status(status: str) -> Exit:
    """How a run's final status is told to the shell."""
    from perdure.kernel.outcomes import Status

    return {
        Status.SUCCEEDED: Exit.OK,
        Status.PARTIAL: Exit.OK,
        Status.FAILED: Exit.FAILED,
        Status.CANCELLED: Exit.CANCELLED,
        Status.TIMED_OUT: Exit.TIMED_OUT,
    }[Status(status)]


def exit_of_error(error: Exception) -> Exit:
    """The family an expected error belongs to."""
    from perdure.cli.errors import BadUsage, ProviderNotFound
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
        case BadUsage() | UnfitInput():
            return Exit.USAGE
        case InvalidDocument():
            return Exit.FINDINGS
        case ResourceNotFound() | UnknownKind() | ReferenceNotAvailable() | EffectNotFound():
            return Exit.NOT_FOUND
        case RunNotFound() | ProviderNotFound() | StoreMissing() | FileNotFoundError():
            return Exit.NOT_FOUND
        case Conflict() | FileExistsError() | StoreInUse() | StoreNotEmpty():
            return Exit.CONFLICT
        case PermissionError() | StartRefused() | StoreAccessDenied() | StoreRightsMissing():
            return Exit.NOT_ALLOWED
        case _:
            return Exit.ENGINE_ERROR
