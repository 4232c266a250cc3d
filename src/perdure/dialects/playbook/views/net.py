"""A Playbook as a net: its tokens are the tokens; gates, joins and routers move them.

arrives ──▶ join ──▶ gate ──▶ pipeline ──▶ done | failed ──▶ arcs ──▶ arrives …
             held     pending                             └─▶ nothing matches
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, islice
from typing import Any

from perdure.dialects.playbook.plan.program import (
    Admission,
    Arc,
    Join,
    OnDeny,
    OnFailure,
    OnStranded,
    Program,
    Step,
)
from perdure.dialects.playbook.run.admission import FIXED, can_be_opened
from perdure.dialects.playbook.views.pipeline_net import add_pipeline, check_effects, formula
from perdure.kernel.graphs.net import START, DefectKind, Net, Remark, answers
from perdure.kernel.json_values.values import SECOND

MOST_WAYS = 200  # in which the branches of a join may come together

_ADD_EXIT = (
    "Set it in a step that runs before, or limit the wait (`deadline_s`, `completion.wait_timeout_s`); a patch sets it."
)
TOO_LONG = "waits too long"


def net_of(program: Program, repeats: Callable[[str], bool] = lambda kind: False) -> Net:
    """`repeats`: whether a second attempt of a task of this kind repeats its side effects."""
    drawn = PlaybookNet(program)
    for name, step in program.steps.items():
        check_effects(drawn.net, step, drawn.parts[name], repeats)
    return drawn.net


class PlaybookNet:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.net = Net()
        self.parts: dict[str, int] = {}
        self.is_hurried = program.completion.on_failure is OnFailure.FAIL_FAST  # the first unhandled failure ends it
        self.index = {name: index for index, name in enumerate(program.steps)}
        self.assigned = {key for step in program.steps.values() for key in _assigned(step)}
        self.denied: list[tuple[Step, Admission, int, int, bool]] = []
        self.failed: dict[str, int] = {}  # by step: where it has failed
        self.waiting: list[int] = []  # places whose tokens keep a run from ending
        for name in program.steps:
            is_final = name == program.final_step
            kind = DefectKind.FINAL_NEVER if is_final else DefectKind.DEAD_STEP
            message = f"no run from the entry {program.entry!r} reaches step {name!r}"
            hint = "Remove it, or let an arc lead to it; until then a run has to begin with it (`--target`)."
            if is_final:
                message, hint = f"the final step {name!r} never runs", "Remove it, or let the run end."
            self.parts[name] = self.net.part(name, ("workflow", self.index[name]), kind, message, hint)
        self.whole = self.net.part(None)
        self.entered = {name: self.net.place() for name in program.steps}  # tokens that may be asked at the gate
        self.held = {
            (name, branch): self.net.place()
            for name, step in program.steps.items()
            if step.join is not None
            for branch in step.join.branches
        }
        self.ran = self.net.place()  # the final step has run
        self.trouble = self.net.place()  # from the beginning: some failure may be one that nobody handles
        self.final = self.net.place()
        self.finalizing = self.net.place()  # the final step runs because nothing else is left
        bounded = [name for name, step in program.steps.items() if step.join is not None and step.deadline is not None]
        self.clocks = {name: self.net.place() for name in bounded}  # as long as the deadline of a join may pass
        first = (self.entered[program.entry], *self.clocks.values(), *((self.final,) if program.final_step else ()))
        self.net.add(self.whole, "", (START,), first)
        begun = len(self.net.transitions)
        for step in program.steps.values():
            self._step(step)
        for denied in self.denied:
            self._leave_pending(*denied)
        for step in program.steps.values():
            if step.join is not None:
                self._join(step, step.join)
        if program.final_step is not None:
            self._finalize(program.final_step)
        if program.timeout is not None:
            self.net.limit_from(begun)
        self._assume_trouble(first)
        self._check_limits()

    def _assume_trouble(self, first: tuple[int, ...]) -> None:
        """If some failure can be one that nobody handles, there are two kinds of runs: with and without such."""
        self.net.add(self.whole, "", (START,), (*first, self.trouble))
        fired = (self.net.transitions[index] for index in self.net.reach()[1])
        if not any(self.trouble in transition.reads and not transition.is_last for transition in fired):
            self.net.transitions.pop()

    def _part(
        self, step: Step, *place: str | int, never: DefectKind | None = None, message: str = "", hint: str = ""
    ) -> int:
        return self.net.part(step.name, ("workflow", self.index[step.name], *place), never, message, hint)

    # A step.

    def _step(self, step: Step) -> None:
        part = self.parts[step.name]
        begin, done, failed = self.net.place(), self.net.place(), self.net.place()
        self.failed[step.name] = failed
        ready = self._gate(step, step.admission) if step.admission is not None else self.entered[step.name]
        puts = (begin, self.ran) if step.name == self.program.final_step else (begin,)
        if step.name == self.program.final_step:
            self.net.add(part, "starts", (ready,), puts, unless=(self.ran,))
            self.net.add(part, "starts", (ready,), (begin,), reads=(self.ran,))
        else:
            self.net.add(part, "", (ready,), puts)
        first = len(self.net.transitions)
        add_pipeline(self.net, step, part, begin, done, failed)
        if step.timeout is not None or step.deadline is not None:
            self.net.limit_from(first)
            if step.tasks:
                self.net.add(part, "takes too long", (begin,), (failed,))
        if step.set and not all(template.is_literal for template in step.set.values()):
            self.net.add(part, "fails", (done,), (failed,), is_failure=True)
        self.net.void.add(failed)
        name = "step.done" if step.loop is None else "loop.done"
        self._route(step, part, done, {"event.name": name, "event.status": "ok", "event.error": None})
        self._route(step, part, failed, {"event.name": "step.failed", "event.status": "error"}, is_failure=True)

    # The gate.

    def _gate(self, step: Step, admission: Admission) -> int:
        """The place of admitted tokens. What a denied token waits for may come from the document, or from outside."""
        message = f"nothing can ever satisfy the admission of step {step.name!r}"
        hint = "Add a rule that allows something that can happen."
        part = self._part(step, "spec", "policy", "admit", never=DefectKind.ADMISSION_NEVER, message=message, hint=hint)
        entered, ready = self.entered[step.name], self.net.place(part)
        conditions = [formula(rule.when, {}) for rule in admission.rules]
        fates = set()
        for answer in answers(conditions):
            index = next((index for index, holds in enumerate(answer) if holds), None)
            fates.add(index is not None and admission.rules[index].allow)
        if not all(isinstance(item, bool) for item in conditions):
            fates.add(False)  # a guard that cannot be evaluated does not match
        if True in fates:
            self.net.add(part, "is admitted", (entered,), (ready,))
        if False not in fates:
            return ready
        if admission.on_deny is OnDeny.DISCARD:
            self.net.add(part, "is refused", (entered,), (), is_start=False)
            return ready
        if step.deadline is not None:
            self.net.add(part, TOO_LONG, (entered,), (self.failed[step.name],), is_start=False, waits=True)
        pending = self.net.place()
        self.net.add(part, "is refused", (entered,), (pending,), is_start=False)
        may_change = True in fates and not admission.watches.names <= FIXED
        if may_change:  # decided here, so that a token that stays denied is seen when nothing else is left
            refused, pending = pending, self.net.place()
            self.net.add(part, "is admitted later", (refused,), (ready,))
            self.net.add(part, "", (refused,), (pending,), is_start=False)
        self.waiting.append(pending)
        self.denied.append((step, admission, part, pending, may_change))
        return ready

    def _leave_pending(self, step: Step, admission: Admission, part: int, pending: int, may_change: bool) -> None:
        """Nothing else can happen and a token is still denied."""
        completion = self.program.completion
        policy = completion.on_stranded
        is_careful = policy in (OnStranded.AUTO, OnStranded.WAIT)
        is_forgiven = is_careful and completion.on_failure is OnFailure.IGNORE
        lost = () if policy is OnStranded.WAIT or is_forgiven else (self.trouble,)
        hindered = () if is_careful and completion.on_failure is OnFailure.PARTIAL else lost
        if lost:  # the run fails because of that
            self.net.add(part, "", (pending,), (), reads=lost, is_start=False, is_last=True)
        if is_careful and can_be_opened(admission) and may_change:
            is_bounded = completion.wait_timeout is not None or self.program.timeout is not None
            if is_bounded or step.deadline is not None:
                puts = () if step.deadline is None else (self.failed[step.name],)
                self.net.add(
                    part, TOO_LONG, (pending,), puts, unless=hindered, is_start=False, is_last=True, waits=True
                )
                return
            stuck = self.net.place()
            self.waiting.append(stuck)
            self.net.add(part, "waits for a patch", (pending,), (stuck,), unless=hindered, is_start=False, is_last=True)
            read = admission.watches.members.get("ctx")
            is_set = bool(self.assigned) if read is None else bool(read & self.assigned)
            kind = DefectKind.UNBOUNDED_WAIT if is_set else DefectKind.NO_SENDER
            names = ", ".join(f"ctx.{name}" for name in sorted(read or ())) or "ctx"
            if is_set:
                message = f"step {step.name!r} waits for {names} without a time limit"
            else:
                message = f"step {step.name!r} waits for {names}, which nothing in this document sets"
            self.net.remarks[stuck] = Remark(kind, part, message, _ADD_EXIT, is_person=True)
            return
        if policy is OnStranded.DISCARD or (is_careful and admission.watches.names <= FIXED):
            self.net.add(part, "is dropped", (pending,), (), is_start=False, is_last=True)
            return
        stranded = self.net.place()
        self.net.add(part, "is stranded", (pending,), (stranded,), unless=lost, is_start=False, is_last=True)
        message = f"the run can end while a token is denied at step {step.name!r}"
        self.net.remarks[stranded] = Remark(
            DefectKind.STRANDED, part, message, "Allow it in every case, or write `on_deny: discard`."
        )

    # Joins.

    def _join(self, step: Step, join: Join) -> None:
        message = f"the join of step {step.name!r} can never complete: its branches never all arrive in one run"
        hint = "Name steps that run together, or ask for fewer of them with `mode: any` or `n`."
        part = self._part(step, "spec", "join", never=DefectKind.JOIN_NEVER, message=message, hint=hint)
        held = {branch: self.held[(step.name, branch)] for branch in join.branches}
        may_be_late = join.need < len(join.branches) or step.deadline is not None
        late = {branch: self.net.place() for branch in join.branches} if may_be_late else {}
        ways = list(islice(combinations(join.branches, join.need), MOST_WAYS))
        for way in ways:
            rest = [late[branch] for branch in join.branches if branch not in way]
            self.net.add(part, "joins", [held[branch] for branch in way], (self.entered[step.name], *rest))
        for way in self._incomplete_ways(step, join):
            others = [branch for branch in join.branches if branch not in way]
            puts = (self.failed[step.name], *(late[branch] for branch in others))
            unless = [held[branch] for branch in others]
            takes, clock = [held[branch] for branch in way], (self.clocks[step.name],)
            self.net.add(part, TOO_LONG, takes, puts, reads=clock, unless=unless, is_start=False, waits=True)
        if step.name in self.clocks:  # everything else may be faster
            self.net.add(part, "", (self.clocks[step.name],), (), is_start=False)
        for branch, place in late.items():
            self.net.add(part, "is too late", (held[branch], place), (), is_start=False)
            self.net.add(part, "", (place,), (), is_start=False, is_last=True)
        message = f"the run can end while a token waits at the join of step {step.name!r}"
        hint = "Let every branch arrive, whatever its step ends with, or ask for fewer of them."
        for place in held.values():
            stranded = self.net.place()
            self.net.add(
                part, "never joins", (place,), (stranded,), unless=(self.trouble,), is_start=False, is_last=True
            )
            self.net.remarks[stranded] = Remark(DefectKind.STRANDED, part, message, hint)
            # With a failure, that is what is wrong, not what waits for its branch.
            self.net.add(part, "", (place,), (), reads=(self.trouble,), is_start=False, is_last=True)

    def _incomplete_ways(self, step: Step, join: Join) -> Iterator[tuple[str, ...]]:
        """Which branches may have arrived when the deadline of a join passes."""
        if step.deadline is not None:
            ways = (way for count in range(1, join.need) for way in combinations(join.branches, count))
            yield from islice(ways, MOST_WAYS)

    # Arcs.

    def _route(self, step: Step, part: int, at: int, known: Mapping[str, Any], *, is_failure: bool = False) -> None:
        arcs = () if step.router is None or not self._is_routed(step) else step.router.arcs
        known = {**known, "event.step": step.name}
        conditions = [formula(arc.when, known) for arc in arcs]
        ordinary: tuple[int, ...] = ()
        if arcs and step.name == self.program.final_step:  # in the finalization run its arcs do not count (PBK-141)
            ordinary = (self.finalizing,)
            self.net.add(part, "ends its branch", (at,), (), reads=ordinary, is_failure=is_failure)
        is_inclusive = step.router is not None and step.router.is_inclusive
        ways: dict[tuple[int, ...], None] = {}
        for answer in answers(conditions):
            fired = tuple(index for index, holds in enumerate(answer) if holds)
            ways[fired if is_inclusive else fired[:1]] = None
        for fired in ways:
            if not fired:
                self._end_branch(step, part, at, ordinary, is_failure=is_failure, has_arcs=bool(arcs))
                continue
            targets = [self._target(step, arcs[index]) for index in fired]
            choice = " and ".join(f"→ {arcs[index].step}" for index in fired)
            is_handled = not is_failure or any(arcs[index].when is not None for index in fired)
            reads, ends_run = self._unless_handled(is_handled), self.is_hurried and not is_handled
            how = {"is_failure": is_failure, "ends_run": ends_run}
            self.net.add(part, choice, (at,), targets, reads=reads, unless=ordinary, **how)
        shaping = [arc.args for arc in arcs if arc.args is not None] + [
            item for arc in arcs for item in arc.set.values()
        ]
        is_plain = all(isinstance(item, bool) for item in conditions) and all(item.is_literal for item in shaping)
        if arcs and not is_plain:
            how = {"is_failure": True, "ends_run": self.is_hurried}
            self.net.add(part, "cannot be routed", (at,), (), reads=(self.trouble,), unless=ordinary, **how)

    def _is_routed(self, step: Step) -> bool:
        """The final step is not, unless ordinary control reaches it as well."""
        targets = {arc.step for other in self.program.steps.values() if other.router for arc in other.router.arcs}
        return step.name != self.program.final_step or step.name == self.program.entry or step.name in targets

    def _unless_handled(self, is_handled: bool) -> tuple[int, ...]:
        return () if is_handled else (self.trouble,)

    def _end_branch(
        self, step: Step, part: int, at: int, unless: tuple[int, ...], *, is_failure: bool, has_arcs: bool
    ) -> None:
        if is_failure:
            how = {"is_failure": True, "ends_run": self.is_hurried}
            self.net.add(part, "ends its branch", (at,), (), reads=(self.trouble,), unless=unless, **how)
        elif has_arcs and self.program.no_next_is_error:
            unmatched = self.net.place()
            choice, hurried = "matches no arc", self.is_hurried
            self.net.add(part, choice, (at,), (unmatched,), unless=(unmatched, *unless), ends_run=hurried)
            self.net.add(part, choice, (at,), (), reads=(unmatched,), unless=unless, ends_run=hurried)
            message = f"step {step.name!r} can end without a matching arc, which is an error here (`no_next_is_error`)"
            hint = "Add an arc without `when` at the end."
            self.net.remarks[unmatched] = Remark(DefectKind.NO_MATCH, part, message, hint)
        else:
            self.net.add(part, "ends its branch", (at,), (), unless=unless)

    def _target(self, step: Step, arc: Arc) -> int:
        return self.held.get((arc.step, step.name), self.entered[arc.step])

    # The end.

    def _finalize(self, name: str) -> None:
        """The final step runs when nothing else can happen, unless it has run."""
        puts = (self.entered[name], self.finalizing)
        unless = (self.ran, *self.waiting, *self.held.values())
        choice = "nothing else is left"
        self.net.add(self.parts[name], choice, (self.final,), puts, unless=unless, is_start=False, is_last=True)

    # What needs no net.

    def _check_limits(self) -> None:
        for step in self.program.steps.values():
            around = [span for span in (self.program.timeout,) if span is not None]
            own = step.timeout
            if own is not None and around and own > min(around):
                self._inverted(self._part(step, "spec"), "of the step", "of the execution")
            inner = [span for span in (own, *around) if span is not None]
            for at, task in enumerate(step.tasks):
                if task.timeout is not None and inner and task.timeout * SECOND > min(inner):
                    place: tuple[str | int, ...] = ("tool",) if len(step.tasks) == 1 else ("tool", at)
                    around_it = "of the step" if own is not None and own == min(inner) else "of the execution"
                    self._inverted(self._part(step, *place), f"of task {task.label!r}", around_it)

    def _inverted(self, part: int, inner: str, outer: str) -> None:
        message = f"the time limit {inner} is longer than that {outer}, which always ends first"
        self.net.find(DefectKind.TIMEOUT_INVERTED, part, message, "Make it shorter, or remove it.")


def _assigned(step: Step) -> Iterator[str]:
    yield from (key.partition(".")[0] for key in step.set)
    for arc in step.router.arcs if step.router is not None else ():
        yield from (key.partition(".")[0] for key in arc.set)
    for task in step.tasks:
        for rule in task.policy.rules if task.policy is not None else ():
            yield from (key.partition(".")[0] for key in rule.then.set_ctx)
