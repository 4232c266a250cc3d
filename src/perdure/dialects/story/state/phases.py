"""The phases of runs and steps, and the stable reasons beside them (section 5)."""

from enum import StrEnum

# How timers of one instant are ordered.

BOUND_RANK = 1
"""A deadline comes after everything else that happens at its instant: who is in time is in time."""


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    PAUSED = "Paused"
    BLOCKED = "Blocked"
    SCHEDULING = "Scheduling"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TIMEOUT = "Timeout"
    CANCELED = "Canceled"
    FINISHED = "Finished"
    ABORTED = "Aborted"
    SKIPPED = "Skipped"
    COMPENSATED = "Compensated"

    @property
    def is_terminal(self) -> bool:
        return self in _TERMINAL

    @property
    def is_failure(self) -> bool:
        """Failure-like: ended, and neither well nor skipped."""
        return self in _FAILURES


_FAILURES = frozenset({Phase.FAILED, Phase.TIMEOUT, Phase.CANCELED, Phase.FINISHED, Phase.ABORTED, Phase.COMPENSATED})
_TERMINAL = _FAILURES | {Phase.SUCCEEDED, Phase.SKIPPED}


class Reason(StrEnum):
    """Why a phase was entered: a code that never changes its meaning (STY-108, STY-110)."""

    PENDING = "Pending"
    RUNNING = "Running"
    PAUSED = "Paused"
    BLOCKED = "Blocked"
    SCHEDULED = "Scheduled"
    COMPLETED = "Completed"
    EXECUTION_FAILED = "ExecutionFailed"
    TIMED_OUT = "TimedOut"
    CANCELED = "Canceled"
    SKIPPED = "Skipped"
    COMPENSATED = "Compensated"
    STARTING = "StartingExecution"
    DEPENDENCY_FAILED = "DependencyFailed"
    INPUT_SCHEMA_FAILED = "InputSchemaFailed"
    OUTPUT_SCHEMA_FAILED = "OutputSchemaFailed"
    COMPENSATION_FAILED = "CompensationFailed"
    CLEANUP_FAILED = "CleanupFailed"
    RETRY_SCHEDULED = "RetryScheduled"
    EXPRESSION_FAILED = "ExpressionFailed"
    INVALID_CONFIGURATION = "InvalidConfiguration"
    OUTPUT_RESOLUTION_FAILED = "OutputResolutionFailed"
    INPUT_TOO_LARGE = "InputTooLarge"
    STORY_NOT_FOUND = "StoryNotFound"
    STORY_REFERENCE_INVALID = "StoryReferenceInvalid"
    ENGRAM_REFERENCE_INVALID = "EngramReferenceInvalid"
    REFERENCE_NOT_FOUND = "ReferenceNotFound"
    TEMPLATE_NOT_FOUND = "TemplateNotFound"
    TOPOLOGY_TERMINATED = "TopologyTerminated"
    SUB_STORY_RUN_SPOOFED = "SubStoryRunSpoofed"


DEFAULT_REASONS: dict[Phase, Reason] = {
    Phase.PENDING: Reason.PENDING,
    Phase.RUNNING: Reason.RUNNING,
    Phase.PAUSED: Reason.PAUSED,
    Phase.BLOCKED: Reason.BLOCKED,
    Phase.SCHEDULING: Reason.SCHEDULED,
    Phase.SUCCEEDED: Reason.COMPLETED,
    Phase.FAILED: Reason.EXECUTION_FAILED,
    Phase.TIMEOUT: Reason.TIMED_OUT,
    Phase.CANCELED: Reason.CANCELED,
    Phase.FINISHED: Reason.CANCELED,
    Phase.ABORTED: Reason.CANCELED,
    Phase.SKIPPED: Reason.SKIPPED,
    Phase.COMPENSATED: Reason.COMPENSATED,
}
