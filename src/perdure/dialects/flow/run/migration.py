"""Moving an open Flow to another document: where the run is inside of something, that must be the same in both.

A step that the run is in has begun: only what is read at its end (`next`, `catch`, `output`, `assign`) may differ.
Steps that it has not entered may differ in everything. Of steps that it has left nothing is read again.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.dialects.flow.plan.program import Program, pointer
from perdure.dialects.flow.state.body import Body, Frame, MiddlewareScope, Step
from perdure.kernel.dialect import Obstacle
from perdure.kernel.document_change import DocumentChange
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext

UNDER_ITS_NAME = "it has begun under this name, which its tasks have in their keys; try again when it has ended"
READ_AT_THE_END = frozenset({"next", "catch", "output", "assign", "comment"})


def obstacles(execution: Execution, move: DocumentChange) -> list[Obstacle]:
    body: Body = execution.body
    comparison = _Comparison(execution.program, move)
    obstacle_list = [obstacle for frame in body.frames.values() for obstacle in comparison.of_frame(frame)]
    if move.undoes:
        obstacle_list += comparison.of_decisions(body)
    return list(dict.fromkeys(obstacle_list))


def step_name(flow: str, step: str) -> str:
    """The step as a mapping names it: behind the Flows around it, if it is not in the document's own."""
    return "/".join([*flow.split("/")[2::2], step])


class _Comparison:
    """The document that a run has, and the one it is to have."""

    def __init__(self, program: Program, move: DocumentChange) -> None:
        self._program = program
        self._new: Program = move.program
        self._move = move
        self._before = jsontext.decode(move.before)
        self._after = jsontext.decode(move.document)

    def of_frame(self, frame: Frame) -> Iterator[Obstacle]:
        if frame.checkpoint is not None or frame.interrupted is not None:
            yield Obstacle("", "a failure is on its way through the run; try again once it is caught")
            return
        if frame.flow not in self._new.flows:
            yield Obstacle(f"flow {frame.flow}", "the new document does not have it, and the run is inside of it")
            return
        for depth, scope in enumerate(frame.stack):
            match scope:
                case Step():
                    yield from self._of_step(frame, scope, is_top=depth == len(frame.stack) - 1)
                case MiddlewareScope(site=site):
                    if _part(self._before, site) != _part(self._after, site):
                        yield Obstacle(f"middleware {site}", "the run is inside of it, and it differs")

    def _of_step(self, frame: Frame, step: Step, *, is_top: bool) -> Iterator[Obstacle]:
        name = step_name(frame.flow, step.name)
        place, target = f"step {name!r}", self._move.name(name)
        site, moved = pointer(frame.flow, "steps", step.name), _moved_site(frame.flow, target)
        after = _part(self._after, moved)
        if not isinstance(after, dict) or _flow_of(moved) != frame.flow:
            yield Obstacle(place, "the run is in it, and the new document does not have it", needs_mapping=True)
        elif target != name and not is_top:
            yield Obstacle(place, UNDER_ITS_NAME)
        elif _begun(_part(self._before, site)) != _begun(after):
            yield Obstacle(place, f"it has begun, and {_difference(_part(self._before, site), after)}")
        elif step.fan is not None and _flows_below(self._before, self._program, site) != _flows_below(
            self._after, self._new, moved
        ):
            yield Obstacle(place, "it calls Flows side by side, and one of them differs")

    def of_decisions(self, body: Body) -> Iterator[Obstacle]:
        """Steps that were entered since the run was moved, of which the former document knows nothing."""
        for site in body.entered or ():
            flow, step = _flow_of(site), site.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
            name = step_name(flow, step)
            known = _part(self._after, _moved_site(flow, self._move.name(name)))
            if _begun(known) != _begun(_part(self._before, site)):
                yield Obstacle(f"step {name!r}", "it was entered since the move, and is not the same in both documents")


def _moved_site(flow: str, name: str) -> str:
    """A mapping names steps of the Flow that the step is in."""
    return pointer(flow, "steps", name.rpartition("/")[2])


def _flow_of(site: str) -> str:
    return site.rpartition("/steps/")[0]


def _is_place(name: str) -> bool:
    return name.isdecimal() and len(name) <= 18


def _part(document: Any, site: str) -> Any:
    for name in site.split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list):
            document = document[int(name)] if _is_place(name) and int(name) < len(document) else None
        else:
            document = document.get(name) if isinstance(document, dict) else None
    return document


def _begun(step: Any) -> Any:
    """What of a step was read when it began, or is read while the run is in it."""
    return (
        {name: part for name, part in step.items() if name not in READ_AT_THE_END} if isinstance(step, dict) else step
    )


def _difference(before: Any, after: Any) -> str:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return f"its {', '.join(repr(name) for name in names if name not in READ_AT_THE_END)} differs"


def _flows_below(document: Any, program: Program, site: str) -> dict[str, Any]:
    """The Flows that calls of a part lead to, and those that these call."""
    flows: dict[str, Any] = {}
    waiting = [site]
    while waiting:
        part = waiting.pop() + "/"
        for called, call in program.calls.items():
            if call.flow is not None and called.startswith(part) and call.flow.site not in flows:
                flows[call.flow.site] = _part(document, call.flow.site)
                waiting.append(call.flow.site)
    return flows


def moved(body: Body, program: Program, mapping: Mapping[str, str]) -> Body:
    body.program = program
    body.entered = {_renamed(site, mapping): None for site in body.entered or ()}
    for frame in body.frames.values():
        for scope in frame.stack:
            if isinstance(scope, Step):
                name = step_name(frame.flow, scope.name)
                scope.name = mapping.get(name, name).rpartition("/")[2]
    return body


def _renamed(site: str, mapping: Mapping[str, str]) -> str:
    return renamed_site(_flow_of(site), site.rpartition("/")[2].replace("~1", "/").replace("~0", "~"), mapping)


def renamed_site(flow: str, step: str, mapping: Mapping[str, str]) -> str:
    """Where a step of a Flow is in the new document."""
    return _moved_site(flow, mapping.get(step_name(flow, step), step))
