"""Which events of a run are worth a line while it is followed, and the line. Ordinary progress is not among them."""

from perdure.kernel import events as e
from perdure.kernel.ids import child_run
from perdure.kernel.outcomes import Cancelled, Failed, Outcome
from perdure.kernel.values import RunId


class ProgressNarrator:
    """Follows the events of one run; remembers the names of open tasks, for their ends carry only a number."""

    def __init__(self, run: RunId) -> None:
        self._run = run
        self._tasks: dict[int, str] = {}

    def sentence(self, event: e.Event) -> str | None:
        match event:
            case e.TaskScheduled():
                self._tasks[event.task] = event.provider
                return None
            case e.TaskEnded():
                name = self._tasks.pop(event.task, "")
                is_good = not isinstance(event.outcome, Failed)
                return None if is_good else f"task {event.task} ({name}) failed: {outcome_text(event.outcome)}"
            case e.TaskRedelivered():
                charged = ", charged" if event.charged else ""
                return f"task {event.task} is handed out again (delivery {event.delivery}{charged}): {event.reason}"
            case e.TaskHeld():
                return f"task {event.task} is held: nobody knows whether the effect {event.effect!r} happened"
            case e.EffectUnfit():
                return f"the effect {event.key!r} was performed, but its result has no JSON form: {event.reason}"
            case e.EffectSettled():
                return f"the effect {event.effect!r} was settled: {'not done' if event.result is None else 'done'}"
            case e.ChildStarted():
                return f"child {child_run(self._run, event.child)} started ({event.name})"
            case e.ChildEnded():
                said = outcome_text(event.outcome)
                return f"child {child_run(self._run, event.child)} {status_words(event.status)}{f': {said}' if said else ''}"
            case e.SignalReceived():
                return f"signal {event.name!r} arrived"
            case e.CancelRequested():
                return f"asked to stop{f': {event.reason}' if event.reason else ''}"
            case e.Steered():
                return f"asked to {event.verb}"
            case e.InputDeclined():
                return f"{event.kind}{f' by {event.by}' if event.by else ''} does not count: {event.reason}"
            case e.RunReopened():
                return f"reopened, life {event.incarnation}"
            case e.RunForked():
                return f"forked from {event.source}"
            case _:
                return None


def outcome_text(outcome: Outcome) -> str:
    """Why it did not end well; nothing when it did."""
    match outcome:
        case Failed(code, message):
            return f"{code}: {message}" if message else code
        case Cancelled(reason):
            return reason
        case _:
            return ""


def status_words(status: str) -> str:
    return str(status).replace("_", " ")
