"""What a drill decides: one move at a time, for the thread that is first on the agenda."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from perdure.kernel.inputs import CONTROL_WAIT_RANK
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import NULL, SECOND, Payload
from perdure.kernel.outcomes import Cancelled, Code, Failed, Status, Succeeded
from perdure.kernel.tasks.permits import resource_scope
from perdure.kernel.tasks.retry import Backoff, delay
from perdure.kernel.turn import Turn
from perdure.testing.drill import body as b
from perdure.testing.drill.program import Program, Step, duration

CANCELLED_AT_ONCE = 200
GRACE = 10 * SECOND
TIMEOUT_RANK = 1  # an end of a wait at the same instant comes first


def advance(turn: Turn) -> bool:
    body: b.Body = turn.body
    if body.ending is not None and not body.cleaning:
        return _wind_up(turn, body)
    if not body.begun:
        turn.emit(b.Spawned(b.MAIN, None, ""))
        return True
    number = next(iter(body.agenda), None)
    if number is None:
        return False
    thread = body.threads[number]
    if thread.timer and not thread.timed_out:
        turn.drop_timer(thread.timer)  # what it bounded has ended in time
    if thread.failed is not None:
        _failed(turn, body, number, thread, thread.failed)
    elif thread.timed_out and thread.task:
        turn.cancel_task(thread.task, "timeout")
        turn.emit(b.Waited(number, thread.task))
    elif (step := body.step(thread)) is None:
        _leave(turn, body, number, thread)
    else:
        _MOVES[step.kind](turn, number, thread, step)
    return True


def _leave(turn: Turn, body: b.Body, number: int, thread: b.Thread) -> None:
    frame = thread.frames[-1]
    is_over = len(thread.frames) == 1 and frame.times == 1
    permit, last = frame.permit, thread.last
    turn.emit(b.Left(number))
    if permit:
        turn.release_permit(permit)
    if is_over and thread.parent is None:
        if body.ending is not None:
            turn.end(*body.ending)
        else:
            turn.end(Status.SUCCEEDED, Succeeded(body.variables.get("result", last)))


def _failed(turn: Turn, body: b.Body, number: int, thread: b.Thread, failed: Failed) -> None:
    step = body.step(thread)
    assert step is not None
    retry = step.fields.get("retry")
    if retry is not None and thread.attempt < retry.get("attempts", 3) and failed.retryable is not False:
        wait = delay(
            Backoff(retry.get("backoff", "exponential")), duration(retry.get("delay", "100ms")), thread.attempt
        )
        if retry.get("jitter"):
            wait = int(wait * turn.draw(step.block, thread.attempt))
        turn.emit(b.Waited(number, turn.set_timer(turn.now + wait), is_timer=True))
    elif "catch" in step.fields:
        turn.emit(b.Caught(number))
    elif body.cleaning:
        status, outcome = body.ending or (Status.FAILED, failed)
        turn.end(Status.FAILED, failed if status is Status.SUCCEEDED else outcome)
    else:
        turn.emit(b.Ending(Status.FAILED, failed))


def _wind_up(turn: Turn, body: b.Body) -> bool:
    """One move of ending: ask what is open to stop; when nothing is, clean up; then the end."""
    state = turn.state
    if not body.asked and _ask_to_stop(turn):
        return True
    if state.tasks or state.children:
        if not body.asked:
            turn.emit(b.AllAsked())  # so that no result costs a search through all that are still open
        return False
    program: Program = turn.program
    if program.has_cleanup:
        turn.emit(b.CleanupBegan())
        turn.emit(b.Spawned(b.CLEANUP, None, "cleanup"))
    else:
        assert body.ending is not None
        turn.end(*body.ending)
    return True


def _ask_to_stop(turn: Turn) -> bool:
    """Whether anything was open that had not been asked; a part of it is now."""
    state = turn.state
    tasks = _some(number for number, task in state.tasks.items() if not task.cancelling)
    children = _some(number for number, child in state.children.items() if not child.cancelling)
    timers, permits = _some(state.timers), _some(state.permits)
    for number in tasks:
        turn.cancel_task(number, "the run is ending")
    for number in children:
        turn.cancel_child(number, "the run is ending")
    for number in timers:
        turn.drop_timer(number)
    for number in permits:
        turn.release_permit(number)
    return bool(tasks or children or timers or permits)


def _some(numbers: Iterable[int]) -> list[int]:
    return list(islice(numbers, CANCELLED_AT_ONCE))


def end_cancelled(turn: Turn, reason: str) -> None:
    if turn.body.ending is None:
        turn.emit(b.Ending(Status.CANCELLED, Cancelled(reason)))


def end_exhausted(turn: Turn) -> None:
    message = "the run moved too long without outside input"
    if turn.body.ending is None:
        turn.emit(b.Ending(Status.FAILED, Failed(Code.MOVES_EXHAUSTED, message)))
    else:
        turn.end(Status.FAILED, Failed(Code.MOVES_EXHAUSTED, message))


# Values.


def _payload(turn: Turn, thread: b.Thread, value: Any) -> Payload:
    """A value of the document as an event carries it; a plain variable passes untouched, however large."""
    if isinstance(value, str) and value.startswith("$"):
        return _variable(turn, thread, value[1:])
    return jsontext.encode_finite(_filled(turn, thread, value))


def _variable(turn: Turn, thread: b.Thread, name: str) -> Payload:
    if name == "item":
        return thread.item
    if name == "index":
        return str(thread.index).encode()
    if name == "last":
        return thread.last
    value: Payload = turn.body.variables.get(name, NULL)
    return value


def _filled(turn: Turn, thread: b.Thread, value: Any) -> Any:
    if isinstance(value, str) and value.startswith("$"):
        return jsontext.decode(turn.text(_variable(turn, thread, value[1:])))
    if isinstance(value, dict):
        return {name: _filled(turn, thread, member) for name, member in value.items()}
    if isinstance(value, list):
        return [_filled(turn, thread, item) for item in value]
    return value


# The moves of each kind of step.


def _call(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    fields = step.fields
    arguments = _payload(turn, thread, fields["with"]) if "with" in fields else b"{}"
    input = _payload(turn, thread, fields["input"]) if "input" in fields else NULL
    loop = "".join(f".{frame.times}" for frame in thread.frames if frame.times > 1)
    bound = turn.now + duration(fields["timeout"]) if "timeout" in fields else None
    turn.schedule_task(
        step.about,
        f"{number}:{step.block}{loop}",
        arguments,
        input,
        attempt=thread.attempt,
        pool=fields.get("pool", ""),
        max_deliveries=fields.get("deliveries", 5),
        grace=duration(fields["grace"]) if "grace" in fields else GRACE,
        hold_effects_in_doubt=fields.get("hold_effects", False),
        deadline=bound,
    )
    if bound is not None:
        timer = turn.set_timer(bound, TIMEOUT_RANK)
        turn.emit(b.Waited(number, timer, is_timer=True))


def _sleep(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    turn.emit(b.Waited(number, turn.set_timer(turn.now + duration(step.about)), is_timer=True))


def _signal(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    if turn.body.signals.get(step.about):
        turn.emit(b.Heard(number, step.about))
        return
    if "timeout" in step.fields and not thread.timer:
        timer = turn.set_timer(turn.now + duration(step.fields["timeout"]), CONTROL_WAIT_RANK)
        turn.emit(b.Waited(number, timer, is_timer=True))
    turn.emit(b.Listened(number, step.about))


def _fan(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    if thread.fan is None:
        if step.kind == "all":
            total, items = len(step.about), list[bytes]()
        else:
            over = step.about
            if isinstance(over, str):
                over = jsontext.decode(turn.text(_variable(turn, thread, over[1:])))
            items = [] if isinstance(over, int) else [jsontext.encode_finite(item) for item in over]
            total = over if isinstance(over, int) else len(over)
        turn.emit(b.Fanned(number, total, step.fields.get("limit") or max(total, 1), items))
        return
    fan = thread.fan
    if fan.started < fan.total and fan.active < fan.limit:
        block = f"{step.block}/{fan.started}" if step.kind == "all" else f"{step.block}/do"
        item = fan.items[fan.started] if fan.items else NULL
        turn.emit(b.Spawned(turn.body.spawned + 1, number, block, fan.started, item))
    elif fan.active == 0:
        results = b"[" + b",".join(turn.text(fan.results[index]) for index in range(fan.total)) + b"]"
        turn.emit(b.Advanced(number, results))
    else:
        raise RuntimeError("a thread that waits for its branches is not on the agenda")


def _repeat(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    if step.about < 1:
        turn.emit(b.Advanced(number))
    else:
        turn.emit(b.Entered(number, f"{step.block}/do", step.about))


def _child(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    input = _payload(turn, thread, step.fields["input"]) if "input" in step.fields else NULL
    document = jsontext.encode_finite(step.about)
    awaited = step.fields.get("wait", True)
    name = step.about.get("name", "drill")
    child = turn.start_child("drill", document, name, input, awaited=awaited)
    turn.emit(b.Waited(number, child) if awaited else b.Advanced(number))


def _permit(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    permit = turn.request_permit(step.about, step.fields.get("priority", 0), step.fields.get("limit"))
    turn.emit(b.Waited(number, permit))


def _resource(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    """The entry's document; while there is none the thread waits for it."""
    named = step.about.split("/", 2)
    rows = turn.resource(*named)
    described = [
        permit for permit, held in turn.state.permits.items() if held.granted and held.scope == resource_scope(*named)
    ]
    if rows is None:
        turn.emit(b.Waited(number, turn.await_resource(*named)))
    else:
        turn.emit(b.Advanced(number, jsontext.encode(rows)))
    for permit in described:
        turn.release_permit(permit)


