"""Warnings of `check`: valid, but probably not what was meant. A warning never rejects a document (O-01)."""

import re
from collections.abc import Generator, Iterator
from typing import Any

from msgspec.structs import replace

from perdure.dialects.flow.document.cursor import warning
from perdure.dialects.flow.document.expression_advice import advise_expressions
from perdure.dialects.flow.plan.instants import as_datetime
from perdure.dialects.flow.plan.program import (
    Field,
    Flow,
    MiddlewareEntry,
    PlannedCall,
    Predicate,
    Program,
    Step,
    pointer,
)
from perdure.dialects.flow.plan.provider_catalog import ProviderCatalog
from perdure.dialects.flow.plan.schemas import InvalidSchema, Parameters
from perdure.dialects.flow.state.failures import Fault, covers
from perdure.documents.cursor import DocumentFinding
from perdure.documents.paths import Path
from perdure.expressions import mwl
from perdure.expressions.mwl import ClockPin, Expression, find_expression
from perdure.kernel.documents.problems import Severity, guess
from perdure.kernel.turn_budget import TurnBudget, TurnTooExpensive

_CLOCK = ClockPin(as_datetime(0), as_datetime(0))
_BUDGET, _BUDGET_OF_ONE, _PRICE_OF_TRYING = 1_000_000, 20_000, 100  # for evaluating expressions while checking


def advise(program: Program, document: dict[str, Any], catalog: ProviderCatalog) -> list[DocumentFinding]:
    findings: list[DocumentFinding] = []
    budget = TurnBudget(_BUDGET)
    for field in program.fields():
        findings += _expressions(field, budget)
    findings += advise_expressions(program)
    for flow in program.flows.values():
        findings += _unreachable(flow)
        for step in flow.steps.values():
            findings += _unreachable_clauses(step)
            findings += step.action.advise(step.fields)
            findings += step.action.advise_place(step, flow)
        findings += _nested_reruns(flow)
    for call in program.calls.values():
        findings += _arguments(call)
    for entry in program.entries.values():
        findings += _phase_arguments(entry)
    findings += _defaults(document, ())
    return [replace(finding, path=path_in(document, finding.path)) for finding in findings]


def path_in(document: Any, path: Path) -> Path:
    """A site writes array positions as text; in the document they are numbers."""
    steps: list[str | int] = []
    value = document
    for step in path:
        place = int(step) if isinstance(value, list) else step
        steps.append(place)
        value = value[place]
    return tuple(steps)


_ROOTS = "Expressions read `step`, `vars`, `frame` and `execution`; a call also `call`, middleware also `middleware`."
_WHERE_ROOTS_ARE = {
    "call": "It exists inside `call`. `output`, `assign` and `catch` of the Step read `step.result`.",
    "match": "It exists in the cases of a Match Step.",
    "middleware": "It exists inside an entry of `middleware`.",
}


def _expressions(field: Field | Predicate, budget: TurnBudget) -> Iterator[DocumentFinding]:
    if isinstance(field, Field):
        expressions = field.template.expressions
    else:
        expressions = {} if field.expression is None else {"": field.expression}
    for inside, expression in expressions.items():
        site = field.site + inside
        for finding in expression.findings:
            problem, mark, near = finding.message.partition("; did you mean")
            text = f"{problem}, at {finding.position} of the expression{mark}{near}"
            root = re.match(r"`(\w+)` is not in scope", problem)
            yield warning("MWL-048", text, site, "" if root is None or mark else _WHERE_ROOTS_ARE.get(root[1], _ROOTS))
        if not expression.findings and (message := _always_fails(expression, isinstance(field, Predicate), budget)):
            yield warning("MWL-048", f"this expression always fails: {message}", site)


def _always_fails(expression: Expression, is_predicate: bool, budget: TurnBudget) -> str | None:
    """An expression that reads nothing is constant, so it is evaluated now, within the remaining budget."""
    if re.search(r"\b(vars|execution|frame|failure|step|call|flow|provider|match|middleware)\b", expression.body):
        return None
    trial = TurnBudget(max(min(budget.left, _BUDGET_OF_ONE), 0))
    available = trial.left
    try:
        with trial:
            if is_predicate:
                expression.holds({}, _CLOCK)
            else:
                expression.evaluate({}, _CLOCK)
    except mwl.ExpressionFault as fault:
        return fault.message
    except TurnTooExpensive:
        return None  # the run will show
    finally:
        budget.left -= available - max(trial.left, 0) + _PRICE_OF_TRYING  # what was refused was not done
    return None


def _unreachable(flow: Flow) -> Iterator[DocumentFinding]:
    reached: set[str] = set()
    pending = [flow.entrypoint]
    while pending:
        name = pending.pop()
        if name in reached:
            continue
        reached.add(name)
        pending += _successors(flow.steps[name])
    for name, step in flow.steps.items():
        if name not in reached:
            yield warning("MWL-047", f"no path leads to the Step {name!r}", step.site)


def _successors(step: Step) -> list[str]:
    clauses = [*step.catch, *(clause for _, clause in step.action.branches(step.fields))]
    names = [clause.next for clause in clauses]
    return [*names, step.next] if step.next else names


