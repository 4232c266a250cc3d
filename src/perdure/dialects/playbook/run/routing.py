"""After a boundary event: which arcs fire, and what their tokens carry (section 7 of the language)."""

from typing import Any

from perdure.dialects.playbook.plan.program import Arc, Program, Router, Step
from perdure.dialects.playbook.run import ctx_patches, joins
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state import events as p
from perdure.dialects.playbook.state.task_errors import Error, error, template_message
from perdure.dialects.playbook.state.values import Patch
from perdure.dialects.playbook.values.template_scopes import control_makers, gather, gather_all, gather_plain
from perdure.expressions.jinja import TemplateError
from perdure.kernel.evaluation_trace import note_site
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.large_values import INLINE_BYTES
from perdure.kernel.json_values.values import Payload
from perdure.kernel.turn import Turn
from perdure.kernel.turn_budget import pay_for_each

NO_ARGS = b"{}"
Looked = tuple[str, bool, str]
"""The result for one arc: its target, whether it fired, and why its guard could not be evaluated."""


def route(turn: Turn, number: int) -> None:
    """Evaluate the arcs of a step-run that has ended, once."""
    body: b.Body = turn.body
    program: Program = turn.program
    run = body.runs[number]
    step = program.steps[run.step]
    if run.is_final or body.stopped is not None or step.router is None or not step.router.arcs:
        _leave(turn, number, run, step)
        return
    if run.error is None and len(step.router.arcs) == 1 and _follow_only_arc(turn, number, run, step.router):
        return
    fired = _FiredArcs(turn, program, step.router, run)
    own_failures = fired.failures
    no_match = not fired.tokens and not own_failures and program.no_next_is_error
    if no_match:
        own_failures.append(error("policy_fail", f"no arc of step {run.step!r} matched", "NO_MATCHING_ARC"))
    handled = run.error is not None and fired.is_handled
    failures = own_failures if run.error is None else [run.error, *own_failures]
    if own_failures:
        ending: str = b.BranchEnding.FAILED
    else:
        ending = "" if fired.tokens else _ending(run.error)
    if not failures and not fired.patch and _are_next(body, program, fired.tokens):
        fired.tokens = [_with_run(program, new, body.runs_made + at) for at, new in enumerate(fired.tokens, 1)]
    if run.error is not None and fired.tokens:
        turn.caught += 1
    mode = "inclusive" if step.router.is_inclusive else "exclusive"
    set_ctx, grown = ctx_patches.shortened(turn, fired.patch, fired.growing, fired.growths) if fired.patch else ((), ())
    if grown:
        turn.emit(p.CtxGrows(grown))
    turn.emit(
        p.NextEvaluated(
            number,
            mode,
            tuple(fired.looked),
            tuple(fired.tokens),
            ending,
            handled,
            tuple(failures),
            no_match,
            turn.now,
            set_ctx,
            fired.size,
            joins.commonly_forked(program, fired.tokens) if len(fired.tokens) > 1 else (),
        )
    )


def _follow_only_arc(turn: Turn, number: int, run: b.StepRun, router: Router) -> bool:
    """The most frequent case: the step succeeded, and its one arc has no guard. False: nothing was done."""
    body: b.Body = turn.body
    program: Program = turn.program
    arc, args = router.arcs[0], NO_ARGS
    if arc.when is not None or arc.set or program.is_io:
        return False
    if arc.args is not None:
        scope = gather_plain(turn, arc.args.reads, run.args, run.boundary)
        if scope is None:
            return False
        note_site("arcs[0].args")
        try:
            args = jsontext.encode(arc.args.render(scope))
        except (TemplateError, jsontext.NotJson):
            return False
        if len(args) > program.bounds.max_payload_bytes:
            return False
    target = program.steps[arc.step]
    gated, branch = target.admission is not None, joins.branch_of(program, run.step, arc.step)
    kept = args if len(args) <= INLINE_BYTES else turn.keep(args)
    if target.is_plain and not gated and not branch and _nothing_intervenes(body, program, 1):
        begun, tasks = body.runs_made + 1, len(target.tasks)
    else:
        begun, tasks = 0, 0
    new_token = p.NewToken(body.tokens_made + 1, arc.step, gated, kept, 0, branch, begun, tasks)
    mode = "inclusive" if router.is_inclusive else "exclusive"
    looked = ((arc.step, True, ""),)
    turn.emit(p.NextEvaluated(number, mode, looked, (new_token,), "", False, (), False, turn.now, (), body.ctx_size))
    return True


def _are_next(body: b.Body, program: Program, tokens: list[p.NewToken]) -> bool:
    """Whether nothing can happen between the creation of these tokens and the start of their steps."""
    if not _nothing_intervenes(body, program, len(tokens)):
        return False
    return all(program.steps[new.step].is_plain and not (new.gated or new.branch) for new in tokens)


def _nothing_intervenes(body: b.Body, program: Program, tokens: int) -> bool:
    """Whether so many tokens are the next to move, and may."""
    if body.paused or body.runs_made + tokens > program.bounds.max_step_runs:
        return False
    return not (
        body.unevaluated
        or body.arriving
        or body.closing
        or body.incomplete_forks
        or body.admitted
        or len(body.routing) > 1
    )


