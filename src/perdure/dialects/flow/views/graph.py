"""A Flow as a graph: Steps and their transitions, and which Flow is called from where."""

from perdure.dialects.flow.plan.program import Call, Clause, Entry, Flow, Program, Step
from perdure.kernel.graph import Edge, Graph, Node


def draw(program: Program) -> Graph:
    graph = Graph()
    for flow in program.flows.values():
        members = [_start(flow)]
        graph.nodes.append(Node(members[0], "start", "start", _stack(flow.outermost)))
        graph.edges.append(Edge(members[0], flow.steps[flow.entrypoint].site))
        for step in flow.steps.values():
            members.append(step.site)
            graph.nodes.append(Node(step.site, step.name, step.action.name, _notes(step)))
            graph.edges += _edges(flow, step)
        graph.groups.append((flow.site or "/", members))
    return graph


def _start(flow: Flow) -> str:
    return f"{flow.site}/start"


def _edges(flow: Flow, step: Step) -> list[Edge]:
    edges = []
    if step.next:
        edges.append(Edge(step.site, flow.steps[step.next].site))
    for label, branch in step.action.branches(step.fields):
        edges.append(Edge(step.site, flow.steps[branch.next].site, label))
    for clause in step.catch:
        edges.append(Edge(step.site, flow.steps[clause.next].site, f"catch {_matched(clause)}", is_exceptional=True))
    for call in step.action.calls(step.fields):
        if call.flow is not None:
            edges.append(Edge(step.site, _start(call.flow), "calls"))
    return edges


def _matched(clause: Clause) -> str:
    match = clause.match or {}
    parts = [*match.get("codes", ()), *match.get("types", ())]
    if "retryable" in match:
        parts.append("retryable" if match["retryable"] else "not retryable")
    return ", ".join(parts)


def _notes(step: Step) -> tuple[str, ...]:
    calls = step.action.calls(step.fields)
    called = [call.provider.uri.split("/", 1)[1] for call in calls if call.provider is not None]
    return (*step.action.notes(step.fields), *dict.fromkeys(called), *_stack(step.action.stack(step.fields)))


def _stack(outermost: Entry | None) -> tuple[str, ...]:
    names = []
    entry: Entry | Call | None = outermost
    while isinstance(entry, Entry):
        names.append(entry.provider.uri.split("/")[2])
        entry = entry.inner
    return (f"in {' › '.join(names)}",) if names else ()
