"""Where values of a Flow's run come from. A value is a cell: what passes it on passes on the same cell."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any

from perdure.dialects.flow.run.moves import ROOT
from perdure.dialects.flow.state import events as f
from perdure.dialects.flow.state.body import SINGLE, Body, Call, Frame, MiddlewareScope, Step
from perdure.dialects.flow.state.values import Cell
from perdure.dialects.flow.steps.match import MatchFields
from perdure.kernel import events as e
from perdure.kernel.evaluation_trace import ReadPath, ValuePart, ValueSource, ValueTracer, ValueWrite
from perdure.kernel.execution import Execution

_LEAVING = (f.StepLeft, f.StepAnswered, f.StepCaught)
_FIELDS = {
    "output": "the output",
    "result": "the result of the call",
    "with": "`with`",
    "input": "the input",
}


def _key(cell: Cell) -> tuple[str, int]:
    return ("cell", id(cell))


class FlowValues(ValueTracer):
    of_steps = frozenset({"input", "output", "result", "with", "condition"})

    def __init__(self) -> None:
        self._cells: dict[int, Cell] = {}  # all that were seen, kept so that ids stay theirs
        self._steps: dict[int, str] = {}  # by frame: the Step that it was in
        self._arrived: Cell | None = None
        self._scheduled: e.TaskScheduled | None = None
        self._program: Any = None

    def named(self, step: str | None, field: ReadPath) -> list[ValueSource]:
        name, rest = (field[0], field[1:]) if field else ("", ())
        if name == "vars" and rest:
            return [ValueSource(("vars", *([step] if step else []), rest[0]), rest[1:], f"variable {rest[0]!r}")]
        if step is None:
            inside = rest if name in ("output", "result") else field
            return [ValueSource(("run",), inside, "the result of the run")]
        known = [ValueSource((name, step), rest, f"{_FIELDS[str(name)]} of Step {step!r}")] if name in _FIELDS else []
        others = (ValueSource((part, step), field, f"{text} of Step {step!r}") for part, text in _FIELDS.items())
        return [*known, *others]

    def renamed(self, key: Hashable, mapping: Mapping[str, str]) -> Hashable | None:
        match key:
            case ("vars", str(step), name):
                return ("vars", mapping.get(step, step), name)
        return super().renamed(key, mapping)

    def rename_steps(self, mapping: Mapping[str, str]) -> None:
        self._steps = {frame: mapping.get(step, step) for frame, step in self._steps.items()}

    # What events set.

    def writes(self, execution: Execution, event: e.Event) -> Iterable[ValueWrite]:
        body: Body = execution.body
        self._program = execution.program
        if isinstance(event, e.TaskScheduled):
            self._scheduled = event
        if isinstance(event, e.RunStarted):
            yield from self._new(body.input, "the run's input", arrives=True)
        if body.arrival is not None and body.arrival.cell is not None:
            self._arrived = body.arrival.cell
            yield from self._new(self._arrived, "the result of the call", arrives=True)
        number: int | None = getattr(event, "frame", None)
        if number is None:
            return
        before = self._steps.get(number, "")
        frame = body.frames.get(number)
        if frame is None:
            if number == ROOT and body.result is not None:
                yield ValueWrite(("run",), "the result of the run", same_as=_key(body.result.cell))
            return
        yield from self._in_frame(frame, event)
        step = frame.step
        if step is not None:
            self._steps[number] = step.name
        yield from self._in_step(frame, event, before)

    def _new(self, cell: Cell | None, text: str, **facts: Any) -> Iterator[ValueWrite]:
        if cell is not None and id(cell) not in self._cells:
            self._cells[id(cell)] = cell
            yield ValueWrite(_key(cell), text, read=cell.read, **facts)

    def _in_frame(self, frame: Frame, event: e.Event) -> Iterator[ValueWrite]:
        """Cells that were not there before."""
        step = frame.step
        opened = isinstance(event, f.FrameOpened)
        arguments = opened and event.owner >= 0  # type: ignore[attr-defined]
        for name, cell in frame.vars.cells.items():
            facts: dict[str, Any] = {"site": f"/assign/{name}"}
            if opened:  # given to the run, or as arguments of the call; otherwise a default
                facts = {"site": "/with", "within": (name,)} if arguments else {"arrives": True}
            yield from self._new(cell, f"variable {name!r}", **facts)
        yield from self._new(frame.input, "the input of the Flow")
        if step is not None:
            yield from self._new(step.input, f"the input of Step {step.name!r}", **self._output(frame, event))
            yield from self._new(step.shaped, f"the input of Step {step.name!r}", site="/input")
            if step.fan is not None:
                yield from self._new(step.fan.elements, f"the elements of {step.name!r}", site="/over")
        index: int = getattr(event, "index", SINGLE)
        call = _call(frame, index)
        if call is not None:
            yield from self._new(call.given, "the input of the call", **self._given(frame, call))
            for result in (call.prepared, call.result):
                site, within = ("/with", ("value",)) if isinstance(event, f.CallEntered) else ("/value", ())
                if result is not None:
                    yield from self._new(result.cell, "the result of the call", site=site, within=within)
        if frame.rising is not None:
            yield from self._new(frame.rising.cell, "the result", site=_site_of_result(event))
        for scope in frame.stack:
            if isinstance(scope, MiddlewareScope):
                yield from self._new(scope.output, "what the middleware passed on", site="/output")
                if scope.pending is not None:
                    yield from self._new(scope.pending.cell, "what the middleware returned")

    def _output(self, frame: Frame, event: e.Event) -> dict[str, Any]:
        """What the Step before passed on: its `output`, or the values of a Gather."""
        if not isinstance(event, f.StepLeft) or not self._results:
            return {"site": "/output"}
        parts = tuple(
            ValuePart((position,), ValueSource(_key(cell), (), f"the result of dispatch {index}"))
            for position, (index, cell) in enumerate(self._results)
        )
        return {"site": "/output", "parts": parts} if parts and event.output is not None else {"site": "/output"}

    _results: tuple[tuple[int, Cell], ...] = ()

    def _given(self, frame: Frame, call: Call) -> dict[str, Any]:
        step = frame.step
        if call.index == SINGLE or step is None or step.fan is None or step.fan.elements is None:
            return {"site": "/input"}
        source = ValueSource(_key(step.fan.elements), (call.index,), "the elements")
        return {"site": "/input", "parts": (ValuePart((), source),)}

    def _in_step(self, frame: Frame, event: e.Event, before: str) -> Iterator[ValueWrite]:
        step = frame.step
        if isinstance(event, f.StepLeft):
            yield from _conditions(self._program.flows[frame.flow].steps[before].fields, event.next)
        if isinstance(event, _LEAVING):
            yield ValueWrite(("output", before), "", same_as=_key(frame.value))
            for name in event.bound:
                yield ValueWrite(("vars", before, name), "", same_as=_key(frame.vars.cells[name]))
            if isinstance(event, f.StepAnswered) and self._arrived is not None:
                yield ValueWrite(("result", before), "", same_as=_key(self._arrived))
        if isinstance(event, f.StepEnded) and event.ok and frame.rising is not None:
            yield ValueWrite(("output", before), "", same_as=_key(frame.rising.cell))
            if frame.owner < 0:
                yield ValueWrite(("run",), "", same_as=_key(frame.rising.cell))
        for name, cell in frame.vars.cells.items():
            yield ValueWrite(("vars", name), "", same_as=_key(cell))
        if step is None:
            return
        if isinstance(event, f.StepEntered | f.StepShaped | f.StepLeft | f.StepAnswered | f.StepCaught):
            yield ValueWrite(("input", step.name), "", same_as=_key(step.shaped or step.input))
        if isinstance(event, f.CallEntered):
            task = self._scheduled
            payload = task.arguments if task is not None and task.task == event.target and not task.sealed else None
            read = None if payload is None else Cell(payload).read
            yield ValueWrite(("with", step.name), f"the arguments of Step {step.name!r}", site="/with", read=read)
            call = _call(frame, event.index)
            if call is not None and call.given is not None:
                yield ValueWrite(("input", step.name), "", same_as=_key(call.given))
        if isinstance(event, f.CallSettled | f.CallLeft | f.CallEntered):
            call = _call(frame, event.index)
            result = call.result if call is not None else frame.rising
            if result is not None:
                yield ValueWrite(("result", step.name), "", same_as=_key(result.cell))
        if step.fan is not None:
            calls = ((index, step.fan.calls.get(index)) for index in range(step.fan.total))
            self._results = tuple((i, c.result.cell) for i, c in calls if c and c.result and c.result.ok)
        else:
            self._results = ()

    # What expressions read.

    def sources(self, execution: Execution, context: Any, path: ReadPath) -> list[ValueSource]:
        if not isinstance(context, Frame) or not path:
            return []
        return list(_Reader(execution.body, context).find(path))


class _Reader:
    """Leads paths of expressions in a frame to cells, as the frame is now."""

    def __init__(self, body: Body, frame: Frame) -> None:
        self.body = body
        self.frame = frame

    def find(self, path: ReadPath) -> Iterator[ValueSource]:
        root, *rest = path
        find: Callable[[ReadPath], Iterator[ValueSource]] | None = getattr(self, f"_{root}", None)
        if find is not None:
            yield from find(tuple(rest))

    def _of(self, cell: Cell | None, rest: ReadPath, text: str) -> Iterator[ValueSource]:
        if cell is not None:
            yield ValueSource(_key(cell), rest, text)

    def _vars(self, path: ReadPath) -> Iterator[ValueSource]:
        for name, cell in self.frame.vars.cells.items():
            if not path or path[0] == name:
                yield from self._of(cell, path[1:], f"variable {name!r}")

    def _frame(self, path: ReadPath) -> Iterator[ValueSource]:
        if path[:1] in ((), ("input",)):
            text = "the run's input" if self.frame.owner < 0 else "the input of the Flow"
            yield from self._of(self.frame.input, path[1:], text)

    def _failure(self, path: ReadPath) -> Iterator[ValueSource]:
        yield from self._of(self.frame.failure, path, "the failure")

    def _match(self, path: ReadPath) -> Iterator[ValueSource]:
        step = self.frame.step
        if step is not None and path[:1] in ((), ("input",)):
            yield from self._of(step.shaped or step.input, path[1:], f"the input of Step {step.name!r}")

    def _step(self, path: ReadPath) -> Iterator[ValueSource]:
        step = self.frame.step
        if step is None:
            return
        if path[:1] in ((), ("input",)):
            yield from self._of(step.input, path[1:], f"the input of Step {step.name!r}")
        if path[:1] in ((), ("result",)):
            yield from self._result(path[1:], f"the result of Step {step.name!r}")
        if path[:1] in ((), ("results",)) and step.fan is not None:
            for index, call in step.fan.calls.items():
                if call.result is not None and path[1:2] in ((), (index,)):
                    text = f"the result of dispatch {index} of Step {step.name!r}"
                    yield from self._of(call.result.cell, _inside(path[2:]), text)

    def _result(self, path: ReadPath, text: str) -> Iterator[ValueSource]:
        """Of what has just ended: it rises, or has arrived in this turn."""
        rising, arrival = self.frame.rising, self.body.arrival
        cell = rising.cell if rising is not None else arrival.cell if arrival is not None else None
        yield from self._of(cell, _inside(path), text)

    def _call(self, path: ReadPath) -> Iterator[ValueSource]:
        call = self._current_call()
        if path[:1] in ((), ("input",)):
            yield from self._received(call, path[1:])
        if path[:1] in ((), ("result",)) and call is not None and call.result is not None:
            yield from self._of(call.result.cell, _inside(path[1:]), "the result of the call")

    _provider = _call

    def _flow(self, path: ReadPath) -> Iterator[ValueSource]:
        call = self._current_call()
        window = call.window if call is not None else None
        if window is not None and path[:1] == ("vars",):
            for name, cell in window.vars.cells.items():
                if path[1:2] in ((), (name,)):
                    yield from self._of(cell, path[2:], f"variable {name!r} of the called Flow")
        elif window is not None and path[:1] == ("input",):
            yield from self._of(window.input, path[1:], "the input of the called Flow")
        else:
            yield from self._call(path)

    def _middleware(self, path: ReadPath) -> Iterator[ValueSource]:
        scope = next((item for item in reversed(self.frame.stack) if isinstance(item, MiddlewareScope)), None)
        if scope is None:
            return
        if path[:1] in ((), ("input",)):
            yield from self._of(scope.input, path[1:], "the input of the middleware")
        if path[:1] in ((), ("result",)):
            yield from self._result(path[1:], "the result inside the middleware")

    def _current_call(self) -> Call | None:
        """The call whose arm runs; None before it is entered."""
        top = self.frame.stack[-1] if self.frame.stack else None
        if isinstance(top, Call):
            return top
        fan = top.fan if isinstance(top, Step) else None
        return None if fan is None or fan.can_start else fan.calls.get(fan.arm)

    def _received(self, call: Call | None, rest: ReadPath) -> Iterator[ValueSource]:
        step = self.frame.step
        fan = step.fan if step is not None else None
        if fan is not None and fan.elements is not None:
            index = call.index if call is not None else fan.next
            yield from self._of(fan.elements, (index, *rest), "the elements")
        else:
            cell = call.received if call is not None else self.frame.value
            yield from self._of(cell, rest, "the input of the call")


def _inside(path: ReadPath) -> ReadPath:
    """A Result is shown as `{type, value}`; the cell holds the value."""
    return path[1:] if path[:1] == ("value",) else path


def _call(frame: Frame, index: int) -> Call | None:
    top = frame.stack[-1] if frame.stack else None
    if isinstance(top, Call):
        return top
    fan = top.fan if isinstance(top, Step) else None
    return None if fan is None else fan.calls.get(index)


def _site_of_result(event: e.Event) -> str:
    match event:
        case f.CallLeft():
            return "/value"
        case f.StepEnded():
            return ""
    return "/value"


def _conditions(fields: Any, next_step: str) -> Iterator[ValueWrite]:
    """Of a Match: those of the cases that were asked; what comes behind the one that held is decided by that one."""
    if not isinstance(fields, MatchFields):
        return
    cases = fields.cases
    taken = next((index for index, case in enumerate(cases) if case.next == next_step), len(cases))
    asked = cases[: taken + 1]
    for index, case in enumerate(asked):
        text = f"the condition of the case that leads to {case.next!r}"
        yield ValueWrite(("condition", case.next), text, site=f"/cases/{index}/when")
    if taken < len(cases):
        known = {case.next for case in asked}
        for name in dict.fromkeys(clause.next for clause in (*cases[taken + 1 :], fields.default)):
            if name not in known:
                text = f"the condition of the case that led to {next_step!r} instead"
                yield ValueWrite(("condition", name), text, site=f"/cases/{taken}/when")
