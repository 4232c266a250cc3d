"""The run as a whole: start, blocks, interruption, end, redrive."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import METADATA, Body, Interruption
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.kernel import events as e
from perdure.kernel.events import Event
from perdure.kernel.json_values import jsontext

STARTING = "Starting StoryRun execution"  # STY-111


def _started(body: Body, event: s.StoryStarted) -> None:
    body.begun = True
    body.name, body.namespace = event.name, event.namespace
    body.inputs = event.inputs
    body.timer = event.timer
    body.since = event.at
    if event.is_refused:
        return
    body.waiting = {name: len(needed) for name, needed in body.plan.waits.items()}
    _run_again(body, event.at)
    body.started_at = event.at
    _enter(body, "steps")


def _run_again(body: Body, at: int) -> None:
    body.phase, body.reason, body.message = StoryPhase.RUNNING, Reason.STARTING, STARTING
    body.attempts += 1
    body.since = at
    body.finished_at = None
    body.output = body.error = None
    body.degraded = ""


def _enter(body: Body, block: str) -> None:
    body.block = block
    names = body.plan.blocks.get(block, ())
    unstarted = [name for name in names if name not in body.steps]
    body.open = len(unstarted)
    body.unstarted = dict.fromkeys(unstarted)
    body.agenda = dict.fromkeys(name for name in unstarted if not body.waiting[name])


def _block_entered(body: Body, event: s.BlockEntered) -> None:
    _enter(body, event.block)


def _interrupted(body: Body, event: s.Interrupted) -> None:
    # A cancel or redrive replaces an earlier interruption; any other cause is kept as it was first.
    if body.interruption is None or event.cause in ("cancel", "redrive"):
        body.interruption = Interruption(event.cause, event.step, event.phase, event.message)


def _time_ran_out(body: Body, event: s.TimeRanOut) -> None:
    body.timed_out = True


def _ended(body: Body, event: s.StoryEnded) -> None:
    body.begun = True
    body.phase, body.reason, body.message = StoryPhase(event.phase), event.reason, event.message
    body.finished_at = event.at
    if body.since is None:
        body.since = event.at
    body.output, body.error, body.degraded = event.output, event.error, event.degraded
    body.block = "done"
    body.agenda.clear()
    body.stale.clear()
    body.waits.clear()
    body.tasks.clear()
    body.timers.clear()
    body.permits.clear()
    body.helping.clear()


def _redrive_asked(body: Body, event: s.RedriveAsked) -> None:
    body.redrive = (event.step, event.token, event.by)


def _redriven(body: Body, event: s.Redriven) -> None:
    body.redrive = body.cleaned_at = None
    body.redriven.append((event.step, event.token))
    if body.interruption is not None and body.interruption.cause == "cancel":
        body.canceled_before = True
    body.interruption = None
    body.timed_out = False
    for pending in (body.agenda, body.stale, body.waits, body.tasks, body.timers, body.permits, body.helping):
        pending.clear()
    if not event.step:
        _start_over(body)
        return
    for name in event.steps:
        body.steps.pop(name, None)
        body.signals_and_effects.pop(name, None)
        body.gates.pop(name, None)
        body.help.pop(name, None)
        body.help_inputs.pop(name, None)
        body.launched.pop(name, None)
    body.failed.clear()  # earlier failures stay, but no longer prevent steps from starting
    plan = body.plan
    body.waiting = {
        name: sum(dependency not in body.steps for dependency in needed) for name, needed in plan.waits.items()
    }
    body.timer = event.timer
    _run_again(body, event.at)
    _enter(body, plan.block_of[event.step])


def _start_over(body: Body) -> None:
    """Reset everything but the number of attempts to the initial state (STY-183)."""
    body.begun = False
    body.phase, body.reason, body.message = StoryPhase.PENDING, Reason.PENDING, ""
    body.since = body.started_at = body.finished_at = None
    body.output = body.error = None
    body.degraded = ""
    body.block = ""
    for collection in (
        body.steps,
        body.signals_and_effects,
        body.gates,
        body.failed,
        body.unstarted,
        body.waiting,
        body.help,
        body.help_inputs,
        body.launched,
    ):
        collection.clear()
    body.open = 0
    body.timer = 0
    body.topology = None


def _children_cleaned(body: Body, event: s.ChildrenCleaned) -> None:
    body.cleaned_at = event.at
    body.launched.clear()


def _steered(body: Body, event: e.Steered) -> None:
    """Labels and annotations are what the message says; all other messages have events of their own."""
    if event.verb == METADATA and isinstance(event.body, bytes):
        changes = jsontext.decode(event.body)
        body.labels.update(changes.get("labels", {}))
        body.annotations.update(changes.get("annotations", {}))


def _resource_found(body: Body, event: s.ResourceFound) -> None:
    body.found_resources[f"{event.kind}/{event.namespace}/{event.name}"] = event.body


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    s.StoryStarted: _started,
    s.BlockEntered: _block_entered,
    s.Interrupted: _interrupted,
    s.TimeRanOut: _time_ran_out,
    s.StoryEnded: _ended,
    s.RedriveAsked: _redrive_asked,
    s.Redriven: _redriven,
    s.ResourceFound: _resource_found,
    s.ChildrenCleaned: _children_cleaned,
    e.Steered: _steered,
}
