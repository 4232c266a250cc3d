"""Moving an open Playbook to another document: step-runs in flight must find their step as it was.

Of a step in flight only its router may differ: it is read when the step has ended. Tokens that wait for a step are
admitted by the gate of the new document. Results of steps that have run are read by name, so those need a name there.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.dialects.playbook.document.cursor import Report
from perdure.dialects.playbook.document.io import canonical_form
from perdure.dialects.playbook.plan.program import Program
from perdure.dialects.playbook.state import body as b
from perdure.documents import read_document
from perdure.kernel.dialect import Obstacle
from perdure.kernel.document_change import FORGOTTEN, DocumentChange
from perdure.kernel.execution import Execution

UNDER_ITS_NAME = "it has begun under this name, which its tasks have in their keys; try again when it has ended"
READ_AT_THE_END = frozenset({"next", "desc"})
OF_THE_START = frozenset({"entry_step"})


def obstacles(execution: Execution, move: DocumentChange) -> list[Obstacle]:
    body: b.Body = execution.body
    if not body.begun:
        return [Obstacle("", "it is about to begin; try again")]
    if body.stopped is not None or body.finalizing or body.final:
        return [Obstacle("", "it is about to end")]
    return list(dict.fromkeys(_obstacles_of(execution, body, move)))


def _obstacles_of(execution: Execution, body: b.Body, move: DocumentChange) -> Iterator[Obstacle]:
    old: Program = execution.program
    new: Program = move.program
    before, after = _document(move.before), _document(move.document)
    if old.path != new.path or old.is_io != new.is_io:
        yield Obstacle("", "the new document has another path, or another profile")
    if before.get("keychain") != after.get("keychain"):
        yield Obstacle("keychain", "it differs, and its secrets were resolved when the run began")
    if any(task.pool for task in execution.state.tasks.values()):
        yield Obstacle("", "a worker of a pool has a task of it, and the document it was started from")
    yield from _of_joins(body, old, new, move)
    in_flight = {run.step for run in body.runs.values()}
    steps, moved_steps = _steps(before), _steps(after)
    shared = [part for part in ("workbook", "executor") if _shared(before, part) != _shared(after, part)]
    for name in in_flight:
        place = f"step {name!r}"
        if move.name(name) not in new.steps:
            yield Obstacle(place, "it is in flight, and the new document does not have it", needs_mapping=True)
        elif move.name(name) != name:
            yield Obstacle(place, UNDER_ITS_NAME)
        elif _begun(steps[name]) != _begun(moved_steps[name]):
            yield Obstacle(place, "it is in flight, and differs")
        elif shared:
            yield Obstacle(place, f"it is in flight, and {' and '.join(repr(part) for part in shared)} differs")
    for name in _known(body) - in_flight:
        if (target := move.name(name)) not in new.steps and target != FORGOTTEN:
            reason = "the run has been there, or is on its way there, and the new document does not have it"
            yield Obstacle(f"step {name!r}", reason, needs_mapping=True)
        elif target == FORGOTTEN and _is_awaited(body, name):
            yield Obstacle(f"step {name!r}", "the run is on its way there", needs_mapping=True)
    if move.undoes:
        for name in body.begun_since or ():
            if _begun(steps.get(name)) != _begun(moved_steps.get(move.name(name))):
                yield Obstacle(f"step {name!r}", "it has begun since the move, and is not the same in both documents")


def _document(text: bytes) -> dict[str, Any]:
    data: dict[str, Any] = canonical_form(read_document(text).data, Report()).data
    return data


def _steps(document: Mapping[str, Any]) -> dict[str, Any]:
    return {step["step"]: step for step in document["workflow"]}


def _begun(step: Any) -> Any:
    return (
        {name: part for name, part in step.items() if name not in READ_AT_THE_END} if isinstance(step, dict) else step
    )


def _shared(document: Mapping[str, Any], part: str) -> Any:
    """What all steps use, without what is only read at the start."""
    value = document.get(part)
    if part == "executor" and isinstance(value, dict) and isinstance(value.get("spec"), dict):
        value = {**value, "spec": {name: item for name, item in value["spec"].items() if name not in OF_THE_START}}
    return value


def _known(body: b.Body) -> set[str]:
    names = set(body.tallies)
    names.update(token.step for token in body.tokens.values())
    names.update(kept.token.step for kept in body.unfinished_tokens.values())
    names.update(kept.run.step for kept in body.unfinished_runs.values())
    return names


def _is_awaited(body: b.Body, name: str) -> bool:
    kept = [kept.token.step for kept in body.unfinished_tokens.values()]
    kept += [kept.run.step for kept in body.unfinished_runs.values()]
    return name in kept or any(token.step == name for token in body.tokens.values())


def _of_joins(body: b.Body, old: Program, new: Program, move: DocumentChange) -> Iterator[Obstacle]:
    if not old.joins and not new.joins:
        return
    if not body.forks:
        if new.joins:
            yield Obstacle("", "the new document joins branches, and the run began without that")
        return
    is_forked = len(body.forks) > 1 or any(fork.held or fork.trackers for fork in body.forks.values())
    if is_forked and (move.mapping or _reach(old, new) != _reach(new, old)):
        yield Obstacle("", "branches that are to be joined are under way, and the joins differ or have other names")


def _reach(program: Program, other: Program) -> Any:
    """Which joins there are, and which steps lead to them, as far as both documents have the steps."""
    return {
        name: (program.steps[name].join, {step: reached for step, reached in reach.items() if step in other.steps})
        for name, reach in program.joins.items()
    }


def moved(body: b.Body, program: Program, mapping: Mapping[str, str]) -> b.Body:
    """Folding has put the tokens that wait before their gates; where there is none any more, they are admitted."""
    for number in [number for number in body.unevaluated if program.steps[body.tokens[number].step].admission is None]:
        del body.unevaluated[number]
        body.tokens[number].state = b.TokenState.ADMITTED
        body.admitted[number] = None
        body.waiting = False
    return body
