"""Warnings about templates that are valid and cannot be what was meant: names that nothing sets, events that never
occur.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perdure.dialects.playbook import tools
from perdure.dialects.playbook.document.cursor import Cursor
from perdure.dialects.playbook.document.texts import text_beside_templates
from perdure.dialects.playbook.document.vocabulary import BOUND_NAMES
from perdure.dialects.playbook.plan.program import Program, Step
from perdure.expressions.jinja import TemplateAnalysis, analyse, has_template
from perdure.kernel.documents.problems import guess

STATUSES = ("ok", "error")
_STATUS_PATHS = (("event", "status"), ("outcome", "status"))
OUTSIDE = ("workflow.started", "workflow.quiesced")  # what starts the first token, and the final step's
BOUNDARIES = ("step.done", "step.failed", "loop.done")
PROGRAM_TEXTS = frozenset({"desc"}).union(*(kind.text for kind in tools.KINDS.values()))  # never templates


class KnownValues(msgspec.Struct, frozen=True):
    """What the templates of a document may read."""

    steps: Sequence[str]
    ctx: frozenset[str]  # keys that something in the document sets
    workload: frozenset[str]


def advise_templates(cursor: Cursor, program: Program, ctx: set[str]) -> None:
    """`cursor` is at the workflow of a document without errors."""
    workload = program.workload.document if isinstance(program.workload.document, dict) else {}
    known = KnownValues(tuple(program.steps), frozenset(ctx), frozenset(workload))
    for item, step in zip(cursor.items(), program.steps.values(), strict=True):
        ends = ("loop.done" if step.loop is not None else "step.done", "step.failed")
        for text in _texts(item):
            if not has_template(text.value) or text.path[-1] in PROGRAM_TEXTS:
                continue
            analysis = analyse(text.value)
            place = text.path[len(item.path) :]
            is_admission = place[:3] == ("spec", "policy", "admit")
            if is_admission or place[:1] == ("loop",):
                _check_events(text, analysis, (*BOUNDARIES, *OUTSIDE))
            elif place[:1] == ("next",):
                _check_events(text, analysis, ends)
            if place[-1] == "when" and text_beside_templates(text.value):
                hint = "Write the whole condition inside {{ }}, e.g. \"{{ workload.stage == 'live' }}\"."
                text.warn("PBK-029", "a text beside a template makes a text, which is always true", hint=hint)
            _check_statuses(text, analysis)
            _check_names(text, analysis, known, is_admission=is_admission)
            if step.loop is not None and place[:1] == ("tool",):
                _check_iter(text, analysis, step)


def _texts(cursor: Cursor) -> Iterator[Cursor]:
    value = cursor.value
    if isinstance(value, str):
        yield cursor
    elif isinstance(value, dict | list):
        for part in value if isinstance(value, dict) else range(len(value)):
            yield from _texts(cursor.at(part))


def _check_events(cursor: Cursor, analysis: TemplateAnalysis, names: Sequence[str]) -> None:
    for path, name in analysis.equals:
        if path != ("event", "name") or name in names:
            continue
        if name in BOUNDARIES:
            has_loop = name == "step.done"
            subject = "a step with a loop" if has_loop else "a step without a loop"
            message = f"{subject} never ends with the event {name!r}: this is never true"
            hint = f"Write {names[0]!r}."
        else:
            renamed = {"call.done": names[0], "call.error": "step.failed", "error": "step.failed"}.get(str(name), "")
            near = f"; did you mean {renamed!r}?" if renamed in names else guess(str(name), names)
            message, hint = f"there is no event {name!r}: this is never true{near}", f"Events: {', '.join(names)}."
        cursor.warn("PBK-119", message, hint=hint)


def _check_statuses(cursor: Cursor, analysis: TemplateAnalysis) -> None:
    for path, status in analysis.equals:
        is_status = path in _STATUS_PATHS or (path[0], path[2:]) == (
            "steps",
            ("status",),
        )
        if is_status and status not in STATUSES:
            message = f"a status is 'ok' or 'error', never {status!r}: this is never true"
            cursor.warn("PBK-119", message, hint=f"Write `{'.'.join(path)} == 'ok'`, or 'error'.")


def _check_names(cursor: Cursor, analysis: TemplateAnalysis, known: KnownValues, *, is_admission: bool) -> None:
    for name in analysis.members("steps"):
        if name not in known.steps:
            near = guess(name, known.steps)
            cursor.warn("PBK-157", f"there is no step {name!r}{near}", hint=f"Steps: {', '.join(known.steps)}.")
    for name in analysis.members("workload"):
        if name in known.workload:
            continue
        near = guess(name, sorted(known.workload))
        if near:  # otherwise it may come with the request
            cursor.warn("PBK-011", f"the workload has no default for {name!r}{near}")
    for name in analysis.members("ctx"):
        if name in known.ctx or is_admission:  # what a gate waits for may be set from outside, and is told there
            continue
        near = guess(name, sorted(known.ctx))
        if near:
            cursor.warn("PBK-146", f"nothing in this document sets ctx.{name}{near}")
        elif name in known.workload:
            cursor.warn(
                "PBK-146", f"nothing in this document sets ctx.{name}", hint=f"The workload has it: workload.{name}."
            )


def _check_iter(cursor: Cursor, analysis: TemplateAnalysis, step: Step) -> None:
    assert step.loop is not None
    own = (key.partition(".")[0] for task in step.tasks for key in _iter_keys(task))
    names = sorted({*BOUND_NAMES, step.loop.iterator, *own})
    for name in analysis.members("iter"):
        if name not in names:
            hint = f"An iteration has: {', '.join(f'iter.{known}' for known in names)}."
            cursor.warn("PBK-105", f"there is no iter.{name} here{guess(name, names)}", hint=hint)


def _iter_keys(task: Any) -> Iterator[str]:
    for rule in task.policy.rules if task.policy is not None else ():
        writes: Mapping[str, Any] = rule.then.set_iter
        yield from writes
