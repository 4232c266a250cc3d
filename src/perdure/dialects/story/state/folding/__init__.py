"""How each event changes the state: total functions, constant time in the number of steps."""

from perdure.dialects.story.state import events as s
from perdure.dialects.story.state import stream_events
from perdure.dialects.story.state.folding import arrivals, attempts, maps, runs, signals, steps, topologies
from perdure.kernel import events as e
from perdure.kernel.state_changes import ChangeTable

evolve = ChangeTable(
    {
        **arrivals.CHANGES,
        **attempts.CHANGES,
        **maps.CHANGES,
        **steps.CHANGES,
        **signals.CHANGES,
        **runs.CHANGES,
        **topologies.CHANGES,
    }
)

SILENT_EVENTS: frozenset[type[e.Event]] = frozenset(
    (
        s.FanPageClosed,
        stream_events.PacketRunEnded,
        s.SubRunsExpired,
        s.WaitChecked,
        e.ChildBounded,
        e.ChildCancelRequested,
        e.MessageSent,
        e.MoreInputsDeclined,
        e.PermitGranted,
        e.PermitReleased,
        e.PermitRequested,
        e.SignalReceived,
        e.Sliced,
        e.TaskBegun,
        e.TaskCleared,
        e.TaskReported,
        e.TasksLaidDown,
        e.TasksTakenUp,
        e.TimerDropped,
        e.TimerFired,
        e.TimerSet,
        e.WorkCounted,
    )
)
"""What no resource and no entry of a history tells of."""

SHOWN_EVENTS = frozenset((*e.KERNEL_EVENTS, *s.OWN_EVENTS)) - SILENT_EVENTS
