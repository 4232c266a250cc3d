"""Which rule applies to a task's outcome, and what it does (5.4 of the language): patches first, then the directive."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from perdure.dialects.playbook.plan.program import Directive, Loop, Step, Task, TaskPolicy, Then
from perdure.dialects.playbook.run import ctx_patches
from perdure.dialects.playbook.run.ctx_merge import fold
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.names import CLAIM
from perdure.dialects.playbook.state.task_errors import Error, error, template_message
from perdure.dialects.playbook.state.values import Patch, Reader
from perdure.dialects.playbook.values import io_names
from perdure.dialects.playbook.values.template_scopes import Makers, gather, gather_all, outcome_view
from perdure.expressions.jinja import Template, TemplateError
from perdure.kernel.evaluation_trace import note_site
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.kernel.outcomes import Code
from perdure.kernel.tasks.retry import Backoff, delay
from perdure.kernel.turn import Turn
from perdure.kernel.turn_budget import pay_for_each

LONGEST_WAIT: Instant = 300 * SECOND  # PBK-087
_BACKOFF = {"none": Backoff.CONSTANT, "linear": Backoff.LINEAR, "exponential": Backoff.EXPONENTIAL}


def choose_rule(task: Task, failed: Error | None, makers: Makers, errors: list[str]) -> tuple[int, Then, Error | None]:
    """The first rule that applies, by its place, what it does, and why none could be chosen."""
    policy: TaskPolicy | None = task.policy
    if failed is not None and failed.code == Code.DELIVERIES_EXHAUSTED:
        return b.NO_RULE, Then(Directive.FAIL), None  # what no worker can finish: rules do not apply (PBK-195)
    if policy is None:
        return b.NO_RULE, Then(Directive.CONTINUE if failed is None else Directive.FAIL), None
    pay_for_each(len(policy.rules))
    for index, rule in enumerate(policy.rules):
        if rule.when is None:
            return b.ELSE, rule.then, None
        note_site(f"rules[{index}].when")
        try:
            if rule.when.holds(gather(makers, rule.when.reads)):
                return index, rule.then, None
        except TemplateError as fault:
            errors.append(f"rules[{index}].when: {template_message(fault)}")
    if errors:
        return b.NO_RULE, Then(Directive.FAIL), error("template", "; ".join(errors), source=task.label)
    return b.NO_RULE, _unmatched(policy), None


def _unmatched(policy: TaskPolicy) -> Then:
    return Then(Directive.FAIL if policy.unmatched_fails else Directive.CONTINUE)


def add_outcome(makers: Makers, thread: b.PipelineThread, text: Reader, *, is_io: bool) -> None:
    """What rules read besides the scopes of their task."""
    makers["outcome"] = lambda _: outcome_view(thread, text)
    if is_io:
        makers["output"] = lambda _: _output(thread, text)


def _output(thread: b.PipelineThread, text: Reader) -> dict[str, Any]:
    view = outcome_view(thread, text)
    return io_names.output(view["status"], view.pop("result"), view["error"], view)


class Judgement(msgspec.Struct, frozen=True):
    """What the worker of a pipeline made of an outcome: the rule that it found to apply, and its rendered patches."""

    directive: str
    rule: int | Literal["else"] | None = None
    set_ctx: dict[str, Any] = {}
    set_iter: dict[str, Any] = {}
    set_step: dict[str, Any] = {}

    def matching(self, policy: TaskPolicy | None) -> tuple[int, Then] | None:
        """The rule of the document that it names; None if there is no such rule, or it does something else."""
        if policy is None:
            return None
        place, then = b.NO_RULE, _unmatched(policy)
        if self.rule is not None:
            places = {"else" if rule.when is None else index: rule.then for index, rule in enumerate(policy.rules)}
            if self.rule not in places:
                return None
            place, then = (b.ELSE if self.rule == "else" else self.rule), places[self.rule]
        patches = ((self.set_ctx, then.set_ctx), (self.set_iter, then.set_iter), (self.set_step, then.set_step))
        is_the_same = self.directive == then.do.value and all(values.keys() == own.keys() for values, own in patches)
        return (place, then) if is_the_same else None


_judgement = msgspec.json.Decoder(Judgement).decode


def read_judgement(text: bytes | None) -> Judgement | None:
    """None if a worker sent none, or something else: then the rules are applied here."""
    if text is None:
        return None
    try:
        return _judgement(text)
    except msgspec.DecodeError:
        return None


class RuleDecision:
    """Which rule applies to an outcome, and what it does."""

    def __init__(
        self, turn: Turn, number: int, thread: b.PipelineThread, step: Step, task: Task, makers: Makers
    ) -> None:
        assert thread.outcome is not None
        self.turn = turn
        self.body: b.Body = turn.body
        self.number = number
        self.thread = thread
        self.step = step
        self.task = task
        self.failed = thread.outcome.error
        self.makers = makers  # made for this move, with the outcome added
        add_outcome(self.makers, thread, turn.text, is_io=turn.program.is_io)
        self.errors: list[str] = []
        self.rule = b.NO_RULE
        self.recorded: Patch = ()  # what is set in `ctx`, as it is recorded
        self.grown: tuple[str, ...] = ()
        self._growths: ctx_patches.Growths = {}
        self._is_given = False  # a worker has rendered the patches, with `ctx` as it was then

    def apply(self, judged: Judgement | None = None) -> None:
        """Choose a rule, render its patches, and only then carry out its directive (PBK-083).

        Both was done by a worker where it says so, and the document has the rule that it names.
        """
        named = None if judged is None else judged.matching(self.task.policy)
        if judged is not None and named is not None:
            (self.rule, then), problem = named, None
            self._is_given = True
        else:
            judged = None
            self.rule, then, problem = choose_rule(self.task, self.failed, self.makers, self.errors)
        set_ctx: Patch = ()
        set_iter: Patch = ()
        set_step: Patch = ()
        size = self.body.ctx_size
        wait: Instant = 0
        if problem is None:
            try:
                if then.set_ctx or then.set_iter or then.set_step:
                    set_ctx, set_iter, set_step = self._render(then) if judged is None else _given(judged)
                    set_ctx = self._reduced(set_ctx)
                    size = self._check(then, set_ctx, set_iter, set_step)
                wait = self._wait(then)
            except ctx_patches.BadPatch as bad:
                problem, set_ctx, set_iter, set_step, size = bad.problem, (), (), (), self.body.ctx_size
                self.grown = ()
        self._act(then, problem, wait, set_ctx, set_iter, set_step, size)

    def _render(self, then: Then) -> tuple[Patch, Patch, Patch]:
        return (
            ctx_patches.render(then.set_ctx, self._scope(then.set_ctx), "ctx", self._growths),
            ctx_patches.render(then.set_iter, self._scope(then.set_iter), "iter"),
            ctx_patches.render(then.set_step, self._scope(then.set_step), "step"),
        )

    def _scope(self, assignments: Mapping[str, Template]) -> dict[str, Any]:
        return gather_all(self.makers, assignments.values())

    def _reduced(self, patch: Patch) -> Patch:
        """In a sequential loop a reducer folds at once (PBK-113); a parallel one folds at its end."""
        loop = self.step.loop
        if not patch or loop is None or not loop.reduce or loop.is_parallel:
            return patch
        return _folded(self.body, loop, patch)

    def _check(self, then: Then, set_ctx: Patch, set_iter: Patch, set_step: Patch) -> int:
        for variables, patch, scope_name in (
            (self.thread.iter, set_iter, "iter"),
            (self.thread.local, set_step, "step"),
        ):
            if any("." in key for key, _ in patch):
                ctx_patches.overlay(variables, patch, scope_name)
        if self._keeps_back:
            if any("." in key for key, _ in set_ctx):
                ctx_patches.overlay(self.body.ctx, (*self.thread.patch, *set_ctx), "ctx")
            return self.body.ctx_size
        if not set_ctx:
            return self.body.ctx_size
        self.recorded, self.grown = ctx_patches.shortened(self.turn, set_ctx, self._growing(then), self._growths)
        return ctx_patches.measure(self.body, set_ctx, self.recorded)

    def _growing(self, then: Then) -> frozenset[str]:
        """Keys that grow, through an assignment or a reducer of a sequential loop."""
        loop = self.step.loop
        folded = {} if loop is None else loop.reduce
        appended = frozenset(key for key in then.set_ctx if folded.get(key) == "append")
        if self._is_given:
            return appended
        return ctx_patches.growing_keys(then.set_ctx) | appended

    @property
    def _keeps_back(self) -> bool:
        return self.step.loop is not None and self.step.loop.is_parallel

    def _wait(self, then: Then) -> Instant:
        """The delay before the next attempt, if the rule requests one and it is still allowed (PBK-085, 087)."""
        if then.do is not Directive.RETRY or self.thread.attempt >= then.attempts:
            return 0
        seconds: Any = 0.0 if then.backoff == "none" else 1.0
        if then.delay is not None:
            note_site("delay")
            try:
                seconds = then.delay.render(gather(self.makers, then.delay.reads))
            except TemplateError as fault:
                raise ctx_patches.BadPatch(
                    error("template", f"delay: {template_message(fault)}", source=self.task.label)
                ) from None
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
            message = f"delay must be a number of seconds, not {seconds!r}"
            raise ctx_patches.BadPatch(error("template", message, source=self.task.label))
        wait = delay(_BACKOFF[then.backoff], int(seconds * SECOND), self.thread.attempt, LONGEST_WAIT)
        if then.delay is None and self.failed is not None and self.failed.retry_after:
            wait = max(wait, min(int(self.failed.retry_after * SECOND), LONGEST_WAIT))
        return wait

    def _act(
        self,
        then: Then,
        problem: Error | None,
        wait: Instant,
        set_ctx: Patch,
        set_iter: Patch,
        set_step: Patch,
        size: int,
    ) -> None:
        directive = Directive.FAIL if problem is not None else then.do
        fate, to, is_visit = "ready", self.thread.position, True
        match directive:
            case Directive.CONTINUE:
                to += 1
                is_last = self.thread.position == CLAIM or to == len(self.step.tasks)
                fate = "done" if is_last else "ready"
            case Directive.JUMP:
                assert then.to is not None
                to = then.to
            case Directive.BREAK:
                fate = "done"
            case Directive.RETRY if self.thread.attempt < then.attempts:
                is_visit = False
            case Directive.RETRY | Directive.FAIL:
                fate = "failed"
        failed: Error | None = None
        if fate == "failed":
            failed = problem or self.failed or error("policy_fail", f"failed by a rule of task {self.task.label!r}")
        elif fate == "ready" and is_visit and self._is_exhausted():
            message = f"more than {self.turn.program.bounds.max_task_visits} task-runs in one pipeline"
            fate, failed = "failed", error("limit", message, "TASK_VISITS", source=self.task.label)
        if self.failed is not None and fate != "failed":
            self.turn.caught += 1
        conflicts = () if self._keeps_back else ctx_patches.conflicts(self.body, self.thread.run, set_ctx)
        repeats, stops = self._after_failure() if fate == "failed" else (False, False)
        timer = self.turn.set_timer(self.turn.now + wait) if wait and fate == "ready" else 0
        if self.grown:
            self.turn.emit(p.CtxGrows(self.grown))
        self.turn.emit(
            p.OutcomeJudged(
                self.number,
                self.task.label,
                self.rule,
                directive,
                fate,
                to,
                is_visit,
                self.recorded if self.grown else set_ctx,
                set_iter,
                timer,
                failed,
                tuple(self.errors),
                size,
                conflicts,
                self._keeps_back,
                repeats,
                stops,
                set_step,
            )
        )

    def _is_exhausted(self) -> bool:
        return bool(self.thread.visits >= self.turn.program.bounds.max_task_visits)

    def _after_failure(self) -> tuple[bool, bool]:
        """What a failed iteration does to its loop: is it repeated, and does it stop the others? (PBK-109, 135)"""
        loop = self.step.loop
        state = self.body.runs[self.thread.run].loop
        if loop is None or state is None:
            return False, False
        if loop.fanout is None:
            return False, not loop.is_best_effort
        repeats = state.retries.get(self.thread.index, 0) < loop.fanout.max_job_retries
        return repeats, loop.fanout.fail_fast and not repeats


def _given(judged: Judgement) -> tuple[Patch, Patch, Patch]:
    patches = []
    for name, values in (("ctx", judged.set_ctx), ("iter", judged.set_iter), ("step", judged.set_step)):
        patch = tuple((key, jsontext.encode(value)) for key, value in values.items())
        ctx_patches.check_values(patch, name)
        patches.append(patch)
    return patches[0], patches[1], patches[2]


def _folded(body: b.Body, loop: Loop, patch: Patch) -> Patch:
    data = body.ctx.data
    return tuple(
        (key, jsontext.encode(fold(loop.reduce[key], data.get(key), jsontext.decode(text))))
        if key in loop.reduce
        else (key, text)
        for key, text in patch
    )