def _recall(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    memory = turn.cached(step.about)
    turn.emit(b.Advanced(number, NULL if memory is None else memory.value))


def _remember(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    value = _payload(turn, thread, step.fields.get("value"))
    turn.remember(step.about, value, duration(step.fields["ttl"]) if "ttl" in step.fields else None)
    turn.emit(b.Advanced(number))


def _set(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    values = {name: jsontext.encode_finite(_filled(turn, thread, value)) for name, value in step.about.items()}
    for name, value in values.items():
        turn.emit(b.Bound(name, value))
    turn.emit(b.Advanced(number))


def _draw(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    turn.emit(b.Bound(step.about, jsontext.encode_finite(turn.draw(step.block, turn.state.seq))))
    turn.emit(b.Advanced(number))


def _trip(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    turn.emit(b.Advanced(number))


def _spin(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    turn.emit(b.Spun(number) if thread.spun < step.about else b.Advanced(number))


def _fail(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    failed = Failed(step.about, step.fields.get("message", ""))
    if turn.body.cleaning:
        turn.end(Status.FAILED, failed)
    else:
        turn.emit(b.Ending(Status.FAILED, failed))


def _return(turn: Turn, number: int, thread: b.Thread, step: Step) -> None:
    result = turn.keep(jsontext.encode_finite(_filled(turn, thread, step.about)))
    if turn.body.cleaning:
        turn.emit(b.Advanced(number))
    else:
        turn.emit(b.Ending(Status.SUCCEEDED, Succeeded(result)))


_MOVES: dict[str, Callable[[Turn, int, b.Thread, Step], None]] = {
    "call": _call,
    "sleep": _sleep,
    "signal": _signal,
    "all": _fan,
    "each": _fan,
    "repeat": _repeat,
    "child": _child,
    "permit": _permit,
    "resource": _resource,
    "recall": _recall,
    "remember": _remember,
    "set": _set,
    "draw": _draw,
    "spin": _spin,
    "trip": _trip,
    "fail": _fail,
    "return": _return,
}
