"""A Flow as a graph: Steps and their transitions, what they call, what their middleware repeats and cleans up.

A Flow that is called from one place is drawn inside the Step that calls it. One that is called from several places has
a frame of its own, and edges lead to it.
"""

from collections import Counter
from collections.abc import Iterator

from perdure.dialects.flow.plan.program import Clause, Flow, MiddlewareEntry, PlannedCall, Program, Step
from perdure.kernel.graphs.graph import Edge, Graph, Node, Role

ROOT_FRAME = "/"


def draw(program: Program) -> Graph:
    drawing = _FlowDrawing(program)
    drawing.add_root(program.root)
    drawing.add_shared(program)
    return drawing.graph


def start_id(flow_site: str) -> str:
    return f"{flow_site}/start"


class _FlowDrawing:
    def __init__(self, program: Program) -> None:
        self.graph = Graph(program.name)
        callers = Counter(call.flow.site for call in program.calls.values() if call.flow is not None)
        self.shared = {site for site, count in callers.items() if count > 1}

    def add_root(self, flow: Flow) -> None:
        stack = list(entries(flow.outermost))
        if stack:
            self._node(Node(ROOT_FRAME, self.graph.title or "flow", "", stack_notes(stack)))
            self._add_reruns(ROOT_FRAME, stack)
        self._add_flow(flow, ROOT_FRAME if stack else "")

    def _node(self, node: Node) -> None:
        self.graph.nodes.append(node)

    def _edge(self, edge: Edge) -> None:
        self.graph.edges.append(edge)

    def _add_flow(self, flow: Flow, parent: str) -> None:
        """Its Steps, in a frame that says what it is."""
        start = start_id(flow.site)
        self._node(Node(start, "start", "start", (), parent, Role.START))
        self._edge(Edge(start, flow.steps[flow.entrypoint].site))
        for step in flow.steps.values():
            self._add_step(flow, step, parent)
        terminal = [step.site for step in flow.steps.values() if step.action.is_terminal]
        self._add_cleanups(flow.outermost, terminal or [start], parent, "on every exit")

    def _add_step(self, flow: Flow, step: Step, parent: str) -> None:
        action, fields = step.action, step.fields
        stack = list(entries(action.stack(fields)))
        calls = action.calls(fields)
        has_cleanup = any(entry.cleanup is not None for entry in stack)
        own = [call for call in calls if self._is_own(call)]
        notes = [*action.notes(fields)]
        is_frame = bool(own) or has_cleanup
        if not is_frame:
            notes += dict.fromkeys(_target(call) for call in calls)
        elif not has_cleanup and len(calls) == 1:
            notes += _flow_notes(own[0])
        notes += stack_notes(stack)
        self._node(Node(step.site, step.name, action.name, tuple(notes), parent, action.role))
        self._add_reruns(step.site, stack)
        if not is_frame:
            for call in calls:
                if call.flow is not None:
                    self._edge(Edge(step.site, call.flow.site, "calls"))
        elif not has_cleanup and len(calls) == 1:
            self._add_called(own[0], step.site)
        else:
            for call in calls:
                self._add_call(call, _target(call), step.site)
            self._add_cleanups(action.stack(fields), [call.site for call in calls], step.site)
        for edge in _transitions(flow, step):
            self._edge(edge)

    def _is_own(self, call: PlannedCall) -> bool:
        return call.flow is not None and call.flow.site not in self.shared

    def _add_call(self, call: PlannedCall, label: str, parent: str, note: str = "") -> None:
        """A call as a node of its own."""
        extra = (note,) if note else ()
        if self._is_own(call):
            self._node(Node(call.site, label, "flow", (*extra, *_flow_notes(call)), parent))
            self._add_called(call, call.site)
            return
        target = () if label == _target(call) else (_target(call),)
        self._node(Node(call.site, label, "call", (*extra, *target), parent))
        if call.flow is not None:
            self._edge(Edge(call.site, call.flow.site, "calls"))

    def _add_called(self, call: PlannedCall, frame: str) -> None:
        assert call.flow is not None
        self._add_reruns(frame, list(entries(call.flow.outermost)))
        self._add_flow(call.flow, frame)

    def _add_reruns(self, id: str, stack: list[MiddlewareEntry]) -> None:
        for entry in stack:
            if entry.provider.reruns:
                self._edge(Edge(id, id, _name(entry)))

    def _add_cleanups(self, outermost: MiddlewareEntry | None, before: list[str], parent: str, note: str = "") -> None:
        """What `finally` dispatches, after all that is `before`."""
        for entry in entries(outermost):
            if entry.cleanup is None:
                continue
            inner = list(entries(entry.cleanup))
            call = inner[-1].inner if inner else entry.cleanup
            assert isinstance(call, PlannedCall)
            self._add_call(call, "finally", parent, note)
            self._add_reruns(call.site, inner)
            for id in before:
                self._edge(Edge(id, call.site, "always"))

    def add_shared(self, program: Program) -> None:
        for site in program.flows:
            if site in self.shared:
                flow = program.flows[site]
                stack = list(entries(flow.outermost))
                self._node(Node(site, _flow_name(site), "flow", stack_notes(stack)))
                self._add_reruns(site, stack)
                self._add_flow(flow, site)


def _transitions(flow: Flow, step: Step) -> Iterator[Edge]:
    if step.next:
        yield Edge(step.site, flow.steps[step.next].site)
    for label, branch in step.action.branches(step.fields):
        yield Edge(step.site, flow.steps[branch.next].site, label)
    for clause in step.catch:
        label = f"catch {_matched(clause)}".strip()
        yield Edge(step.site, flow.steps[clause.next].site, label, is_exceptional=True)


def _matched(clause: Clause) -> str:
    match = clause.match or {}
    parts = [*match.get("codes", ()), *match.get("types", ())]
    if "retryable" in match:
        parts.append("retryable" if match["retryable"] else "not retryable")
    return ", ".join(parts)


def _target(call: PlannedCall) -> str:
    if call.provider is not None:
        return call.provider.uri.split("/", 1)[1]
    return "" if call.flow is None else f"flow {_flow_name(call.flow.site)}"


def _flow_name(site: str) -> str:
    """Its name in the document; a Flow that is written where it is called has none."""
    parts = site.split("/")
    return parts[-1].replace("~1", "/").replace("~0", "~") if parts[-2:-1] == ["flows"] else "inline"


def _flow_notes(call: PlannedCall) -> tuple[str, ...]:
    assert call.flow is not None
    return (_target(call), *stack_notes(list(entries(call.flow.outermost))))


def entries(outermost: "MiddlewareEntry | PlannedCall | None") -> Iterator[MiddlewareEntry]:
    """The middleware of a stack, from the outermost."""
    entry = outermost
    while isinstance(entry, MiddlewareEntry):
        yield entry
        entry = entry.inner


def _name(entry: MiddlewareEntry) -> str:
    return entry.provider.uri.split("/")[2]


def stack_notes(stack: list[MiddlewareEntry]) -> tuple[str, ...]:
    return (f"in {' › '.join(map(_name, stack))}",) if stack else ()
