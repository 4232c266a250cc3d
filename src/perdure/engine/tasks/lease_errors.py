"""What a worker elsewhere is told when its answer does not count."""

from perdure.kernel.errors import PerdureError


class LeaseGone(PerdureError):
    """The lease is not this worker's any more: it ended, the task was handed on, or its run needs it no longer."""

    code = "LEASE-GONE"
    hint = "Stop the task; what was sent changed nothing."


class LeaseAnswered(PerdureError):
    """The task of this lease was answered before, with something else; the first answer counts."""

    code = "LEASE-ANSWERED"
    hint = "Send the same answer again, or none."


class OwnerSilent(PerdureError):
    """The process that owns the run has not decided in time."""

    code = "OWNER-SILENT"
    hint = "Send the same request again: it finds the decision, or is decided then."
