"""The pipeline of a step as a part of the net: its tasks, what their rules may say, and the loop around them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from perdure.dialects.playbook.plan.program import Directive, Step, Task
from perdure.dialects.playbook.tools import kind_of
from perdure.expressions.jinja import Guard
from perdure.expressions.jinja.condition_analysis import formula_of
from perdure.kernel.graphs.net import DefectKind, Formula, Net, answers
from perdure.kernel.tasks.effects import PASS_A_KEY, passes_key


def formula(guard: Guard | None, known: Mapping[str, Any]) -> Formula:
    return True if guard is None else formula_of(guard.source, known)


def add_pipeline(net: Net, step: Step, part: int, begin: int, done: int, failed: int) -> None:
    loop = step.loop
    items = None if loop is None else loop.written_items
    is_too_long = loop is not None and loop.fanout is not None and len(items or ()) > loop.fanout.max_shards
    if not step.tasks:
        net.add(part, "does nothing", (begin,), (done,))
        if loop is not None and (items is None or is_too_long):
            net.add(part, "fails", (begin,), (failed,), is_failure=True)
        return
    positions = [net.place() for _ in step.tasks]
    ended, broken = net.place(), net.place()
    if loop is None:
        net.add(part, "", (begin,), (positions[0],))
        net.add(part, "", (ended,), (done,))
        net.add(part, "", (broken,), (failed,))
    else:
        if not items:
            net.add(part, "has no elements", (begin,), (done,))
        if items is None or (items and not is_too_long):
            net.add(part, "", (begin,), (positions[0],))
        if items is None or len(items) > 1:
            net.add(part, "takes the next element", (ended,), (positions[0],), is_bounded=True)
        if items is None or loop.max_in_flight is not None or is_too_long:
            net.add(part, "fails", (begin,), (failed,), is_failure=True)
        if loop.cursor is not None:
            net.add(part, "cannot claim more", (ended,), (failed,), is_failure=True)
        net.add(part, "", (ended,), (done,))
        net.add(part, "", (broken,), (failed,))
        if loop.is_best_effort or (loop.fanout is not None and loop.fanout.allow_partial):
            net.add(part, "goes on after a failure", (broken,), (ended,))
    for at, task in enumerate(step.tasks):
        _add_task(net, step, part, at, task, positions, ended, broken)


def _add_task(
    net: Net, step: Step, part: int, at: int, task: Task, positions: list[int], ended: int, broken: int
) -> None:
    label = "" if len(step.tasks) == 1 else f"{task.label} "
    outcomes = [(False, "succeeds")]
    if kind_of(task.kind).may_fail(task) or task.timeout is not None:
        outcomes.append((True, "fails"))
    for is_error, text in outcomes:
        after = net.place()
        net.add(part, f"{label}{text}", (positions[at],), (after,))
        for directive, to, attempts in _directives(task, is_error):
            match directive:
                case Directive.CONTINUE:
                    target = positions[at + 1] if at + 1 < len(positions) else ended
                    net.add(part, "", (after,), (target,))
                case Directive.JUMP:
                    target = positions[to or 0]
                    jumps_to = step.tasks[to or 0].label
                    net.add(part, f"jumps to {jumps_to}", (after,), (target,), is_failure=is_error)
                    if (to or 0) <= at:
                        net.add(part, f"{label}has run too often", (after,), (broken,), is_limit=True)
                case Directive.BREAK:
                    net.add(part, "breaks", (after,), (ended,))
                case Directive.RETRY:
                    if attempts > 1:
                        net.add(part, "tries again", (after,), (positions[at],), is_bounded=True)
                    net.add(part, "", (after,), (broken,))
                case Directive.FAIL:
                    net.add(part, "", (after,), (broken,))


def check_effects(net: Net, step: Step, part: int, repeats: Callable[[str], bool]) -> None:
    """A rule that tries a failed task again repeats its side effects, unless a key says that they are the same."""
    for task in step.tasks:
        is_retried = any(do is Directive.RETRY and attempts > 1 for do, _, attempts in _directives(task, True))
        arguments = {**task.fixed, **{name: template.document for name, template in task.fields.items()}}
        if is_retried and repeats(task.kind) and not passes_key(arguments):
            message = f"a retry of task {task.label!r} may repeat its side effects: it passes no idempotency key"
            net.find(DefectKind.EFFECT_UNKEYED, part, message, PASS_A_KEY)


def _directives(task: Task, is_error: bool) -> Iterator[tuple[Directive, int | None, int]]:
    """What the rules of a task may say to an outcome, each once."""
    policy = task.policy
    if policy is None:
        yield (Directive.FAIL if is_error else Directive.CONTINUE), None, 1
        return
    known: dict[str, Any] = {"outcome.status": "error" if is_error else "ok"}
    if not is_error:
        known["outcome.error"] = None
    conditions = [formula(rule.when, known) for rule in policy.rules]
    unmatched = Directive.FAIL if policy.unmatched_fails else Directive.CONTINUE
    results: dict[tuple[Directive, int | None, int], None] = {}
    for answer in answers(conditions):
        index = next((index for index, holds in enumerate(answer) if holds), None)
        if index is None:
            results[(unmatched, None, 1)] = None
            continue
        then = policy.rules[index].then
        results[(then.do, then.to, then.attempts)] = None
        assigned = (*then.set_ctx.values(), *then.set_iter.values(), *then.set_step.values())
        if not all(template.is_literal for template in assigned):
            results[(Directive.FAIL, None, 1)] = None
    if not all(isinstance(item, bool) for item in conditions):
        results[(Directive.FAIL, None, 1)] = None  # a guard that cannot be evaluated
    yield from results
