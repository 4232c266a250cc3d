"""A Story as a net: each step waits for its dependencies, starts or is skipped, and ends.

    todo ──▶ starts ──▶ [ its kind ] ──▶ ended          the next block begins when all steps of one have ended
         └─▶ skipped: its `if`, a failure, a stop

Which step fails is not followed: a run in which one may fail has *trouble* from the beginning, and then every step may
be skipped or not. That allows more than runs do, and keeps the number of states proportional to the document.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.dialects.story.plan.execution_policy import ExecutionPolicy, own_timeout
from perdure.dialects.story.plan.program import Program, Step, object_at
from perdure.dialects.story.plan.step_graph import BLOCKS, StepGraph, references_in, steps_of
from perdure.dialects.story.resources.resource import read_reference
from perdure.dialects.story.steps import STEP_KINDS, kinds_in
from perdure.expressions.gotemplate import (
    DETERMINISTIC,
    RUNTIME,
    ExpressionError,
    References,
    compile_template,
    holds,
    is_condition,
    is_template,
)
from perdure.kernel.graphs.net import START, DefectKind, Net, Remark
from perdure.kernel.json_values.values import Instant
from perdure.kernel.turn_budget import FOR_A_CONSTANT, TurnTooExpensive, at_most

_KINDS = {
    "steps": DefectKind.DEAD_STEP,
    "compensations": DefectKind.HANDLER_UNREACHABLE,
    "finally": DefectKind.FINAL_NEVER,
}
_MESSAGES = {
    "steps": "no run starts step '{}'",
    "compensations": "no run starts the compensation '{}'",
    "finally": "no run starts the step '{}' of `finally`",
}


def net_of(program: Program) -> Net | None:
    if program.refusal is not None or not program.is_batch:
        return None  # it cannot start, or it lives as long as its streams
    return StoryNet(program).net


class StoryNet:
    """What kinds of steps build their part of the net with."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.net = Net()
        self.bound: Instant | None = program.bounds.get("story")  # it ends the main block; cleanup goes on (STY-134)
        self.graph = StepGraph(program.spec)
        self.trouble = self.net.place()
        self.stopped = {block: self.net.place() for block in BLOCKS}  # a step of the block has ended it
        self.parts: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self.todo: dict[str, int] = {}
        self.endable: set[str] | None = None  # found when a wait asks
        self._may_fail: dict[str, bool] = {}
        self.whole = self.net.part(None)
        for block in BLOCKS:
            for index, name in enumerate(program.plan.blocks[block]):
                self._add_part(name, ("spec", block, index))
        for name in self.parts:
            if name in self.todo:
                self._step(program.steps[name])
        for name in sorted({name for step in program.steps.values() for name in self._awaited(step)}):
            self._skip_early(program.steps[name])
        self._blocks()
        self._check_limits()
        self._check_recursion()

    def _add_part(self, name: str, place: tuple[str | int, ...]) -> None:
        step = self.program.steps[name]
        hint = "Remove it, or change its condition or what it needs."
        message = _MESSAGES[step.block].format(name)
        part = self.parts[name] = self.net.part(name, place, _KINDS[step.block], message, hint)
        self.todo[name] = self.net.place()
        self.ended[name] = self.net.place(part)
        for index, branch in enumerate(step.branches):
            inside = (*place, "with", STEP_KINDS[step.kind].branches_member, index)
            self.parts[branch.name] = self.net.part(
                branch.name, inside, DefectKind.DEAD_STEP, f"no run starts branch '{branch.name}'", hint
            )

    # What kinds use.

    def succeed(
        self, step: Step, at: int, choice: str = "succeeds", *, waits: bool = False, reads: Sequence[int] = ()
    ) -> None:
        self.net.add(self.parts[step.name], choice, (at,), (self.ended[step.name],), waits=waits, reads=reads)

    def fail(self, step: Step, at: int, choice: str = "fails", *, waits: bool = False) -> None:
        """The step itself fails, here and not only as part of some trouble."""
        part, ended = self.parts[step.name], self.ended[step.name]
        if step.allows_failure:
            self.net.add(part, choice, (at,), (ended,), waits=waits)
            return
        self.net.add(part, choice, (at,), (ended, self.trouble), unless=(self.trouble,), waits=waits)
        self.net.add(part, choice, (at,), (ended,), reads=(self.trouble,), waits=waits)

    def work(self, step: Step, at: int, *, may_fail: bool = True) -> None:
        """The step works and ends; that it may fail is known from the beginning."""
        self.succeed(step, at, "ends")
        self._may_fail[step.name] = may_fail and not step.allows_failure

    def stop(self, step: Step, at: int, *, fails: bool) -> None:
        """The step ends the block: what has not started is skipped."""
        part, ended, stopped = self.parts[step.name], self.ended[step.name], self.stopped[step.block]
        for has_stopped in (False, True):
            stopping = () if has_stopped else (stopped,)
            reads = (stopped,) if has_stopped else ()
            if not fails:
                self.net.add(part, "stops the Story", (at,), (ended, *stopping), reads=reads, unless=stopping)
                continue
            puts, hinders = (ended, self.trouble, *stopping), (self.trouble, *stopping)
            self.net.add(part, "fails the Story", (at,), puts, reads=reads, unless=hinders)
            self.net.add(
                part, "fails the Story", (at,), (ended, *stopping), reads=(*reads, self.trouble), unless=stopping
            )

    def wait_for_ever(
        self, step: Step, at: int, kind: str, message: str, hint: str, *, is_person: bool = False
    ) -> None:
        """The step may stay as it is, if nothing around it ends it."""
        if self.bound is not None and step.block == "steps":
            self.stop(step, at, fails=True)
            return
        part, stuck = self.parts[step.name], self.net.place()
        self.net.add(part, "waits", (at,), (stuck,), waits=True)
        self.net.add(part, "is stopped", (stuck,), (self.ended[step.name],), reads=(self.stopped[step.block],))
        self.net.remarks[stuck] = Remark(DefectKind(kind), part, message, hint, is_person=is_person)

    def reads(self, template: Any) -> References:
        return references_in(template)

    def truth(self, condition: str, data: Mapping[str, Any] | None = None) -> bool | str | None:
        return truth(condition, data)

    def is_before(self, step: str, other: str) -> bool:
        """Whether `step` has ended before `other` starts."""
        return self.graph.is_upstream(other, self.program.plan.parents.get(step, step))

    def is_after(self, step: str, other: str) -> bool:
        """Whether `step` starts only after `other` has ended."""
        target = self.program.plan.parents.get(step, step)
        blocks = self.program.plan.block_of
        later = BLOCKS.index(blocks[target]) > BLOCKS.index(blocks[other]) if target in blocks else False
        return later or target == other or self.graph.is_upstream(target, other)

    # Steps.

    def _step(self, step: Step) -> None:
        name, part = step.name, self.parts[step.name]
        todo, ended, begin = self.todo[name], self.ended[name], self.net.place(part)
        needed = [self.ended[other] for other in self.program.plan.waits.get(name, ()) if other in self.ended]
        condition = truth(step.condition) if step.condition.strip() else True
        if condition is not False and condition is not WRONG:
            self.net.add(part, "starts", (todo,), (begin,), reads=needed, unless=(self.stopped[step.block],))
        if condition is None or condition is False:
            self.net.add(part, "is skipped", (todo,), (ended,), reads=needed, is_start=False)
        if condition is WRONG:
            self.net.add(part, "fails", (todo,), (ended,), reads=needed, is_start=False)
        is_strict = not self.program.continues_on_failure
        fails_before = needed or (is_strict and any(self._may_fail_at_once(other) for other in self._before(name)))
        if step.block == "steps" and fails_before:
            reads = (*needed, self.trouble)
            self.net.add(part, "is skipped", (todo,), (ended,), reads=reads, is_start=False)
        self.net.add(part, "is skipped", (todo,), (ended,), reads=(self.stopped[step.block],), is_start=False)
        for branch in step.branches:
            if not branch.condition.strip() or truth(branch.condition) not in (False, WRONG):
                self.net.add(self.parts[branch.name], "", (begin,), (begin,), is_bounded=True)
        STEP_KINDS[step.kind].build_net(self, step, begin)
        if condition in (None, WRONG) or step.data.get("requires") or step.data.get("postExecution"):
            self._may_fail[name] = not step.allows_failure

    def _awaited(self, step: Step) -> Iterator[str]:
        """Main steps whose state a wait reads."""
        until = step.with_block.get("until")
        if step.kind == "wait" and isinstance(until, str) and is_template(until):
            yield from (self.reads(until).steps & set(self.program.plan.blocks["steps"]))

    def _skip_early(self, step: Step) -> None:
        """A failure skips at once whatever has not started, or what needs the failed step (STY-064, 066).

        Elsewhere it makes no difference that this does not wait for all that the step needs.
        """
        needed = self.program.plan.waits.get(step.name, ())
        others = needed if self.program.continues_on_failure else self.program.plan.blocks["steps"]
        for other in others:
            if other in self.ended and other != step.name and not self.is_after(other, step.name):
                reads = (self.ended[other], self.trouble)
                part, todo = self.parts[step.name], self.todo[step.name]
                self.net.add(part, "is skipped", (todo,), (self.ended[step.name],), reads=reads, is_start=False)

    def _before(self, name: str) -> Iterator[str]:
        for other in self.program.plan.blocks["steps"]:
            if other == name:
                return
            yield other

    def _may_fail_at_once(self, name: str) -> bool:
        """Whether a step may fail before anything is waited for."""
        step = self.program.steps[name]
        return bool(step.condition.strip()) or has_template(step.data.get("with"))

    # Blocks.

    def _blocks(self) -> None:
        main = self.program.plan.blocks["steps"]
        compensations, final = (self.program.plan.blocks[block] for block in BLOCKS[1:])
        running, undoing = self.net.place(), self.net.place()
        begun = (running, *(self.todo[name] for name in main))
        self.net.add(self.whole, "", (START,), begun)
        if any(self._may_fail.get(name, False) for name in main) or self.bound is not None:
            self.net.add(self.whole, "", (START,), (*begun, self.trouble))
        over = [self.ended[name] for name in main]
        to_final = [self.todo[name] for name in final]
        to_undo = [self.todo[name] for name in compensations]
        skipped = [self.ended[name] for name in compensations]
        self.net.add(self.whole, "", (running,), (*to_final, *skipped), reads=over, unless=(self.trouble,))
        self.net.add(self.whole, "", (running,), (undoing, *to_undo), reads=(*over, self.trouble))
        self.net.add(self.whole, "", (undoing,), to_final, reads=[self.ended[name] for name in compensations])

    # What needs no net.

    def _check_limits(self) -> None:
        if self.bound is None:
            return
        for name, step in self.program.steps.items():
            own = own_timeout(step) or STEP_KINDS[step.kind].own_limit(step)
            if (
                own is not None
                and own > self.bound
                and name in self.parts
                and self.program.plan.block_of[name] == "steps"
            ):
                message = f"the time limit of step '{name}' is longer than that of the Story, which always ends first"
                self.net.find(DefectKind.TIMEOUT_INVERTED, self.parts[name], message, "Make it shorter, or remove it.")

    def check_effects(self, step: Step) -> None:
        """A retry performs side effects again, unless their key says that they are the same."""
        has_key = bool(step.data.get("idempotencyKeyTemplate"))
        retry = ExecutionPolicy(self.program, step, {}, {}).retry()
        if step.has_side_effects and not has_key and retry.most > 0:
            message = f"a retry of step '{step.name}' may repeat its side effects: it has no idempotency key of its own"
            hint = "Set `idempotencyKeyTemplate` to something that names the effect."
            self.net.find(DefectKind.EFFECT_UNKEYED, self.parts[step.name], message, hint)

    def _check_recursion(self) -> None:
        """Stories that call each other for ever (STY-079)."""
        calls = {self.program.name: list(self._calls(self.program.spec))}
        for story in self.program.bundle.get("stories", {}).values():
            name = str(object_at(story, "metadata").get("name"))
            calls.setdefault(name, list(self._calls(object_at(story, "spec"))))
        for step, target, is_certain in calls[self.program.name]:
            way = _way(calls, target, self.program.name)
            if way is None or step not in self.parts:
                continue
            names = " → ".join([self.program.name, *(name for name, _ in way), self.program.name])
            always = is_certain and all(certain for _, certain in way)
            names = names if target != self.program.name else f"{target} → {target}"
            hint = f"A run ends at a depth of {self.program.settings.max_story_depth}. Add a condition that ends it."
            self.net.find(
                DefectKind.RECURSION, self.parts[step], f"this Story calls itself: {names}", hint, is_certain=always
            )

    def _calls(self, spec: Any) -> Iterator[tuple[str, str, bool]]:
        """The steps of a Story that start others: name, Story, and whether every run does so."""
        for data in steps_of(spec.get("steps")):
            with_block = object_at(data, "with")
            condition = truth(data["if"]) if isinstance(data.get("if"), str) and data["if"].strip() else True
            for kind in kinds_in(data) if condition is not False else ():
                for reference in kind.story_references(with_block):
                    target = read_reference(reference, "")
                    if target is not None:
                        yield str(data.get("name")), target.name, condition is True and not data.get("needs")


