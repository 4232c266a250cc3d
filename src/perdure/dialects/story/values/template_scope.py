"""What templates see: `inputs`, and `steps` as they stand (section 12). Only what a template reads is put together."""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.dialects.story.plan.helper_steps import OUTPUT
from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources.timestamps import moment
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.phases import Phase
from perdure.dialects.story.values import materialize, offloaded_data
from perdure.dialects.story.values.references import STORAGE
from perdure.expressions.gotemplate import (
    Ambient,
    Environment,
    EvaluationFault,
    NeedsStoredValue,
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
        self._reads_all = self._program.reads_in_process
        self._injects = self._program.injects

    def render(self, value: Any, purpose: str) -> Any:
        """A value with its templates replaced by their results. Raises `TemplateError`, or `HelperNeeded`."""
        return self.fill(value, Structure(value, self._program.environment), purpose)

    def render_key(self, template: str, purpose: str) -> Any:
        """As `render`, where the result is an identity: what reads something absent fails (STY-280)."""
        environment = self._program.key_environment
        return self._filled(self._rendered(template, Structure(template, environment), environment, purpose))

    def fill(self, value: Any, structure: Structure, purpose: str) -> Any:
        """As `render`, of what was compiled before."""
        if structure.is_constant:
            return value
        return self._filled(self._rendered(value, structure, self._program.environment, purpose))

    def render_output(self) -> Any:
        """The run's final output: an object over everything that has ended (STY-217). Raises as `render` does.

        What lies in storage stays there, and a reference to it is given (STY-208).
        """
        program = self._program
        output = self._rendered(
            program.spec.get("output"), program.output_structure, program.output_environment, OUTPUT
        )
        if not isinstance(output, dict):
            raise EvaluationFault("the output must be an object")
        self._filled(output)  # a reference that leads to nothing is missing data (STY-218)
        return output

    def holds(self, condition: str, purpose: str, *, anew: bool = False, may_differ: bool = True) -> bool:
        """Whether an `if` or `until` is true; text without braces is a literal (STY-061). Raises as `render` does.

        One that is looked at again and `anew` is evaluated again also where nothing it reads has changed.
        """
        if not is_template(condition):
            return holds(condition)
        template = compile_template(condition, self._program.environment)
        roots = self._roots(template.references)
        try:
            return holds(self._at_hand(template.render, roots))
        except NeedsStoredValue:
            if not self._injects:
                raise
        inputs = materialize.request(self._program, materialize.CONDITION, condition, roots)
        if anew:
            raise materialize.HelperNeeded(purpose, self._name, inputs)
        return materialize.result(self._turn, purpose, self._name, inputs, may_differ=may_differ) is True

    def _rendered(self, value: Any, structure: Structure, environment: Environment, purpose: str) -> Any:
        try:
            return self._at_hand(structure.render, self._roots(structure.references))
        except NeedsStoredValue:
            if not self._injects:
                raise
        split = materialize.Split(lambda part: self._part(part, environment))
        give = split.part(value)
        roots = self._roots(Structure(split.holes, environment).references)
        inputs = materialize.request(
            self._program, materialize.OBJECT, split.holes, roots, refuses_absent=environment.refuses_absent
        )
        return give(materialize.result(self._turn, purpose, self._name, inputs))

    def _part(self, value: Any, environment: Environment) -> Any:
        structure = Structure(value, environment)
        return structure.render(self._roots(structure.references), self.ambient())

    def _at_hand(self, render: Callable[[Mapping[str, Any], Ambient], Any], roots: dict[str, Any]) -> Any:
        """Rendered here. References in data, wherever they come from, are followed where large values are read."""
        try:
            return render(roots, self.ambient())
        except NeedsStoredValue:
            if not self._reads_all:
                raise
            return render(offloaded_data.hydrated(self._turn, roots), self.ambient())

    @property
    def _name(self) -> str:
        return self._step.name if self._step is not None else ""

    def verifies(self, condition: str, name: str, output: Any) -> bool:
        """Whether a condition holds that sees nothing but the output of this one step (STY-216)."""
        if not is_template(condition):
            return holds(condition)
        template = compile_template(condition, self._program.environment)
        seen = {"steps": {name: {"output": output, "outputs": output}}, "inputs": {}}
        return holds(template.render(seen, self.ambient()))

    def _filled(self, value: Any) -> Any:
        """With what lies in storage, as far as it is this run's."""
        try:
            return value if self._reads_all else offloaded_data.hydrated(self._turn, value, follows=True)
        except offloaded_data.MissingStoredValue as nothing:
            raise EvaluationFault(str(nothing)) from None

    def at(self, path: str) -> Any:
        """What stands at a dotted path `steps.<name>.<field>…`, in storage too; None when there is none (STY-213)."""
        _, name, *rest = path.split(".")
        found: Any = self._view(name) if name in self._program.steps else None
        for member in rest:
            if isinstance(found, dict) and STORAGE in found:
                found = offloaded_data.hydrated(self._turn, found)
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
        steps, reads_inputs = self._program.read(references)
        hidden = self._siblings()
        seen = {}
        for name in steps:
            if name not in hidden and (view := self._view(name)) is not None:
                seen[name] = view
        return {"inputs": jsontext.decode(self._turn.text(self._body.inputs)) if reads_inputs else {}, "steps": seen}

    def _siblings(self) -> frozenset[str]:
        """Branches of one parallel step do not see each other (STY-093)."""
        if self._step is None or not self._step.parent:
            return frozenset()
        return self._program.siblings[self._step.parent]

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
            if not self._reads_all:
                return offloaded_data.seen(self._turn, step, state.output)
            return jsontext.decode(self._turn.text(state.output))
        ended_well = state is not None and state.phase is Phase.SUCCEEDED
        return self.outputs_of(step) if ended_well else {}

    def outputs_of(self, step: Step) -> dict[str, Any]:
        return {branch.name: self._output(branch.name) for branch in step.branches}


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
