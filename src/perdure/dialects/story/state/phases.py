"""The phases of runs and steps, and their stable reasons (section 5)."""

from enum import StrEnum

# Order of timers that are due at the same instant.

BOUND_RANK = 1
"""A deadline comes after everything else at its instant: a result at the deadline is in time."""


class StoryPhase(StrEnum):
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

    is_terminal: bool
    is_failure: bool  # ended, but neither Succeeded nor Skipped

    def __init__(self, value: str) -> None:  # every step asks
        self.is_failure = value in ("Failed", "Timeout", "Canceled", "Finished", "Aborted", "Compensated")
        self.is_terminal = self.is_failure or value in ("Succeeded", "Skipped")


PHASES: dict[str, StoryPhase] = {phase.value: phase for phase in StoryPhase}
"""By name: found faster than by calling the class."""


class Reason(StrEnum):
    """Why a phase was entered: a code whose meaning never changes (STY-108, STY-110)."""

    PENDING = "Pending"
    RUNNING = "Running"
    PAUSED = "Paused"
    BLOCKED = "Blocked"
    QUEUED = "Queued"
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
    TRANSPORT_REFERENCE_INVALID = "TransportReferenceInvalid"
    TOPOLOGY_TERMINATED = "TopologyTerminated"
    SUB_STORY_RUN_SPOOFED = "SubStoryRunSpoofed"


DEFAULT_REASONS: dict[StoryPhase, Reason] = {
    StoryPhase.PENDING: Reason.PENDING,
    StoryPhase.RUNNING: Reason.RUNNING,
    StoryPhase.PAUSED: Reason.PAUSED,
    StoryPhase.BLOCKED: Reason.BLOCKED,
    StoryPhase.SCHEDULING: Reason.SCHEDULED,
    StoryPhase.SUCCEEDED: Reason.COMPLETED,
    StoryPhase.FAILED: Reason.EXECUTION_FAILED,
    StoryPhase.TIMEOUT: Reason.TIMED_OUT,
    StoryPhase.CANCELED: Reason.CANCELED,
    StoryPhase.FINISHED: Reason.CANCELED,
    StoryPhase.ABORTED: Reason.CANCELED,
    StoryPhase.SKIPPED: Reason.SKIPPED,
    StoryPhase.COMPENSATED: Reason.COMPENSATED,
}
