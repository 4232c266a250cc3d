"""Walks the tree once and creates one closure per node."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from perdure.expressions.cel import syntax
from perdure.expressions.cel.frame import FIRST_LOCAL, Closure, Frame, spend
from perdure.expressions.cel.functions import Library
from perdure.expressions.cel.names import Scope, dotted_path, qualified_function
from perdure.expressions.cel.planner import calls, logic, loops, operators, paths
from perdure.expressions.cel.syntax import Node
from perdure.expressions.cel.values import NONE, CelList, CelMap, Optional, Value, type_denotations, type_name
from perdure.expressions.errors import EvaluationFault, Failure
from perdure.kernel.evaluation_trace import current_trace


class Plan(msgspec.Struct, frozen=True):
    """What to call, and how many local variables its frame must have space for."""

    run: Closure
    locals: int


def plan(tree: Node, scope: Scope, library: Library, *, traces: bool = False) -> Plan:
    """`traces`: what is read is reported to the current trace (`kernel.evaluation_trace`)."""
    planner = _TracingPlanner(scope, library) if traces else _Planner(scope, library)
    return Plan(planner.plan(tree), planner.slots)


class _Planner:
    def __init__(self, scope: Scope, library: Library) -> None:
        self.slots = 0
        self._scope = scope
        self._library = library
        self._bound: dict[str, int] = {}

    def plan(self, node: Node) -> Closure:
        match node:
            case syntax.Literal(value=value):
                return lambda _: value
            case syntax.Name() | syntax.Select():
                return self._path(node)
            case syntax.Has():
                return paths.has(self.plan(node.operand), node.field, node)
            case syntax.Index():
                return self._index(node)
            case syntax.CallExpression():
                return self._call(node)
            case syntax.Unary(operator="!"):
                return logic.negate(self.plan(node.operand), node.operand)
            case syntax.Unary():
                return operators.negative(self.plan(node.operand), node)
            case syntax.Binary():
                return operators.binary(node, self.plan(node.left), self.plan(node.right))
            case syntax.Chain():
                return operators.chain(self.plan(node.first), [(part, self.plan(part.value)) for part in node.rest])
            case syntax.Conjunction():
                return logic.decide([self.plan(term) for term in node.terms], node.terms, False)
            case syntax.Disjunction():
                return logic.decide([self.plan(term) for term in node.terms], node.terms, True)
            case syntax.Ternary():
                return logic.choose(self.plan(node.condition), self.plan(node.then), self.plan(node.otherwise), node)
            case syntax.ListLiteral():
                return self._list(node)
            case syntax.MapLiteral():
                return self._map(node)
            case syntax.Loop():
                return self._loop(node)
            case syntax.Bind():
                return self._bind(node)
            case syntax.OptionalMap():
                return self._optional_map(node)
        raise AssertionError(f"no plan for {type(node).__name__}")

    # Names and members -----------------------------------------------------------------------------------------------

    def _path(self, node: syntax.Name | syntax.Select) -> Closure:
        dotted = dotted_path(node)
        if dotted is None:
            assert isinstance(node, syntax.Select)
            return self._member(node, self.plan(node.operand))
        path, absolute = dotted
        if path[0] in self._bound and not absolute:
            slot = self._bound[path[0]]
            general = self._members(node, paths.local(slot), len(path) - 1)
            return paths.local_field(slot, path[1], general) if len(path) == 2 else general
        return self._root_path(node, path, absolute=absolute)

    def _root_path(self, node: Node, path: tuple[str, ...], *, absolute: bool) -> Closure:
        """A variable in scope, else the name of a type, else an error at evaluation."""
        named = self._scope.find(path, absolute=absolute)
        dotted = ".".join(path)
        if dotted in _TYPES and (named is None or self._scope.names is None):
            constant = _TYPES[dotted]
            return lambda _: constant
        if named is None:
            return paths.unknown(f"`{path[0]}` is not in scope", _outward(node, len(path) - 1))
        name, keys = named[0], path[named[1] :]
        general = self._members(node, paths.variable(name, _outward(node, len(keys))), len(keys))
        return paths.root_path(name, keys, general) if keys else general

    def _members(self, node: Node, base: Closure, count: int) -> Closure:
        """The last `count` selections of a path, on top of `base`."""
        chain: list[syntax.Select] = []
        while len(chain) < count:
            assert isinstance(node, syntax.Select)
            chain.append(node)
            node = node.operand
        for selection in reversed(chain):
            base = self._member(selection, base)
        return base

    def _member(self, node: syntax.Select, operand: Closure) -> Closure:
        if node.optional:
            return paths.select_optional(operand, node.field, node)
        return paths.select(operand, node.field, node)

    def _index(self, node: syntax.Index) -> Closure:
        return paths.index(self.plan(node.operand), self.plan(node.key), optional=node.optional, node=node)

    def _call(self, node: syntax.CallExpression) -> Closure:
        args = [self.plan(argument) for argument in node.args]
        name = node.function
        if node.target is not None:
            name = qualified_function(node) or ""
            if name not in self._library.functions or name.split(".")[0] in self._bound:
                return self._method(node, args)
        if name == "matches" and len(args) == 2:
            return self._matches(node, args[0], node.args[1], args[1])
        function = self._library.functions.get(name)
        if function is None:
            return paths.unknown(f"there is no function `{name}`", node)
        return calls.call(node, name, function, args, is_method=False)

    def _method(self, node: syntax.CallExpression, args: list[Closure]) -> Closure:
        assert node.target is not None
        if node.function == "matches" and len(args) == 1:
            return self._matches(node, self.plan(node.target), node.args[0], args[0])
        function = self._library.methods.get(node.function)
        if function is None:
            return paths.unknown(f"there is no method `{node.function}`", node)
        return calls.call(node, node.function, function, [self.plan(node.target), *args], is_method=True)

    def _matches(self, node: syntax.CallExpression, text: Closure, pattern: Node, planned: Closure) -> Closure:
        if isinstance(pattern, syntax.Literal) and type(pattern.value) is str:
            return calls.match_constant(node, text, pattern.value)
        (slot,) = self._new_slots(1)
        return calls.match_variable(node, text, planned, slot)

    # Aggregates ------------------------------------------------------------------------------------------------------

    def _list(self, node: syntax.ListLiteral) -> Closure:
        parts = [self.plan(element) for _, element in node.elements]
        size = _BYTES_OF_A_LIST + 8 * len(parts)
        if not any(optional for optional, _ in node.elements):

            def build_plain(frame: Frame) -> CelList:
                spend(frame, size)
                return CelList([part(frame) for part in parts])

            return build_plain
        planned = [(optional, part, element) for (optional, element), part in zip(node.elements, parts, strict=True)]

        def build(frame: Frame) -> CelList:
            spend(frame, size)
            result = CelList()
            for optional, part, element in planned:
                value = part(frame)
                if not optional:
                    result.append(value)
                elif _require_optional(value, element).has_value:
                    result.append(value.value)
            return result

        return build

    def _map(self, node: syntax.MapLiteral) -> Closure:
        planned = [(optional, self.plan(key), self.plan(value), value) for optional, key, value in node.entries]

        size = _BYTES_OF_A_MAP + _BYTES_OF_A_MEMBER * len(planned)

        def build(frame: Frame) -> CelMap:
            spend(frame, size)
            result = CelMap()
            for optional, plan_key, plan_value, key_node in planned:
                key, value = plan_key(frame), plan_value(frame)
                if optional:
                    if not _require_optional(value, key_node).has_value:
                        continue
                    value = value.value
                try:
                    result.put(key, value)
                except Failure as failure:
                    failure.blame(node)
                    raise
            return result

        return build

    # Local variables -------------------------------------------------------------------------------------------------

    def _loop(self, node: syntax.Loop) -> Closure:
        operand = self.plan(node.operand)
        with self._binding(node.variables) as slots:
            condition = None if node.condition is None else self.plan(node.condition)
            result = None if node.result is None else self.plan(node.result)
        return loops.loop(node, operand, slots, condition, result)

    def _bind(self, node: syntax.Bind) -> Closure:
        value = self.plan(node.value)
        with self._binding((node.variable,)) as (slot,):
            result = self.plan(node.result)

        def run(frame: Frame) -> Value:
            frame[slot] = value(frame)
            return result(frame)

        return run

    def _optional_map(self, node: syntax.OptionalMap) -> Closure:
        operand = self.plan(node.operand)
        with self._binding((node.variable,)) as (slot,):
            result = self.plan(node.result)

        def run(frame: Frame) -> Value:
            optional = _require_optional(operand(frame), node.operand)
            if not optional.has_value:
                return NONE
            frame[slot] = optional.value
            value = result(frame)
            return _require_optional(value, node.result) if node.flat else Optional(value)

        return run

    @contextmanager
    def _binding(self, names: tuple[str, ...]) -> Iterator[tuple[int, ...]]:
        """Give each name a slot of its own while its scope is planned."""
        outer = self._bound
        slots = self._new_slots(len(names))
        self._bound = {**outer, **dict(zip(names, slots, strict=True))}
        yield slots
        self._bound = outer

    def _new_slots(self, count: int) -> tuple[int, ...]:
        first = FIRST_LOCAL + self.slots
        self.slots += count
        return tuple(range(first, first + count))


class _TracingPlanner(_Planner):
    """Plans the same, and reports what the longest paths into the roots led to; never used to decide."""

    def __init__(self, scope: Scope, library: Library) -> None:
        super().__init__(scope, library)
        self._inner: set[int] = set()  # nodes inside a longer path

    def plan(self, node: Node) -> Closure:
        steps = None if id(node) in self._inner else self._steps(node)
        run = super().plan(node)
        if steps is None:
            return run
        planned = [self.plan(step) if isinstance(step, Node) else step for step in steps]

        def read(frame: Frame) -> Value:
            value: Value = None
            try:
                value = run(frame)
                return value
            finally:
                trace = current_trace.get()
                if trace is not None:
                    trace.read(tuple(_steps_taken(frame, planned)), value.value if type(value) is Optional else value)

        return read

    def _steps(self, node: Node) -> list[str | Node] | None:
        """From a variable in scope to this node; its inner nodes are marked. None if it is something else."""
        steps: list[str | Node] = []
        inner: list[Node] = []
        while not isinstance(node, syntax.Name):
            match node:
                case syntax.Select(field=field) | syntax.Has(field=field):
                    steps.append(field)
                case syntax.Index(key=key):
                    steps.append(key)
                case _:
                    return None
            node = node.operand
            inner.append(node)
        if (node.name in self._bound and not node.absolute) or node.name not in (self._scope.names or ()):
            return None
        self._inner.update(map(id, inner))
        return [node.name, *reversed(steps)]


def _steps_taken(frame: Frame, planned: list[str | Closure]) -> Iterator[str | int]:
    for step in planned:
        try:
            key = step if isinstance(step, str) else step(frame)
        except Failure:
            return
        if isinstance(key, str):
            yield key
        elif isinstance(key, int | float) and not isinstance(key, bool):
            yield int(key)
        else:
            return


_TYPES = type_denotations()
_BYTES_OF_A_LIST, _BYTES_OF_A_MAP, _BYTES_OF_A_MEMBER = 72, 168, 48


def _outward(node: Node, selections: int) -> Node:
    """The part of a path without its last selections."""
    for _ in range(selections):
        assert isinstance(node, syntax.Select)
        node = node.operand
    return node


def _require_optional(value: Value, node: Node) -> Optional:
    if type(value) is Optional:
        return value
    raise EvaluationFault(f"expected an optional, not {type_name(value)}", node)