def _way(calls: dict[Any, list[tuple[str, str, bool]]], start: str, goal: str) -> list[tuple[str, bool]] | None:
    """How one Story leads to another: the Stories on the way, each with whether it always goes on."""
    came: dict[str, list[tuple[str, bool]]] = {start: []}
    pending = [start]
    for name in pending:
        if name == goal:
            return came[name]
        for _, target, is_certain in calls.get(name, ()):
            if target not in came:
                came[target] = [*came[name], (name, is_certain)]
                pending.append(target)
    return None


WRONG = "wrong"


def truth(condition: str, data: Mapping[str, Any] | None = None) -> bool | str | None:
    """What a condition is whatever the data are; None: they decide; WRONG: it has none. `data`: all that it reads."""
    if not is_template(condition):
        return holds(condition) if is_condition(condition) else WRONG
    try:
        template = compile_template(condition)
        if (data is None and template.references.roots) or is_changing(template.references):
            return None
        with at_most(FOR_A_CONSTANT):
            return holds(template.render(data or {}))
    except ExpressionError:
        return WRONG
    except TurnTooExpensive:
        return None


_CHANGING = RUNTIME.functions.keys() - DETERMINISTIC.functions.keys()


def is_changing(references: References) -> bool:
    """Whether a template may have another result later although nothing has happened."""
    return bool(references.functions & _CHANGING)


def has_template(value: Any) -> bool:
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str) and is_template(item):
            return True
        if isinstance(item, dict):
            if "$bubuTemplate" in item:
                return True
            pending += item.values()
        elif isinstance(item, list):
            pending += item
    return False