def _with_run(program: Program, new: p.NewToken, run: int) -> p.NewToken:
    return p.NewToken(
        new.token, new.step, new.gated, new.args, new.arc, new.branch, run, len(program.steps[new.step].tasks)
    )


def _leave(turn: Turn, number: int, run: b.StepRun, step: Step) -> None:
    """A leaf, the final step, or a run whose execution was stopped: nothing is routed."""
    failures = () if run.error is None else (run.error,)
    ending: str = "" if run.is_final else _ending(run.error)
    if turn.body.stopped is not None and not run.is_final and run.error is None and step.router is not None:
        ending = b.BranchEnding.ABORTED
    turn.emit(p.NextEvaluated(number, "", (), (), ending, False, failures, False, turn.now))


def _ending(failed: Error | None) -> str:
    return b.BranchEnding.NORMAL if failed is None else b.BranchEnding.FAILED


class _FiredArcs:
    """One evaluation of all arcs: the tokens they produce, and what went wrong."""

    def __init__(self, turn: Turn, program: Program, router: Router, run: b.StepRun) -> None:
        assert run.boundary is not None
        self.turn = turn
        self.program = program
        self.run = run
        self.makers = control_makers(turn, run.args, run.boundary, run.local)
        self.looked: list[Looked] = []
        self.tokens: list[p.NewToken] = []
        self.failures: list[Error] = []
        self.patch: Patch = ()  # what the arcs that fire assign to `ctx` (PBK-158)
        self.growing: set[str] = set()  # keys among those that only grow
        self.growths: ctx_patches.Growths = {}
        self.size = turn.body.ctx_size
        self.is_handled = False  # an arc with a guard of its own has handled the failure (PBK-122)
        guard_errors: list[str] = []
        is_taken = False
        pay_for_each(len(router.arcs))
        for index, arc in enumerate(router.arcs):
            if is_taken and not router.is_inclusive:
                break  # later guards are not evaluated (PBK-116)
            note_site(f"arcs[{index}].when")
            try:
                matches = arc.when is None or arc.when.holds(gather(self.makers, arc.when.reads))
            except TemplateError as fault:
                guard_errors.append(f"arcs[{index}].when: {template_message(fault)}")
                self.looked.append((arc.step, False, template_message(fault)))
                continue
            is_taken = is_taken or matches
            self.looked.append((arc.step, matches, ""))
            if matches:
                self._fire(index, arc)
        if guard_errors and not is_taken:
            self.failures.append(error("template", "; ".join(guard_errors), "GUARD_ERROR", source=run.step))

    def _fire(self, index: int, arc: Arc) -> None:
        try:
            args = self._args(index, arc)
            self._set(index, arc)
        except _BadArgs as bad:
            self.failures.append(bad.problem)
            return
        number = self.turn.body.tokens_made + len(self.tokens) + 1
        gated = self.program.steps[arc.step].admission is not None
        branch = joins.branch_of(self.program, self.run.step, arc.step)
        self.tokens.append(p.NewToken(number, arc.step, gated, args, index, branch))
        self.is_handled = self.is_handled or arc.when is not None

    def _args(self, index: int, arc: Arc) -> Payload:
        if arc.args is None:
            return NO_ARGS
        place = f"arcs[{index}].args"
        note_site(place)
        try:
            value = arc.args.render(gather(self.makers, arc.args.reads))
            text = jsontext.encode(value)
        except TemplateError as fault:
            raise _BadArgs(
                error("template", f"{place}: {template_message(fault)}", "GUARD_ERROR", source=self.run.step)
            ) from None
        except jsontext.NotJson as problem:
            raise _BadArgs(error("template", f"{place}: {problem}", "GUARD_ERROR", source=self.run.step)) from None
        limit = self.program.bounds.max_payload_bytes
        if len(text) > limit:
            message = (
                f"{place} ({_largest(value)}, to {arc.step!r}) has {len(text)} bytes, {limit} are allowed; "
                "pass a reference instead"
            )
            raise _BadArgs(error("limit", message, "ARGS_TOO_LARGE", source=self.run.step))
        return self.turn.keep(text)

    def _set(self, index: int, arc: Arc) -> None:
        if not arc.set:
            return
        try:
            scope = gather_all(self.makers, arc.set.values())
            patch = (*self.patch, *ctx_patches.render(arc.set, scope, "ctx", self.growths))
            self.size = ctx_patches.measure(self.turn.body, patch)
        except ctx_patches.BadPatch as bad:
            message = f"arcs[{index}].set: {bad.problem.message}"
            raise _BadArgs(error(bad.problem.kind, message, "GUARD_ERROR", source=self.run.step)) from None
        self.patch = patch
        self.growing |= ctx_patches.growing_keys(arc.set)


def _largest(args: Any) -> str:
    name = max(args, key=lambda key: len(jsontext.encode(args[key])))
    return f"mostly {name!r}"


class _BadArgs(Exception):
    def __init__(self, problem: Error) -> None:
        super().__init__(problem.message)
        self.problem = problem