def _unreachable_clauses(step: Step) -> Iterator[DocumentFinding]:
    for index, clause in enumerate(step.catch):
        for number, pattern in enumerate((clause.match or {}).get("codes", ())):
            if "*" in pattern.removesuffix(".*") and pattern != "*":
                message = f"{pattern!r} matches only this text: `*` stands for codes alone, or at the end, after a dot"
                site = f"{step.site}/catch/{index}/match/codes/{number}"
                yield warning("MWL-503", message, site, "Write `Prefix.*` for all codes that begin with `Prefix.`.")
        for earlier in step.catch[:index]:
            if covers(earlier.match or {}, clause.match or {}):
                message = "this clause can never match: an earlier clause matches everything that it would"
                yield warning("MWL-047", message, f"{step.site}/catch/{index}")
                break


def _nested_reruns(flow: Flow) -> Iterator[DocumentFinding]:
    """Re-runs multiply within a stack, and where a Step's stack is nested in that of its Flow."""
    around = yield from _stack_reruns(flow.outermost, None)
    for step in flow.steps.values():
        yield from _stack_reruns(step.action.stack(step.fields), around)


def _stack_reruns(
    outermost: MiddlewareEntry | None, around: MiddlewareEntry | None
) -> Generator[DocumentFinding, None, MiddlewareEntry | None]:
    entry: MiddlewareEntry | PlannedCall | None = outermost
    while isinstance(entry, MiddlewareEntry):
        if entry.provider.reruns:
            if around is not None:
                message = f"this re-runs inside {around.site}, which re-runs too: the numbers of runs multiply"
                yield warning("MWL-047", message, entry.site, "Ignore this if it is intended.")
            around = entry
        entry = entry.inner
    return around


def misfits(call: PlannedCall) -> bool:
    """Whether the arguments of a call cannot fit its target, whatever the data are."""
    return next(_arguments(call), None) is not None


def phase_misfits(entry: MiddlewareEntry, name: str) -> bool:
    """The same of a phase of middleware. One that is switched off reads no arguments (MWL-360)."""
    when = entry.phase(name).when
    if when is not None and when.literal is False:
        return False
    return next(_phase_mismatches(entry, name), None) is not None


def _arguments(call: PlannedCall) -> Iterator[DocumentFinding]:
    """A mismatch that is visible in the document (MWL-045)."""
    parameters = call.provider.parameters if call.provider is not None else call.flow.parameters if call.flow else None
    if parameters is not None:
        at = f"{call.site}/with" if call.arguments is not None else call.site
        yield from _mismatches(parameters, call.arguments, "the arguments", at)


def _phase_arguments(entry: MiddlewareEntry) -> Iterator[DocumentFinding]:
    for name in ("onEntry", "onSuccess", "onFailure", "onAlways"):
        yield from _phase_mismatches(entry, name)


def _phase_mismatches(entry: MiddlewareEntry, name: str) -> Iterator[DocumentFinding]:
    if not (entry.provider.dispatches and name == "onAlways"):
        field = entry.phase(name).arguments
        at = entry.site if name not in entry.phases else f"{entry.site}/{name}"
        yield from _mismatches(entry.provider.parameters_of(name), field, name, at if field is None else f"{at}/with")


def _mismatches(parameters: Parameters, field: Field | None, subject: str, site: str) -> Iterator[DocumentFinding]:
    """Names that do not fit, and literal values that do not; what an expression gives is left to the run."""
    arguments = {} if field is None else field.template.document
    if not isinstance(arguments, dict):
        return  # one expression gives all of them
    schema = parameters.schema
    properties = schema.get("properties", {})
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    unknown = [name for name in arguments if name not in properties] if is_closed else []
    failing = "this will fail at run time"
    is_literal = field is None or field.template.is_literal
    for name in unknown:
        message = f"{failing}: {subject}: there is no parameter {name!r}{guess(name, list(properties))}"
        known = f"There are: {', '.join(properties)}." if properties else "There are no parameters."
        yield warning("MWL-045", message, site if is_literal else pointer(site, name), known)
    if is_literal and unknown:
        return
    try:
        if field is None or field.template.is_literal:
            parameters.validate(arguments, subject)
            return
        for name in schema.get("required", ()):
            if name not in arguments:
                yield warning("MWL-045", f"{failing}: {subject}: {name!r} is missing", site)
        computed = {inside.split("/")[1] for inside in field.template.expressions}
        definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
        for name in properties.keys() & arguments.keys():
            if name.replace("~", "~0").replace("/", "~1") not in computed:
                alone = Parameters({"type": "object", "properties": {name: properties[name]}, **definitions})
                alone.validate({name: arguments[name]}, subject)
    except Fault as fault:
        yield warning("MWL-045", f"{failing}: {fault.envelope['message']}", site)
    except InvalidSchema:
        return  # the part refers to the rest of its schema


def _defaults(flow: Any, path: Path) -> Iterator[DocumentFinding]:
    """A `default` that looks like an expression is bound literally (MWL-111)."""
    pending: list[tuple[Any, Path]] = [(flow, path)]
    while pending:
        raw, at = pending.pop()
        if isinstance(raw, dict):
            properties = raw.get("parameters", {}).get("properties", {}) if "entrypoint" in raw else {}
            for name, member in properties.items():
                default = member.get("default") if isinstance(member, dict) else None
                if isinstance(default, str) and find_expression(default) is not None:
                    message = "a default is never evaluated: this one is used literally"
                    default_path = (*at, "parameters", "properties", name, "default")
                    yield DocumentFinding("MWL-111", message, default_path, "", Severity.WARNING)
            pending += [(item, (*at, step)) for step, item in raw.items() if step != "parameters"]
        elif isinstance(raw, list):
            pending += [(item, (*at, step)) for step, item in enumerate(raw)]
