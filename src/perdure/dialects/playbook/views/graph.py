"""A Playbook as a graph: steps and arcs with their guards, pipelines and loops as frames around their tasks."""

from collections.abc import Iterator

from perdure.dialects.playbook.plan.program import Directive, Program, Step, Task, Then
from perdure.dialects.playbook.tools import kind_of
from perdure.expressions.jinja import Guard
from perdure.kernel.graphs.graph import Edge, Graph, Node, Role


def step_id(name: str) -> str:
    """The name; a slash separates the label of a task."""
    return name.replace("~", "~0").replace("/", "~1")


def task_id(step: Step, task: Task) -> str:
    """Of a step that is one task, the step itself is drawn."""
    return f"{step_id(step.name)}/{step_id(task.label)}" if has_frame(step) else step_id(step.name)


def has_frame(step: Step) -> bool:
    return len(step.tasks) > 1 or (step.loop is not None and bool(step.tasks))


def draw(program: Program) -> Graph:
    graph = Graph(program.name)
    for step in program.steps.values():
        _add_step(graph, program, step)
    for step in program.steps.values():
        for arc in step.router.arcs if step.router is not None else ():
            guard = guard_text(arc.when)
            is_exceptional = "failed" in guard or "error" in guard
            graph.edges.append(Edge(step_id(step.name), step_id(arc.step), guard, is_exceptional))
        is_last = step.router is None or not step.router.arcs
        if program.final_step is not None and is_last and step.name != program.final_step:
            graph.edges.append(Edge(step_id(step.name), step_id(program.final_step), "at the end"))
    return graph


def _add_step(graph: Graph, program: Program, step: Step) -> None:
    id = step_id(step.name)
    graph.nodes.append(Node(id, step.name, _kind(step), tuple(_notes(program, step)), "", _role(step)))
    if has_frame(step):
        for task in step.tasks:
            role = kind_of(task.kind).role
            graph.nodes.append(Node(task_id(step, task), task.label, task.kind, (), id, role))
        for task, after in zip(step.tasks, step.tasks[1:], strict=False):
            graph.edges.append(Edge(task_id(step, task), task_id(step, after)))
    for task in step.tasks:
        graph.edges += _rule_edges(step, task)


def _rule_edges(step: Step, task: Task) -> Iterator[Edge]:
    """Where the rules of a task lead, besides to the next one."""
    source = task_id(step, task)
    for rule in task.policy.rules if task.policy is not None else ():
        then, guard = rule.then, guard_text(rule.when)
        label = f"{_directive(then)}: {guard}" if guard else _directive(then)
        match then.do:
            case Directive.RETRY:
                yield Edge(source, source, label, is_exceptional=True)
            case Directive.JUMP if then.to is not None:
                yield Edge(source, task_id(step, step.tasks[then.to]), label)
            case Directive.BREAK if has_frame(step):
                yield Edge(source, step_id(step.name), label)
            case Directive.FAIL if has_frame(step) and guard:
                yield Edge(source, step_id(step.name), label, is_exceptional=True)


def _directive(then: Then) -> str:
    return f"retry, {then.attempts} attempts" if then.do is Directive.RETRY else str(then.do)


def guard_text(guard: Guard | None) -> str:
    """A condition without its braces; empty if there is none."""
    return "" if guard is None else str(guard.source).strip().removeprefix("{{").removesuffix("}}").strip()


def _kind(step: Step) -> str:
    if not step.tasks:
        return "router"
    if step.loop is not None:
        return "loop"
    return "pipeline" if has_frame(step) else step.tasks[0].kind


def _role(step: Step) -> Role:
    if step.join is not None:
        return Role.JOIN
    if not step.tasks:
        return Role.CHOICE
    return Role.STEP if has_frame(step) else kind_of(step.tasks[0].kind).role


def _notes(program: Program, step: Step) -> Iterator[str]:
    if step.name == program.entry:
        yield "entry"
    if step.name == program.final_step:
        yield "final step: runs when nothing else moves"
    if step.join is not None:
        count = len(step.join.branches)
        need = "" if step.join.need == count else f"{step.join.need} of "
        yield f"joins {need}{', '.join(step.join.branches)}"
    if step.loop is not None:
        yield f"for each {step.loop.iterator}, {step.loop.mode}"
    if step.admission is not None:
        conditions = [guard_text(rule.when) for rule in step.admission.rules if rule.allow and rule.when is not None]
        yield f"admitted if {' or '.join(conditions)}" if conditions else "gated"
    if not has_frame(step):
        yield from (task.label for task in step.tasks if task.label not in (step.name, f"{step.name}_task"))
