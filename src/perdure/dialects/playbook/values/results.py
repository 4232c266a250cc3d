"""Results of tasks as the rest of the run sees them: small ones inline, larger ones by reference (PBK-170)."""

from typing import Any, NamedTuple

import msgspec

from perdure.dialects.playbook.plan.program import Loop, Program, Task
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.loop_state import LoopState
from perdure.dialects.playbook.state.names import run_id
from perdure.dialects.playbook.state.task_errors import Error
from perdure.dialects.playbook.state.values import NOTHING, Value
from perdure.dialects.playbook.values import references
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.turn import Turn


def attempt_ended(
    turn: Turn,
    number: int,
    source: str,
    payload: Payload,
    extras: bytes | None = None,
    lent_bodies: tuple[p.Stored, ...] = (),
    *,
    stays_here: bool = False,
) -> p.AttemptEnded:
    """The end of a successful attempt. May read a body to describe it; emits nothing.

    `stays_here`: its body is kept with the run, whatever the task says.
    """
    task = task_of(turn, number)
    if stays_here:
        task = msgspec.structs.replace(task, result=msgspec.structs.replace(task.result, store="auto"))
    stored: tuple[p.Stored, ...] = lent_bodies
    reference: bytes | None = None
    if references.size_of(payload) > task.result.inline_max:
        try:
            stored_result = store_result(turn, number, task, payload)
        except references.BadSelect as bad:
            return attempt_failed(turn, number, bad.problem, extras)
        stored, reference = (*lent_bodies, stored_result), stored_result.reference
    inline_payload = turn.keep(payload) if source == "given" else b"null"
    return p.AttemptEnded(number, turn.now, None, source, inline_payload, extras, reference, False, stored)


def attempt_failed(turn: Turn, number: int, problem: Error, extras: bytes | None = None) -> p.AttemptEnded:
    return p.AttemptEnded(number, turn.now, problem, extras=extras)


def task_of(turn: Turn, number: int) -> Task:
    thread: b.PipelineThread = turn.body.threads[number]
    program: Program = turn.program
    return program.steps[turn.body.runs[thread.run].step].task_at(thread.position)


def store_result(turn: Turn, number: int, task: Task, payload: Payload, uri: str = "") -> p.Stored:
    """The body with its reference, under the uri of this attempt unless another one is passed."""
    thread: b.PipelineThread = turn.body.threads[number]
    step = turn.body.runs[thread.run].step
    if not uri:
        uri = references.attempt_uri(turn.execution.id, task, thread.run, thread.index, thread.visits, thread.attempt)
    return references.store(turn, uri, task.result, payload, shard(turn.program.steps[step].loop, thread))


def shard(loop: Loop | None, thread: b.PipelineThread) -> dict[str, Any]:
    """Which shard of a fan-out this is (PBK-132)."""
    return {} if loop is None or loop.fanout is None else shard_names(thread.run, thread.index)


def shard_names(run: int, index: int) -> dict[str, Any]:
    loop = run_id(run)
    return {"loop_id": loop, "shard_id": f"{loop}/{index}", "iter_index": index, "iter_key": str(index)}


# Results of step-runs.


class StepResult(NamedTuple):
    value: Value
    uri: str = ""  # of its reference
    manifest: p.Stored | None = None  # replaces the results of a loop that are too large to be inlined (PBK-111)
    keeps: bool = False


NO_RESULT = StepResult(NOTHING)


def step_result(turn: Turn, number: int, loop: Loop | None) -> StepResult:
    """The result of a successful step-run and its reference."""
    run: b.StepRun = turn.body.runs[number]
    keeps: bool = turn.program.reads_references
    if run.loop is not None and loop is not None:
        return _left_by_loop(turn, number, run.loop, loop, keeps)
    if run.result.is_null:
        return NO_RESULT
    if run.result.reference is not None:
        return StepResult(run.result, jsontext.decode(run.result.reference)["ref"])
    task = next(candidate for candidate in turn.program.steps[run.step].tasks if candidate.label == run.label)
    uri = references.attempt_uri(turn.execution.id, task, number, b.ALONE, run.visits, run.attempt)
    return StepResult(run.result, uri, None, keeps)


def _left_by_loop(turn: Turn, number: int, state: LoopState, loop: Loop, keeps: bool) -> StepResult:
    uri = references.loop_uri(turn.execution.id, turn.body.runs[number].step, number)
    if state.is_cursor or _size_of_loop(state) <= loop.result.inline_max:
        return StepResult(state.result, uri, None, keeps)
    manifest = references.manifest(uri, loop.result, state, turn.now)
    value = Value(parts=state.result.parts, failed=state.failed, reference=manifest.reference)
    return StepResult(value, uri, manifest)


def _size_of_loop(state: LoopState) -> int:
    """The size of the result in JSON, without building it."""
    stats = {"total": state.total, "success": state.total - state.failed, "failed": state.failed}
    around = len(jsontext.encode({"results": [], "stats": stats})) + max(0, state.total - 1)
    return around + state.size + len(b"null") * (state.total - len(state.results))
