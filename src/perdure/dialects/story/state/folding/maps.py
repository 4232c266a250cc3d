"""Maps over items: children start and end, and free a place for the next."""

from collections.abc import Callable
from typing import Any

from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import FAN_PAGE, REDUCE, Body, MapResult, MapState
from perdure.dialects.story.state.phases import Reason, StoryPhase
from perdure.kernel.events import Event


def _began(body: Body, event: s.FanBegan) -> None:
    state = body.steps[event.step]
    state.fan = MapState(
        event.total, event.limit, event.fail_fast, event.allows_failures, event.batch, event.plan, event.items
    )
    state.phase, state.reason = StoryPhase.RUNNING, Reason.RUNNING
    state.message = f"Mapping {event.total} items"
    state.timer = event.timer
    if event.timer:
        body.timers[event.timer] = event.step
    if state.run is not None:
        state.run.attempt = 1
        state.run.began_at = event.at
    _queue(body, event.step, state.fan)


def _child_started(body: Body, event: s.FanChildStarted) -> None:
    fan = _fan(body, event.step)
    fan.children[event.child] = event.index
    fan.results[event.index] = MapResult(event.sub_run)
    if event.index != REDUCE:
        fan.next = event.index + 1
    body.tasks[event.child] = event.step
    _queue(body, event.step, fan)


def _child_ended(body: Body, event: s.FanChildEnded) -> None:
    state = body.steps[event.step]
    fan = _fan(body, event.step)
    del fan.children[event.child]
    body.tasks.pop(event.child, None)
    result = fan.results[event.index]
    result.phase, result.message = event.phase, event.message
    result.result, state.task_result = state.task_result, None
    if event.index != REDUCE:
        if event.phase == StoryPhase.SUCCEEDED:
            fan.succeeded += 1
        else:
            fan.failed += 1
        page = event.index // FAN_PAGE
        fan.ended[page] = fan.ended.get(page, 0) + 1
        if fan.ended[page] == fan.length(page):
            fan.full.append(page)
    _queue(body, event.step, fan)


def _page_closed(body: Body, event: s.FanPageClosed) -> None:
    fan = _fan(body, event.step)
    fan.full.remove(event.page)
    del fan.ended[event.page]
    fan.closed[event.page] = event.results
    for index in range(event.page * FAN_PAGE, event.page * FAN_PAGE + fan.length(event.page)):
        del fan.results[index]
    _queue(body, event.step, fan)


def _recalled(body: Body, event: s.SubRunRecalled) -> None:
    state = body.steps[event.step]
    state.recalled, state.message = True, event.message
    _stop(body, event.step)


def _expired(body: Body, event: s.SubRunsExpired) -> None:
    state = body.steps[event.step]
    body.timers.pop(state.timer, None)
    state.expired, state.timer = True, 0
    _stop(body, event.step)


def _stop(body: Body, step: str) -> None:
    fan = body.steps[step].fan
    if fan is not None:
        fan.recalled = True
        _queue(body, step, fan)


def _queue(body: Body, step: str, fan: MapState) -> None:
    if not fan.children if fan.recalled else fan.full or fan.can_start or fan.is_mapped:
        body.enqueue(step)
    else:
        body.agenda.pop(step, None)


def _fan(body: Body, step: str) -> MapState:
    fan = body.steps[step].fan
    assert fan is not None
    return fan


CHANGES: dict[type[Event], Callable[[Body, Any], None]] = {
    s.FanBegan: _began,
    s.FanChildStarted: _child_started,
    s.FanChildEnded: _child_ended,
    s.FanPageClosed: _page_closed,
    s.SubRunRecalled: _recalled,
    s.SubRunsExpired: _expired,
}
