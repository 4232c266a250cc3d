"""Moving an open Story to another document: steps that are open must be the same in both, with what they refer to.

Steps that have ended keep their outputs, which templates read by name: each needs a name in the new document. A step
that has not begun may differ in everything, be new, or be gone, unless a step that has begun would have waited for it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.dialects.story.plan.program import Program, Step, StepPlan
from perdure.dialects.story.resources.resource import read_reference, spec_of
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.state.phases import StoryPhase
from perdure.dialects.story.steps.step_kind import ENGRAM
from perdure.kernel.dialect import Obstacle
from perdure.kernel.document_change import FORGOTTEN, DocumentChange
from perdure.kernel.execution import Execution

READ_BEFORE_THE_START = frozenset({"needs", "if", "name", "allowFailure"})


def obstacles(execution: Execution, move: DocumentChange) -> list[Obstacle]:
    body: Body = execution.body
    old: Program = execution.program
    new: Program = move.program
    if (old.namespace, old.name) != (new.namespace, new.name):
        return [Obstacle("", f"the new document is the Story {new.namespace}/{new.name}")]
    if new.refusal is not None:
        return [Obstacle("", new.refusal)]
    if body.topology is not None or not (old.is_batch and new.is_batch):
        return [Obstacle("", "a streaming Story has workers that were started from its document")]
    if not body.begun or body.block != "steps":
        return [Obstacle("", "it is about to begin, or cleans up" if body.begun else "it is about to begin; try again")]
    if body.interruption is not None or body.redrive is not None or body.timed_out:
        return [Obstacle("", "it is being stopped")]
    if body.helping:
        return [Obstacle(f"step {next(iter(body.helping))!r}", "it is under way, for a step of this document")]
    obstacle_list = list(dict.fromkeys(_of_steps(execution, body, move)))
    return obstacle_list or list(_of_dependencies(execution, body, move))


def _of_steps(execution: Execution, body: Body, move: DocumentChange) -> Iterator[Obstacle]:
    old: Program = execution.program
    new: Program = move.program
    for name, state in body.steps.items():
        if name in old.plan.helped or state.phase is StoryPhase.SKIPPED:
            continue
        place, target = f"step {name!r}", move.name(name)
        step = new.steps.get(target)
        is_over = state.phase.is_terminal
        if target == FORGOTTEN and is_over:
            continue
        if step is None:
            what = "it has ended" if is_over else "it is open"
            yield Obstacle(place, f"{what}, and the new document does not have it", needs_mapping=True)
            continue
        if (step.block, step.parent) != (old.steps[name].block, move.name(old.steps[name].parent)):
            yield Obstacle(place, "it has begun, and is at another place in the new document")
        elif not is_over:
            yield from _of_open_step(old, new, old.steps[name], step, state)
        elif move.undoes and _has_begun_since(execution, state) and not _is_same(old, new, old.steps[name], step):
            yield Obstacle(place, "it has begun since the move, and is not the same in both documents")


def _of_dependencies(execution: Execution, body: Body, move: DocumentChange) -> Iterator[Obstacle]:
    """A step that has begun would have waited for one that has not."""
    new: Program = move.program
    helped = execution.program.plan.helped
    kept = {move.name(name) for name, state in body.steps.items() if name not in helped and state.has_begun}
    for name in sorted(kept - {FORGOTTEN}):
        for needed in new.plan.waits.get(name, ()):
            if needed not in kept:
                yield Obstacle(f"step {name!r}", f"it has begun, and in the new document it waits for {needed!r}")


def _has_begun_since(execution: Execution, state: StepState) -> bool:
    return state.started_at >= execution.state.documents_before[-1].at


def _of_open_step(old: Program, new: Program, step: Step, target: Step, state: StepState) -> Iterator[Obstacle]:
    place = f"step {step.name!r}"
    if step.name != target.name and (state.run is not None or state.child or state.fan is not None or state.open):
        yield Obstacle(place, "it has begun under this name: its work has keys of it; try again when it has ended")
    elif not _is_same(old, new, step, target):
        yield Obstacle(place, "it is open, and it differs, or an Engram or Story that it uses does")
    elif (state.open or state.fan is not None) and (step.with_block != target.with_block):
        yield Obstacle(place, "it has branches that are open, and differs")


def _is_same(old: Program, new: Program, step: Step, target: Step) -> bool:
    """Whether a step that has begun would go on in the same way."""
    if step.kind != target.kind or _begun(step.data) != _begun(target.data):
        return False
    if old.settings != new.settings:
        return False
    return _used(old, step) == _used(new, target)


def _begun(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in data.items() if name not in READ_BEFORE_THE_START}


def _used(program: Program, step: Step) -> list[Any]:
    """The resources that the step and its branches refer to, without what only counts their versions."""
    used: list[Any] = []
    for part in (step, *step.branches):
        reference = read_reference(part.data.get("ref"), program.namespace) if part.kind == ENGRAM else None
        engram = None if reference is None else program.resources.find("Engram", reference.namespace, reference.name)
        template = None if engram is None else read_reference(spec_of(engram).get("templateRef"), "")
        used.append(None if engram is None else spec_of(engram))
        engram_template = None if template is None else program.resources.find("EngramTemplate", "", template.name)
        used.append(None if engram_template is None else spec_of(engram_template))
    if step.kind != ENGRAM:
        used.append(program.bundle.get("stories") if "storyRef" in step.with_block else None)
    return used


def moved(body: Body, program: Program, mapping: Mapping[str, str]) -> Body:
    plan = program.plan
    known = plan.order

    def name_of(step: str) -> str:
        return mapping.get(step, step)

    def renamed(steps: Mapping[str, Any]) -> dict[str, Any]:
        return {name_of(name): value for name, value in steps.items() if name_of(name) in known}

    body.plan = plan
    for member in ("steps", "signals_and_effects", "gates", "failed", "stale", "waits", "help", "help_inputs"):
        setattr(body, member, renamed(getattr(body, member)))
    body.launched = {name_of(name): children for name, children in body.launched.items()}
    for member in ("tasks", "timers", "permits"):
        setattr(body, member, {number: name_of(step) for number, step in getattr(body, member).items()})
    pending, unstarted = renamed(body.agenda), renamed(body.unstarted)
    _take_up_plan(body, plan, pending, unstarted)
    return body


def _take_up_plan(body: Body, plan: StepPlan, pending: Mapping[str, Any], unstarted: Mapping[str, Any]) -> None:
    """What can move, and what waits for what, as if the run had come here with this plan."""
    block = plan.blocks[body.block]
    steps = body.steps
    body.unstarted = dict.fromkeys(
        name for name in plan.order if name in unstarted or (name in block and name not in steps)
    )
    body.open = sum(name not in steps or not steps[name].phase.is_terminal for name in block)
    body.waiting = {
        name: sum(needed not in steps or not steps[needed].phase.is_terminal for needed in waits)
        for name, waits in plan.waits.items()
    }
    ready = {
        name
        for name in body.unstarted
        if name not in plan.parents and name not in steps and (not body.waiting[name] or _is_cut_off(body, plan, name))
    }
    body.agenda = dict.fromkeys(name for name in plan.order if name in pending or name in ready)


def _is_cut_off(body: Body, plan: StepPlan, name: str) -> bool:
    """Whether a step that it waits for has failed: it is skipped without waiting for the others."""
    states = [(needed, body.steps[needed]) for needed in plan.waits[name] if needed in body.steps]
    return any(
        state.follows_failure
        or (state.phase.is_failure and needed not in plan.allowed_to_fail and not state.interrupted)
        for needed, state in states
    )
