"""What templates see: `inputs` and the current state of `steps` (section 12). Only what a template reads is built."""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.dialects.story.plan.helper_steps import OUTPUT
from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources.timestamps import moment
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.state.phases import StoryPhase
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
from perdure.kernel.evaluation_trace import current_trace, note_site
from perdure.kernel.json_values import jsontext
from perdure.kernel.turn import Turn


class Scope:
    """Renders templates of one place in a run: for `step`, or for the run's output."""

    def __init__(self, turn: Turn, step: Step | None = None, site: str = "", *, reads_all: bool = False) -> None:
        """`reads_all`: stored values are read here, whatever the Story's policy says."""
        self._turn = turn
        self._body: Body = turn.body
        self._program: Program = turn.program
        self._step = step
        self._place = site
        self._drawn = 0
        self._reads_all = reads_all or self._program.reads_in_process

    def render(self, value: Any, purpose: str) -> Any:
        """A value with its templates replaced by their results. Raises `TemplateError` or `HelperNeeded`."""
        return self.fill(value, Structure(value, self._program.environment), purpose)

    def render_key(self, template: str, purpose: str) -> Any:
        """Like `render`, for a result that identifies something: reading absent data is an error (STY-280)."""
        environment = self._program.key_environment
        return self._filled(self._rendered(template, Structure(template, environment), environment, purpose))

    def fill(self, value: Any, structure: Structure, purpose: str) -> Any:
        """Like `render`, for a structure that is already compiled."""
        if structure.is_constant:
            return value
        rendered = self._rendered(value, structure, self._program.environment, purpose)
        return rendered if self._reads_all else self._filled(rendered)

    def render_output(self) -> Any:
        """The run's final output: an object over everything that has ended (STY-217). Raises like `render`.

        Stored values stay in storage; the output contains references to them (STY-208).
        """
        program = self._program
        output = self._rendered(
            program.spec.get("output"), program.output_structure, program.output_environment, OUTPUT
        )
        if not isinstance(output, dict):
            raise EvaluationFault("the output must be an object")
        self._filled(output)  # a reference to a missing value is an error (STY-218)
        return output

    def holds(self, condition: str, purpose: str, *, anew: bool = False, may_differ: bool = True) -> bool:
        """Whether an `if` or `until` is true; text without braces is a literal (STY-061). Raises like `render`.

        With `anew`, it is evaluated again even if nothing that it reads has changed.
        """
        if not is_template(condition):
            return holds(condition)
        template = compile_template(condition, self._program.environment)
        roots = self._roots(template.references)
        note_site(f"{self._name}/{purpose}")
        try:
            return holds(self._render_here(template.render, roots))
        except NeedsStoredValue:
            if not self._program.injects:
                raise
        inputs = materialize.request(self._program, materialize.CONDITION, condition, roots)
        if anew:
            raise materialize.HelperNeeded(purpose, self._name, inputs)
        return materialize.result(self._turn, purpose, self._name, inputs, may_differ=may_differ) is True

    def _rendered(self, value: Any, structure: Structure, environment: Environment, purpose: str) -> Any:
        roots = self._roots(structure.references)
        if current_trace.get() is not None:
            note_site(f"{self._name}/{purpose}")
        if not structure.needs_ambient:
            return structure.render(roots)  # plain paths lead to references where values are stored
        try:
            return self._render_here(structure.render, roots)
        except NeedsStoredValue:
            if not self._program.injects:
                raise
        partial = materialize.PartialRendering(lambda part: self._part(part, environment))
        complete = partial.part(value)
        roots = self._roots(Structure(partial.holes, environment).references)
        inputs = materialize.request(
            self._program, materialize.OBJECT, partial.holes, roots, refuses_absent=environment.refuses_absent
        )
        return complete(materialize.result(self._turn, purpose, self._name, inputs))

    def _part(self, value: Any, environment: Environment) -> Any:
        structure = Structure(value, environment)
        return structure.render(self._roots(structure.references), self.ambient())

    def _render_here(self, render: Callable[[Mapping[str, Any], Ambient], Any], roots: dict[str, Any]) -> Any:
        """Render in this process. References in data are resolved if large values are read here."""
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
        """Whether a condition holds that can only read the output of this step (STY-216)."""
        if not is_template(condition):
            return holds(condition)
        template = compile_template(condition, self._program.environment)
        roots = {"steps": {name: {"output": output, "outputs": output}}, "inputs": {}}
        return holds(template.render(roots, self.ambient()))

    def _filled(self, value: Any) -> Any:
        """The value with stored values of this run filled in."""
        try:
            return value if self._reads_all else offloaded_data.hydrated(self._turn, value, follows=True)
        except offloaded_data.MissingStoredValue as missing:
            raise EvaluationFault(str(missing)) from None

    def at(self, path: str) -> Any:
        """The value at a dotted path `steps.<name>.<field>…`, also in storage; None if there is none (STY-213)."""
        _, name, *fields = path.split(".")
        value: Any = self._view(name) if name in self._program.steps else None
        for member in fields:
            if isinstance(value, dict) and STORAGE in value:
                value = offloaded_data.hydrated(self._turn, value)
            value = value.get(member) if isinstance(value, dict) else None
        return value

    def unmet(self, requires: Any) -> str | None:
        """The message for the first required path without a value (STY-213)."""
        for path in requires or ():
            if isinstance(path, str) and self.at(path) is None:
                return f"required context '{path}' is nil — upstream step produced no output for this key"
        return None

    def ambient(self) -> Ambient:
        return Ambient(moment(self._turn.now), self._draw)

    def _draw(self) -> float:
        self._drawn += 1
        site = self._place or (self._step.name if self._step is not None else "output")
        return self._turn.draw(f"{site}/{self._body.life}/{self._turn.state.seq}", self._drawn)

    def _roots(self, references: References) -> dict[str, Any]:
        steps, reads_inputs = self._program.read(references)
        step = self._step
        # A branch does not see the other branches of its own parallel step (STY-093).
        hidden = self._program.siblings[step.parent] if step is not None and step.parent else ()
        visible = {}
        for name in steps:
            if name not in hidden and (view := self._view(name)) is not None:
                visible[name] = view
        return {"inputs": jsontext.decode(self._turn.text(self._body.inputs)) if reads_inputs else {}, "steps": visible}

    def _view(self, name: str) -> dict[str, Any] | None:
        """An ended step, with an empty output if it has none; before its end, its signals (STY-177, STY-197)."""
        body = self._body
        state = body.steps.get(name)
        reported = body.signals_and_effects.get(name) if body.signals_and_effects else None
        signals = {} if reported is None else nested(reported.signals)
        if state is None or not state.phase.is_terminal:
            if not signals:
                return None
            return {"signals": signals, "phase": "" if state is None else state.phase.value}
        if self._reads_all and state.output is not None:
            output = jsontext.decode(self._turn.text(state.output))
        else:
            output = self._output(name)
        return {"output": output, "outputs": output, "signals": signals, "phase": str(state.phase)}

    def _output(self, name: str) -> Any:
        """A step's output; that of a parallel step is built from its branches when it is read (STY-082)."""
        state = self._body.steps.get(name)
        step = self._program.steps[name]
        if state is not None and state.output is not None:
            if not self._reads_all:
                return offloaded_data.visible_output(self._turn, step, state.output)
            return jsontext.decode(self._turn.text(state.output))
        has_succeeded = state is not None and state.phase is StoryPhase.SUCCEEDED
        return self.outputs_of(step) if has_succeeded else {}

    def outputs_of(self, step: Step) -> dict[str, Any]:
        return {branch.name: self._output(branch.name) for branch in step.branches}


def nested(signals: Mapping[str, bytes]) -> dict[str, Any]:
    """Dotted keys as nested objects; a later key replaces a conflicting one (STY-177)."""
    nested_signals: dict[str, Any] = {}
    for key, text in signals.items():
        *path, last = key.split(".")
        target = nested_signals
        for part in path:
            inner = target.get(part)
            if not isinstance(inner, dict):
                inner = target[part] = {}
            target = inner
        target[last] = jsontext.decode(text)
    return nested_signals
