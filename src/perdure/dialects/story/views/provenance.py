"""Where values of a Story's run come from: its inputs, the inputs and outputs of steps, signals, decisions."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from perdure.dialects.story.plan.helper_steps import IF, OUTPUT
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.steps import STEP_KINDS
from perdure.expressions.gotemplate.aliases import find_aliased
from perdure.kernel import events as e
from perdure.kernel.evaluation_trace import ReadPath, ValuePart, ValueSource, ValueTracer, ValueWrite
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.turn import Turn

MOST_ITEMS = 100  # of a map that are told of


def _decode(payload: Payload, turn: Turn) -> Any:
    return jsontext.decode(turn.text(payload))


def _reader(payload: Payload) -> Callable[[Turn], Any]:
    return partial(_decode, payload)


class StoryValues(ValueTracer):
    of_steps = frozenset({"input", "output", "signals", "phase", "condition", "item", "gate"})

    def __init__(self) -> None:
        self._attempts: dict[int, str] = {}  # by task: its step

    def named(self, step: str | None, field: ReadPath) -> list[ValueSource]:
        name, rest = (field[0], field[1:]) if field else ("", ())
        if step is None:
            result = ValueSource(("run",), rest if name == "output" else field, "the output of the run")
            return [_inputs(rest), result] if name == "inputs" else [result]
        known = {"input": "input", "inputs": "input", "with": "input", "output": "output", "outputs": "output"}
        if name in known:
            return [_of(step, known[str(name)], rest)]
        if name == "signals":
            return [_of(step, "signals", rest)]
        return [_of(step, "output", field), _of(step, "input", field)]

    def rename_steps(self, mapping: Mapping[str, str]) -> None:
        self._attempts = {task: mapping.get(step, step) for task, step in self._attempts.items()}

    # What events set.

    def writes(self, execution: Execution, event: e.Event) -> Iterable[ValueWrite]:
        match event:
            case s.StoryStarted(inputs=inputs):
                yield ValueWrite(("inputs",), "the inputs of the run", arrives=True, read=_reader(inputs))
            case s.StepLaunched() | s.StepRunCreated() | s.AttemptStarted() | s.StepStarted() | s.FanBegan():
                self._attempts[getattr(event, "task", 0)] = event.step
                yield self._begun(execution, event.step, is_child=bool(getattr(event, "child", 0)))
            case e.TaskScheduled(task=task, arguments=arguments) if task in self._attempts:
                step = self._attempts[task]
                write = self._begun(execution, step, is_child=False)
                yield msgspec.structs.replace(write, read=lambda turn: _decode(arguments, turn).get("inputs"))
            case s.FanChildEnded(step=step, index=index):
                yield ValueWrite(("item", step, index), f"item {index} of step {step!r}", arrives=True)
            case s.GateDecided(step=step):
                yield ValueWrite(("gate", step), f"the decision at gate {step!r}", arrives=True)
            case s.SignalRecorded(step=step):
                yield ValueWrite(("signals", step), f"signals of step {step!r}", arrives=True)
            case s.StepEnded():
                yield from self._ended(execution, event)
            case s.StepsSkipped(steps=steps):
                for step in steps:
                    yield ValueWrite(("phase", step), f"the phase of step {step!r}")
                    yield ValueWrite(("condition", step), f"the condition of step {step!r}", site=f"{step}/{IF}")
            case s.StoryEnded(output=output):
                read = None if output is None else _reader(output)
                yield ValueWrite(("run",), "the output of the run", site=f"/{OUTPUT}", read=read)

    def _begun(self, execution: Execution, step: str, *, is_child: bool) -> ValueWrite:
        kind = STEP_KINDS[execution.program.steps[step].kind]
        site = f"{step}/{kind.purposes[-1]}" if kind.purposes else f"{step}/"
        within = (0,) if is_child else ()  # beside the `arguments` of another language
        return ValueWrite(("input", step), f"the input of step {step!r}", site=site, within=within)

    def _ended(self, execution: Execution, event: s.StepEnded) -> Iterator[ValueWrite]:
        body: Body = execution.body
        step, text = event.step, f"the output of step {event.step!r}"
        state = body.steps[step]
        read = None if state.output is None else _reader(state.output)
        branches = execution.program.steps[step].branches
        parts: list[ValuePart] = []
        if state.fan is not None:
            items = range(min(state.fan.total, MOST_ITEMS))
            parts = [_part((), ("item", step, index), f"item {index} of step {step!r}") for index in items]
        elif branches:
            parts = [
                _part((item.name,), ("output", item.name), f"the output of step {item.name!r}") for item in branches
            ]
        elif step in body.gates:
            parts = [_part((), ("gate", step), f"the decision at gate {step!r}")]
        yield ValueWrite(("output", step), text, arrives=not parts, parts=tuple(parts), read=read)
        yield ValueWrite(("phase", step), f"the phase of step {step!r}", arrives=True)

    # What templates read.

    def sources(self, execution: Execution, context: Any, path: ReadPath) -> list[ValueSource]:
        match path:
            case ("inputs", *rest):
                return [_inputs(tuple(rest))]
            case ("steps", str(name), "output" | "outputs", *rest):
                return [_of(_step_named(execution, name), "output", tuple(rest))]
            case ("steps", str(name), "signals" | "phase" as member, *rest):
                return [_of(_step_named(execution, name), member, tuple(rest))]
            case ("steps", str(name)):
                known = _step_named(execution, name)
                return [_of(known, part, ()) for part in ("output", "signals", "phase")]
            case ("steps",):
                body: Body = execution.body
                return [_of(name, "output", ()) for name in body.steps]
        return []


def _inputs(rest: ReadPath) -> ValueSource:
    return ValueSource(("inputs",), rest, "the inputs of the run")


def _of(step: str, member: str, rest: ReadPath) -> ValueSource:
    return ValueSource((member, step), rest, f"the {member} of step {step!r}")


def _part(at: ReadPath, key: Hashable, text: str) -> ValuePart:
    return ValuePart(at, ValueSource(key, (), text))


def _step_named(execution: Execution, name: str) -> str:
    """A step may be named by an alias (STY-196)."""
    steps = execution.program.steps
    return name if name in steps else find_aliased(steps, name) or name
