"""Warnings of `check` about what expressions read, and about texts that are not expressions but look like one."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from perdure.dialects.flow.document.cursor import warning
from perdure.dialects.flow.plan.program import (
    Field,
    Flow,
    MiddlewareEntry,
    PlannedCall,
    Predicate,
    Program,
    fields_of,
    pointer,
)
from perdure.dialects.flow.run.subrun import NAME as RUN
from perdure.dialects.flow.state.failures import MEMBERS as ENVELOPE
from perdure.dialects.flow.steps.protocol import Action
from perdure.documents.cursor import DocumentFinding
from perdure.expressions.mwl import Expression, analyse, find_expression
from perdure.kernel.documents.problems import guess

Members = Mapping[str, frozenset[str]]
"""The roots in scope at a site, each with the members that may exist there (section 5 of MWL)."""

_AMBIENT: Members = {
    "execution": frozenset({"id", "metadata", "platform"}),
    "frame": frozenset({"input", "metadata"}),
    "failure": frozenset(ENVELOPE),
}
_STEP = frozenset({"name", "id", "action", "input", "metadata"})
_MATCH = frozenset({"input", "metadata"})
_CALL = frozenset({"input", "metadata"})
_MIDDLEWARE = frozenset({"input", "metadata"})
_WINDOWS: Members = {
    "flow": frozenset({"input", "result", "vars", "metadata"}),
    "provider": frozenset({"input", "result", "metadata"}),
}
_ELSEWHERE = {
    "step.result": "A Call Step has it in `output`, `assign` and `catch`.",
    "step.results": "A Gather Step has it in `output`, `assign` and `catch`.",
    "call.result": "A call has it in `onSuccess` and `onFailure`.",
    "call.index": "The calls of a Gather have it.",
    "middleware.result": "It exists in `onSuccess`, `onFailure` and `onAlways`.",
    "step.output": "A Call Step has `step.result.value`.",
}
_SHOWN = 50  # warnings of one Flow; nobody reads more at a time


class FieldSite(msgspec.Struct, frozen=True):
    """A field, the roots in its scope, and the Flow behind the root `flow`."""

    field: Field | Predicate
    members: Members
    callee: Flow | None = None
    is_document: bool = False  # it holds a document of another run, with expressions of that one's language


def advise_expressions(program: Program) -> Iterator[DocumentFinding]:
    sites = {flow.site: list(_sites(flow)) for flow in program.flows.values()}
    variables = {flow.site: _variables(flow, sites[flow.site]) for flow in program.flows.values()}
    for flow in program.flows.values():
        count = 0
        for site in sites[flow.site]:
            for finding in _advise(site, variables[flow.site], variables):
                count += 1
                if count <= _SHOWN:
                    yield finding


# Where the fields of a Flow are, and what they may read there.


def _sites(flow: Flow) -> Iterator[FieldSite]:
    yield from _stack(flow.outermost, _AMBIENT)
    for step in flow.steps.values():
        is_known = step.action.results or type(step.action).show_results is Action.show_results
        base = {**_AMBIENT, "step": _STEP} if is_known else _AMBIENT
        fields = {**base, "match": _MATCH} if step.action.branches(step.fields) else base
        yield from (FieldSite(field, fields) for field in fields_of(step.fields))
        tail = {**base, "step": _STEP | set(step.action.results)} if is_known else base
        yield from (FieldSite(field, tail) for field in fields_of((step.output, step.assign, step.catch)))
        for call in step.action.calls(step.fields):
            yield from _call(call, base, _CALL | set(step.action.call_members))
        yield from _stack(step.action.stack(step.fields), base)


def _call(call: PlannedCall, around: Members, members: frozenset[str] = _CALL) -> Iterator[FieldSite]:
    inside = {**around, "call": members}
    is_document = call.provider is not None and call.provider.name == RUN
    yield from (FieldSite(field, inside) for field in fields_of(call.input))
    yield from (FieldSite(field, inside, is_document=is_document) for field in fields_of(call.arguments))
    window = "provider" if call.provider is not None else "flow"
    arms = {**inside, "call": members | {"result"}, window: _WINDOWS[window]}
    yield from (FieldSite(field, arms, call.flow) for field in fields_of((call.on_success, call.on_failure)))


def _stack(outermost: MiddlewareEntry | PlannedCall | None, around: Members) -> Iterator[FieldSite]:
    """The entries of a stack; the call inside it belongs to its Step, except in a cleanup."""
    entry = outermost
    while isinstance(entry, MiddlewareEntry):
        ascent = {**around, "middleware": _MIDDLEWARE | {"result"}}
        for name, phase in entry.phases.items():
            scope = {**around, "middleware": _MIDDLEWARE} if name == "onEntry" else ascent
            yield from (FieldSite(field, scope) for field in fields_of(phase))
        if entry.cleanup is not None:
            yield from _stack(entry.cleanup, ascent)
            yield from _call(_innermost(entry.cleanup), ascent)
        entry = entry.inner


def _innermost(cleanup: MiddlewareEntry | PlannedCall) -> PlannedCall:
    inner: MiddlewareEntry | PlannedCall | None = cleanup
    while isinstance(inner, MiddlewareEntry):
        inner = inner.inner
    assert inner is not None
    return inner


def _variables(flow: Flow, sites: list[FieldSite]) -> frozenset[str] | None:
    """The names that may be bound in a frame of the Flow; None if its parameters are open."""
    schema = flow.parameters.schema
    if schema.get("additionalProperties") is not False or "patternProperties" in schema:
        return None
    assigned = (site.field.site.rsplit("/", 2) for site in sites)
    names = {name.replace("~1", "/").replace("~0", "~") for _, member, name in assigned if member == "assign"}
    return frozenset(names | set(schema.get("properties", {})))


# What is wrong with them.


def _advise(
    site: FieldSite, variables: frozenset[str] | None, all_variables: Mapping[str, frozenset[str] | None]
) -> Iterator[DocumentFinding]:
    field = site.field
    if isinstance(field, Field):
        expressions = field.template.expressions
        yield from _texts(field.template.document, field.site, site.is_document)
    else:
        expressions = {} if field.expression is None else {"": field.expression}
    of_callee = None if site.callee is None else all_variables[site.callee.site]
    for inside, expression in expressions.items():
        yield from _reads(expression, field.site + inside, site.members, {"vars": variables, "flow.vars": of_callee})


def _reads(
    expression: Expression, site: str, members: Members, variables: Mapping[str, frozenset[str] | None]
) -> Iterator[DocumentFinding]:
    analysis = analyse(expression.body, frozenset({"vars", *members}))
    for failing in analysis.failing if analysis.reads else ():  # a constant is evaluated by `check` itself
        yield warning("MWL-122", f"{failing.message}, at {failing.position} of the expression", site, failing.hint)
    for read in analysis.reads:
        root, *rest = read.path
        place = f"at {read.position} of the expression"
        holder, names = ("vars", rest) if root == "vars" else ("flow.vars", rest[1:])
        if (root == "vars" or read.path[:2] == ("flow", "vars")) and names:
            known, name = variables[holder], names[0]
            if known is None or name in known or (*holder.split("."), name) in analysis.tested:
                continue
            whose = "this Flow" if root == "vars" else "the called Flow"
            message = f"nothing in {whose} assigns the variable {name!r}, {place}{guess(name, sorted(known))}"
            yield warning("MWL-152", message, site, f"Assign it first, or ask: has({holder}.{name}).")
        elif root in members and rest and rest[0] not in members[root] and read.path[:2] not in analysis.tested:
            member = f"{root}.{rest[0]}"
            near = "" if member in _ELSEWHERE else guess(rest[0], sorted(members[root]))
            hint = _ELSEWHERE.get(member, f"There are: {', '.join(sorted(members[root]))}.")
            yield warning("MWL-150", f"`{member}` does not exist here, {place}{near}", site, hint)


def _texts(document: Any, site: str, is_document: bool) -> Iterator[DocumentFinding]:
    """Texts with an expression inside a longer literal: they are used as written (MWL-100)."""
    pending = [(document, site)]
    while pending:
        value, at = pending.pop()
        if isinstance(value, dict):
            passed_on = "document" if is_document and at == site else None
            pending += [(item, pointer(at, name)) for name, item in value.items() if name != passed_on]
        elif isinstance(value, list):
            pending += [(item, pointer(at, index)) for index, item in enumerate(value)]
        elif isinstance(value, str) and find_expression(value) is None and _has_braces(value):
            message = "this text is used as written: {{ … }} is evaluated only if it is the whole value"
            if find_expression(value.strip()) is not None:
                hint = "Remove the blanks before {{ and after }}."
            else:
                hint = "Write one expression that joins texts: \"{{ 'Hello ' + vars.name }}\"."
            yield warning("MWL-100", message, at, hint)


def _has_braces(text: str) -> bool:
    """Whether something between double braces is in it; a pattern for that would search from each of them."""
    opening = text.find("{{")
    return opening >= 0 and text.find("}}", opening + 2) >= 0
