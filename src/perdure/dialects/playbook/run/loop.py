"""The loop of a step (section 6): what it goes over, how many iterations run at once, their starts, and how it fails.

Beside it: how iterations change `ctx` (`ctx_merge`), how they are queued and counted (`state/folding/threads`), and
what the loop leaves as a result (`values/results`).
"""

from typing import Any

from perdure.dialects.playbook.plan.program import Loop, LoopCursor
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.loop_state import LoopState
from perdure.dialects.playbook.state.task_errors import Error, error, template_message
from perdure.dialects.playbook.state.values import Value
from perdure.dialects.playbook.values.template_scopes import control_makers, gather
from perdure.expressions.jinja import TemplateError
from perdure.kernel.evaluation_trace import note_site
from perdure.kernel.turn import Turn

IN_FLIGHT = 10  # of a parallel loop without `max_in_flight` (PBK-108)
SHARDS_IN_FLIGHT = 100


class CannotLoop(Exception):
    """The collection or the limit of a loop cannot be used: the step fails before its first iteration."""

    def __init__(self, problem: Error) -> None:
        super().__init__(problem.message)
        self.problem = problem


def collection_of(turn: Turn, loop: Loop, token: b.Token) -> list[Any]:
    """Once per step-run; a map or a text is not silently treated as one element (PBK-103)."""
    makers = control_makers(turn, token.args, token.event)
    note_site("loop.in")
    try:
        collection = loop.over.render(gather(makers, loop.over.reads))
    except TemplateError as fault:
        raise CannotLoop(error("loop_collection", f"loop.in: {template_message(fault)}", source=token.step)) from None
    if not isinstance(collection, list):
        kind = {dict: "a map", str: "a text", type(None): "null"}.get(type(collection), type(collection).__name__)
        raise CannotLoop(error("loop_collection", f"loop.in must be a list, not {kind}", source=token.step))
    if loop.fanout is not None and len(collection) > loop.fanout.max_shards:
        message = f"{len(collection)} shards, {loop.fanout.max_shards} are allowed"
        raise CannotLoop(error("limit", message, "MAX_SHARDS", source=token.step))
    return collection


def limit_of(turn: Turn, loop: Loop, token: b.Token) -> int:
    """How many iterations may run at once (PBK-108)."""
    if loop.cursor is not None:
        return loop.cursor.row_concurrency * (1 if loop.max_in_flight is None else _rendered_limit(turn, loop, token))
    if not loop.is_parallel:
        return 1
    if loop.max_in_flight is None:
        return IN_FLIGHT if loop.fanout is None else SHARDS_IN_FLIGHT
    return _rendered_limit(turn, loop, token)


def _rendered_limit(turn: Turn, loop: Loop, token: b.Token) -> int:
    assert loop.max_in_flight is not None
    makers = control_makers(turn, token.args, token.event)
    try:
        limit = loop.max_in_flight.render(gather(makers, loop.max_in_flight.reads))
    except TemplateError as fault:
        raise CannotLoop(error("template", f"max_in_flight: {template_message(fault)}", source=token.step)) from None
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        message = f"max_in_flight must be a whole number above 0, not {limit!r}"
        raise CannotLoop(error("template", message, source=token.step))
    return limit


def start_iteration(turn: Turn, number: int) -> None:
    """The next one of a step-run: one to be repeated, or one that has not run yet; or a claim of further ones."""
    body: b.Body = turn.body
    loop = body.runs[number].loop
    assert loop is not None
    if loop.claimed is not None:
        _count_frame(turn, number, loop, loop.claimed)
    elif loop.repeats or loop.next < loop.total:
        turn.emit(p.IterationStarted(number, loop.repeats[0] if loop.repeats else loop.next, body.threads_made + 1))
    else:
        turn.emit(p.ClaimStarted(number, body.threads_made + 1))


def _count_frame(turn: Turn, number: int, state: LoopState, claimed: Value) -> None:
    """A claim returns a frame, or no row: then nothing is left (PBK-114)."""
    step = turn.program.steps[turn.body.runs[number].step]
    cursor: LoopCursor = step.loop.cursor
    rows = len(claimed.read(turn.text)["rows"])
    iterations = min(rows, 1) if cursor.takes_frames else rows
    failed: Error | None = None
    if rows > cursor.max_rows:
        message = (
            f"the claim returned {rows} rows, frame.max_rows allows {cursor.max_rows}; write"
            " LIMIT {{ __frame_max_rows }}; these rows are claimed, and not worked on"
        )
        failed = error("limit", message, "FRAME_TOO_LARGE", source=step.name)
    elif state.total + iterations > cursor.max_iterations:
        message = (
            f"more than {cursor.max_iterations} iterations (cursor.options.max_iterations);"
            f" the {rows} rows of the last claim are claimed, and not worked on"
        )
        failed = error("limit", message, "CURSOR_ITERATIONS", source=step.name)
    turn.enumerated += iterations
    turn.emit(p.FrameClaimed(number, iterations, rows, failed))


def failure_of(loop: Loop, state: LoopState) -> Error | None:
    """Why the loop has failed; None when no iteration has, or when failed ones are allowed."""
    if state.claim_error is not None and not (state.failed and not loop.is_best_effort):
        return state.claim_error
    if not state.failed:
        return None
    forgives = loop.fanout.allow_partial if loop.fanout is not None else loop.is_best_effort
    return None if forgives else state.error
