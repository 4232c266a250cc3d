"""A Story as a graph: steps, what they wait for, and the three blocks as boxes."""

from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.plan.step_graph import BLOCKS
from perdure.dialects.story.steps import STEP_KINDS
from perdure.kernel.graph import Edge, Graph, Node

_TITLES = {"steps": "", "compensations": "compensations", "finally": "finally"}


def draw(program: Program) -> Graph:
    graph = Graph()
    plan = program.plan
    for block in BLOCKS:
        names = [name for step in plan.blocks[block] for name in (step, *plan.branches.get(step, ()))]
        for name in names:
            step = program.steps[name]
            graph.nodes.append(Node(name, name, step.kind, tuple(_notes(program, step))))
            if step.parent:
                graph.edges.append(Edge(step.parent, name))
            for needed in plan.waits.get(name, ()):
                graph.edges.append(Edge(needed, name, _condition(step), is_exceptional=block == "compensations"))
        if names:
            graph.groups.append((_TITLES[block] or program.name, names))
    return graph


def _condition(step: Step) -> str:
    return step.condition.strip().removeprefix("{{").removesuffix("}}").strip()


def _notes(program: Program, step: Step) -> list[str]:
    notes = [STEP_KINDS[step.kind].note(program, step)]
    if step.allows_failure:
        notes.append("may fail")
    return notes
