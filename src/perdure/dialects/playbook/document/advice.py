"""Warnings about what is valid but probably not intended (PBK-033)."""

from collections.abc import Iterator
from typing import Any

from perdure.dialects.playbook.document.cursor import Cursor
from perdure.dialects.playbook.document.program_advice import advise_programs
from perdure.dialects.playbook.document.template_advice import advise_templates
from perdure.dialects.playbook.plan.program import OnDeny, Program, Step

FIXED = frozenset({"workload", "args", "event", "execution_id"})


def advise(cursor: Cursor, program: Program) -> None:
    """`cursor` is at the workflow of a document without errors."""
    assigned = {name for step in program.steps.values() for name in _assigned_keys(step)}
    advise_templates(cursor, program, assigned)
    advise_programs(cursor, program)
    reached = _reachable(program)
    targets = {arc.step for step in program.steps.values() if step.router is not None for arc in step.router.arcs}
    for item, step in zip(cursor.items(), program.steps.values(), strict=True):
        if step.name not in reached and step.name != program.final_step:
            message = f"no arc leads to step {step.name!r} from the entry: only a run that begins with it runs it"
            item.at("step").warn("PBK-033", message)
        if step.name == program.final_step and (step.name in targets or step.name == program.entry):
            message = f"the final step {step.name!r} is also reached by ordinary control; then it does not run again"
            item.at("step").warn("PBK-033", message)
        _check_join(item, step, program)
        _check_gate(item, step, assigned)
        _check_loop(item, step)
        _check_arcs(item, step)


def _assigned_keys(step: Step) -> Iterator[str]:
    yield from (key.partition(".")[0] for key in step.set)
    for arc in step.router.arcs if step.router is not None else ():
        yield from (key.partition(".")[0] for key in arc.set)
    yield from _keys_of_tasks(step)


def _keys_of_tasks(step: Step) -> Iterator[str]:
    for task in step.tasks:
        for rule in task.policy.rules if task.policy is not None else ():
            yield from (key.partition(".")[0] for key in rule.then.set_ctx)


def _reachable(program: Program) -> set[str]:
    reached: set[str] = set()
    waiting = [program.entry]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            router = program.steps[name].router
            waiting += [arc.step for arc in router.arcs] if router is not None else []
    return reached


def _check_join(cursor: Cursor, step: Step, program: Program) -> None:
    if step.join is None:
        return
    routers = {name: source.router for name, source in program.steps.items() if source.router is not None}
    sources = [name for name, router in routers.items() if any(arc.step == step.name for arc in router.arcs)]
    passing = [name for name in sources if name not in step.join.branches]
    if passing:
        listed = ", ".join(repr(name) for name in passing)
        cursor.at("spec").at("join").warn("PBK-130", f"tokens from {listed} do not wait here: 'from' does not name it")


def _check_gate(cursor: Cursor, step: Step, assigned: set[str]) -> None:
    gate = step.admission
    if gate is None:
        return
    at = cursor.at("spec").at("policy").at("admit")
    if not gate.can_allow:
        at.warn("PBK-033", "no rule allows anything: the step can never run")
        return
    members = gate.reads.members
    unwritten = sorted((members.get("ctx") or frozenset()) - assigned)
    if unwritten:
        listed = ", ".join(f"ctx.{name}" for name in unwritten)
        at.warn("PBK-033", f"nothing in this document sets {listed}: the step waits for a patch from outside")
    if (
        gate.watches.names
        and gate.watches.names <= FIXED
        and gate.on_deny is OnDeny.PENDING
        and "on_deny" not in at.value
    ):
        at.warn(
            "PBK-033", "a denial is final here: nothing these rules read can change", hint="Write `on_deny: discard`."
        )


def _check_loop(cursor: Cursor, step: Step) -> None:
    if step.loop is not None and step.loop.is_parallel:
        keys = set(_keys_of_tasks(step)) - set(step.loop.reduce)
        if keys:
            message = "iterations of a parallel loop set ctx: two that set one key differently fail the step"
            cursor.at("loop").warn("PBK-033", message, hint="Name a reducer for the key in loop.spec.reduce.")


def _check_arcs(cursor: Cursor, step: Step) -> None:
    router = step.router
    if router is None or router.is_inclusive:
        return
    arcs: list[Any] = cursor.value["next"]["arcs"]
    for index, arc in enumerate(router.arcs[:-1]):
        if arc.when is None or arcs[index].get("when") is True:
            message = "this arc always matches: the arcs below it are never evaluated"
            cursor.at("next").at("arcs").at(index).warn("PBK-033", message, hint="Put it last.")
            return
