"""A Flow ready to run: every field compiled against the roots in its scope, every reference resolved.

Parts are found by their *site*, their JSON pointer in the document (`/steps/fetch/call`). State and events
refer to sites, so a log can be read beside its document.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.dialects.flow.middleware.protocol import Middleware
from perdure.dialects.flow.plan.schemas import NO_PARAMETERS, Parameters
from perdure.dialects.flow.plan.secrets import Place
from perdure.expressions.mwl import Expression, Growth, Template, compile_expression, find_expression, find_growth
from perdure.kernel.json_values import jsontext
from perdure.kernel.lazy_regex import lazy_regex
from perdure.kernel.tasks.effects import passes_key

if TYPE_CHECKING:
    from perdure.dialects.flow.steps.protocol import Action

Roots = frozenset[str]
AMBIENT: Roots = frozenset({"vars", "execution", "frame", "failure"})


def pointer(site: str, *steps: str | int) -> str:
    """The site of a part further in."""
    return site + "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


CLOCK_FUNCTIONS = ("now", "wallTime")

_VARIABLE = lazy_regex(r"(?<![\w.`])vars\b(?:\s*\.\s*([A-Za-z_]\w*))?")


class ExpressionReads:
    """What some expressions read: which roots, which variables (None: possibly all), and whether the clock."""

    __slots__ = ("reads_clock", "roots", "variables")

    def __init__(self, bodies: list[str], roots: Roots) -> None:
        self.roots = frozenset(root for root in roots if any(root in body for body in bodies))
        self.reads_clock = any(name in body for body in bodies for name in CLOCK_FUNCTIONS)
        names = [name for body in bodies for name in _VARIABLE.findall(body)]
        self.variables = None if "" in names else frozenset(names)


class AppendExpression:
    """A field that appends to the value at a path."""

    __slots__ = ("growth", "reads")

    def __init__(self, growth: Growth, roots: Roots) -> None:
        self.growth = growth
        self.reads = ExpressionReads(growth.bodies, roots)


class Field:
    """A value of the document, with or without expressions in it."""

    __slots__ = ("append", "reads", "site", "template", "text")

    def __init__(self, document: Any, roots: Roots, site: str) -> None:
        self.site = site
        self.template = Template(document, roots)
        self.reads = ExpressionReads([expression.body for expression in self.template.expressions.values()], roots)
        self.text = jsontext.encode_finite(document) if self.template.is_literal else None
        body = find_expression(document) if isinstance(document, str) else None
        growth = None if body is None else find_growth(body, roots)
        self.append = None if growth is None else AppendExpression(growth, roots)

    @property
    def is_literal(self) -> bool:
        return self.text is not None


class Predicate:
    """A `when`: an expression, or in a phase a literal boolean."""

    __slots__ = ("expression", "literal", "reads", "site")

    def __init__(self, document: bool | str, roots: Roots, site: str) -> None:
        self.site = site
        self.literal = document if isinstance(document, bool) else None
        body = find_expression(document) if isinstance(document, str) else None
        self.expression: Expression | None = None if body is None else compile_expression(body, roots)
        self.reads = ExpressionReads([] if body is None else [body], roots)


Assign = dict[str, Field]


class MiddlewarePhase(msgspec.Struct, frozen=True):
    when: Predicate | None = None
    arguments: Field | None = None
    shape: Field | None = None  # `output` of onEntry, `value` of onSuccess
    envelope: dict[str, Field] = msgspec.field(default_factory=dict)  # of onFailure
    assign: Assign = msgspec.field(default_factory=dict)

    @property
    def is_blank(self) -> bool:
        return not (self.when or self.arguments or self.shape or self.envelope or self.assign)


BLANK_PHASE = MiddlewarePhase()


class MiddlewareEntry(msgspec.Struct):
    """One middleware of a stack. `inner` is what it wraps: the next entry, a call, or None for the Step graph."""

    site: str
    provider: Middleware
    phases: dict[str, MiddlewarePhase]
    inner: "MiddlewareEntry | PlannedCall | None" = None
    cleanup: "MiddlewareEntry | PlannedCall | None" = None

    def phase(self, name: str) -> MiddlewarePhase:
        return self.phases.get(name, BLANK_PHASE)


class Arm(msgspec.Struct, frozen=True):
    value: Field | None
    assign: Assign


class CallProvider(msgspec.Struct, frozen=True):
    """What a Flow must know of a provider it can call."""

    uri: str
    name: str  # the provider's name in tasks; empty for the mock, which needs no task
    parameters: Parameters


class PlannedCall(msgspec.Struct):
    site: str
    provider: CallProvider | None
    flow: "Flow | None"
    input: Field | None
    arguments: Field | None
    on_success: Arm | None
    on_failure: Arm | None
    mark: str = ""  # of a call in a cleanup: its site, for the path of its work
    fixed: dict[str, Any] | None = None  # its arguments, if neither they nor its input contain an expression
    is_proven: bool = False  # those have been validated
    holds_effects: bool = False  # effects in doubt wait for an operator
    secrets: tuple[tuple[Place, str], ...] = ()  # the places of secrets in its arguments, with their names

    def arm(self, ok: bool) -> Arm | None:
        return self.on_success if ok else self.on_failure

    @property
    def has_arms(self) -> bool:
        return self.on_success is not None or self.on_failure is not None

    @property
    def passes_key(self) -> bool:
        """Whether its arguments have a key that tells side effects apart."""
        return self.arguments is not None and passes_key(self.arguments.template.document)


class Clause(msgspec.Struct, frozen=True):
    """The next Step and what it receives: a catch clause or a Match clause."""

    next: str
    output: Field | None
    assign: Assign
    match: dict[str, Any] | None = None
    when: Predicate | None = None


class Step(msgspec.Struct):
    """What all Steps have; `fields` is what the action compiled."""

    site: str
    name: str
    action: "Action"
    fields: Any
    next: str = ""
    output: Field | None = None
    assign: Assign = msgspec.field(default_factory=dict)
    catch: tuple[Clause, ...] = ()


class Flow(msgspec.Struct):
    site: str
    entrypoint: str = ""
    steps: dict[str, Step] = msgspec.field(default_factory=dict)
    outermost: MiddlewareEntry | None = None
    parameters: Parameters = NO_PARAMETERS


class Program(msgspec.Struct, dict=True):
    root: Flow
    name: str
    flows: dict[str, Flow] = msgspec.field(default_factory=dict)
    entries: dict[str, MiddlewareEntry] = msgspec.field(default_factory=dict)
    calls: dict[str, PlannedCall] = msgspec.field(default_factory=dict)

    @cached_property
    def secret_names(self) -> tuple[str, ...]:
        return tuple({name: None for call in self.calls.values() for _, name in call.secrets})

    def fields(self) -> Iterator[Field | Predicate]:
        """Everything that can hold an expression; for `check`."""
        for flow in self.flows.values():
            for step in flow.steps.values():
                yield from fields_of(step)
        for part in (*self.entries.values(), *self.calls.values()):
            yield from fields_of(part)


def fields_of(part: Any) -> Iterator[Field | Predicate]:
    """The fields of one part; its sub-parts with a site of their own are listed by the program."""
    match part:
        case Field() | Predicate():
            yield part
        case dict():
            for item in part.values():
                yield from fields_of(item)
        case tuple() | list():
            for item in part:
                yield from fields_of(item)
        case Step():
            yield from fields_of((part.output, part.assign, part.catch, part.fields))
        case MiddlewareEntry():
            yield from fields_of(part.phases)
        case MiddlewarePhase():
            yield from fields_of((part.when, part.arguments, part.shape, part.envelope, part.assign))
        case PlannedCall():
            yield from fields_of((part.input, part.arguments, part.on_success, part.on_failure))
        case Arm():
            yield from fields_of((part.value, part.assign))
        case Clause():
            yield from fields_of((part.when, part.output, part.assign))
        case _ if hasattr(part, "all_fields"):
            yield from fields_of(part.all_fields())
