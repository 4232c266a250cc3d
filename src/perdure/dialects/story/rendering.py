"""What templates see: `inputs`, and `steps` as they stand (section 12). Only what a template reads is put together."""

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.dialects.story import offloading
from perdure.dialects.story.body import Body
from perdure.dialects.story.phases import Phase
from perdure.dialects.story.program import Program, Step
from perdure.dialects.story.times import moment
from perdure.expressions.gotemplate import (
    Ambient,
    EvaluationFault,
    References,
    Structure,
    compile_template,
    holds,
    is_template,
)
from perdure.kernel import jsontext
from perdure.kernel.turn import Turn


class Scope:
    """One place of one run: renders templates for `step`, or for the run's output."""

    def __init__(self, turn: Turn, step: Step | None = None, site: str = "") -> None:
        self._turn = turn
        self._body: Body = turn.body
        self._program: Program = turn.program
        self._step = step
        self._site = site or (step.name if step is not None else "output")
        self._drawn = 0
        self._reads_all = offloading.reads_in_process(turn.program)

    def render(self, value: Any, extra: Mapping[str, Any] | None = None) -> Any:
        """A value with its templates replaced by their results. Raises `TemplateError`."""
        structure = Structure(value, self._program.environment)
        if structure.is_constant:
            return value
        return self._filled(structure.render({**self._roots(structure.references), **(extra or {})}, self.ambient()))

    def render_output(self, value: Any) -> Any:
        """The run's final output: an object over everything that has ended (STY-217). Raises `TemplateError`."""
        structure = Structure(value, self._program.output_environment)
        output = self._filled(structure.render(self._roots(structure.references), self.ambient()))
        if not isinstance(output, dict):
            raise EvaluationFault("the output must be an object")
        return output

    def holds(self, condition: str) -> bool:
        """Whether an `if` or `until` is true; text without braces is a literal (STY-061). Raises `TemplateError`."""
        if not is_template(condition):
            return holds(condition)
        template = compile_template(condition, self._program.environment)
        return holds(template.render(self._roots(template.references), self.ambient()))

    def verifies(self, condition: str, name: str, output: Any) -> bool:
        """Whether a condition holds that sees nothing but the output of this one step (STY-216)."""
        if not is_template(condition):
            return holds(condition)
        template = compile_template(condition, self._program.environment)
        seen = {"steps": {name: {"output": output, "outputs": output}}, "inputs": {}}
        return holds(template.render(seen, self.ambient()))

    def _filled(self, value: Any) -> Any:
        return value if self._reads_all else offloading.hydrated(self._turn, value)

    def at(self, path: str) -> Any:
        """What stands at a dotted path `steps.<name>.<field>…`; None when there is nothing (STY-213)."""
        _, name, *rest = path.split(".")
        found: Any = self._view(name) if name in self._program.steps else None
        for member in rest:
            found = found.get(member) if isinstance(found, dict) else None
        return found

    def unmet(self, requires: Any) -> str | None:
        """What to say of the first required path at which there is nothing (STY-213)."""
        for path in requires or ():
            if isinstance(path, str) and self.at(path) is None:
                return f"required context '{path}' is nil — upstream step produced no output for this key"
        return None

    def ambient(self) -> Ambient:
        return Ambient(moment(self._turn.now), self._draw)

    def _draw(self) -> float:
        self._drawn += 1
        return self._turn.draw(f"{self._site}/{self._body.life}/{self._turn.state.seq}", self._drawn)

    def _roots(self, references: References) -> dict[str, Any]:
        names: Iterable[str] = self._program.steps
        if not references.reads_any_step:
            names = references.steps_among(self._program.steps)[0]
        hidden = self._siblings()
        found = {name: self._view(name) for name in names if name not in hidden}
        return {
            "inputs": jsontext.decode(self._turn.text(self._body.inputs)) if "inputs" in references.roots else {},
            "steps": {name: view for name, view in found.items() if view is not None},
        }

    def _siblings(self) -> frozenset[str]:
        """Branches of one parallel step do not see each other (STY-093)."""
        if self._step is None or not self._step.parent:
            return frozenset()
        return frozenset(branch.name for branch in self._program.steps[self._step.parent].branches)

    def _view(self, name: str) -> dict[str, Any] | None:
        """A step that has ended, with an empty output if it gave none; before that, its signals (STY-177, STY-197)."""
        state = self._body.steps.get(name)
        told = self._body.told.get(name)
        signals = {} if told is None else nested(told.signals)
        if state is None or not state.phase.is_terminal:
            if not signals:
                return None
            return {"signals": signals, "phase": "" if state is None else state.phase.value}
        output = self._output(name)
        return {"output": output, "outputs": output, "signals": signals, "phase": state.phase.value}

    def _output(self, name: str) -> Any:
        """A parallel step's output is that of its branches by name, put together when it is read (STY-082)."""
        state = self._body.steps.get(name)
        step = self._program.steps[name]
        if state is not None and state.output is not None:
            if not self._reads_all and offloading.is_offloaded(self._turn, step, state.output):
                return offloading.reference_to(self._body, name)
            return jsontext.decode(self._turn.text(state.output))
        ended_well = state is not None and state.phase is Phase.SUCCEEDED
        return {branch.name: self._output(branch.name) for branch in step.branches} if ended_well else {}


def nested(signals: Mapping[str, bytes]) -> dict[str, Any]:
    """Dotted keys as objects in objects; a later key overrides what stands in its way (STY-177)."""
    found: dict[str, Any] = {}
    for key, text in signals.items():
        *path, last = key.split(".")
        place = found
        for part in path:
            inner = place.get(part)
            if not isinstance(inner, dict):
                inner = place[part] = {}
            place = inner
        place[last] = jsontext.decode(text)
    return found
