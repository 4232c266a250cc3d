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
    """How an error is told to the shell: by its family."""
    from perdure.views.errors import ErrorFamily, family_of

    return {
        ErrorFamily.USAGE: Exit.USAGE,
        ErrorFamily.INVALID_DOCUMENT: Exit.FINDINGS,
        ErrorFamily.NOT_FOUND: Exit.NOT_FOUND,
        ErrorFamily.CONFLICT: Exit.CONFLICT,
        ErrorFamily.NOT_ALLOWED: Exit.NOT_ALLOWED,
        ErrorFamily.ENGINE_ERROR: Exit.ENGINE_ERROR,
    }[family_of(error)]
