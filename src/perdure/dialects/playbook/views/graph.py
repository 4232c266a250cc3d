"""A Playbook as a graph: steps, arcs with their guards, gates, loops, and the final step apart."""

from perdure.dialects.playbook.plan.program import Program, Step
from perdure.kernel.graph import Edge, Graph, Node


def draw(program: Program) -> Graph:
    graph = Graph()
    for step in program.steps.values():
        graph.nodes.append(Node(step.name, step.name, _kind(step), tuple(_notes(program, step))))
        for arc in step.router.arcs if step.router is not None else ():
            guard = (
                "" if arc.when is None else str(arc.when.source).strip().removeprefix("{{").removesuffix("}}").strip()
            )
            graph.edges.append(Edge(step.name, arc.step, guard, is_exceptional="step.failed" in guard))
    graph.groups.append((program.name, list(program.steps)))
    return graph


def _kind(step: Step) -> str:
    if not step.tasks:
        return "router"
    return "loop" if step.loop is not None else step.tasks[0].kind


def _notes(program: Program, step: Step) -> list[str]:
    notes = [f"{task.label}: {task.kind}" for task in step.tasks]
    if step.admission is not None:
        notes.insert(0, "gated")
    if step.loop is not None:
        mode = "parallel" if step.loop.is_parallel else "sequential"
        notes.insert(0, f"for each {step.loop.iterator}, {mode}")
    if step.name == program.entry:
        notes.insert(0, "entry")
    if step.name == program.final_step:
        notes.insert(0, "final step")
    return notes
