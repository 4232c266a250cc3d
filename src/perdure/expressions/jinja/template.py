"""A JSON value whose strings may be templates (PBK-148): compiled once, rendered many times.

Keys are never templates. Errors in the text are collected, so that all of them can be reported at once.
"""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.expressions.jinja.budget import DEFAULT_LIMITS, Budget, Limits
from perdure.expressions.jinja.errors import LimitExceeded, SyntaxFault, TemplateError
from perdure.expressions.jinja.growth import Held
from perdure.expressions.jinja.program import Program, compile_condition, compile_text
from perdure.expressions.jinja.reads import NOTHING, TemplateReads, all_reads
from perdure.expressions.jinja.results import Json
from perdure.expressions.jinja.truth import is_true
from perdure.kernel.evaluation_trace import note_place
from perdure.kernel.turn_budget import pay, price_of_parts

# A condition of a rule or an arc: a boolean, or a template whose result counts as one (PBK-029, PBK-147, PBK-149).


class Guard:
    """`Guard("{{ ctx.ready }}")`, `Guard(True)`. Raises `TemplateError` when the text is not a condition."""

    __slots__ = ("_answer", "_program", "source")

    def __init__(self, source: str | bool, limits: Limits = DEFAULT_LIMITS) -> None:
        self.source = source
        self._program: Program | None = None
        self._answer = source is True
        if isinstance(source, str):
            if "{{" not in source and "{%" not in source:
                raise SyntaxFault(f'the condition is plain text; write it as a template: "{{{{ {source.strip()} }}}}"')
            self._program = compile_condition(source, limits)

    @property
    def reads(self) -> TemplateReads:
        return NOTHING if self._program is None else self._program.reads

    def holds(self, roots: Mapping[str, Any]) -> bool:
        """Whether the condition is true. Raises `TemplateError` when it has no result."""
        return self._answer if self._program is None else is_true(self._program.evaluate(roots))


FEW = 8  # templates in one value, which may contain the same large data as often
Path = tuple[str | int, ...]
_Fill = Callable[[Mapping[str, Any], Budget], Json]


class Template:
    """A field's value as written. Without any template it is the value itself, by reference."""

    __slots__ = ("_fill", "_growing", "_limits", "_parts", "document", "faults", "reads")

    def __init__(self, document: Any, limits: Limits = DEFAULT_LIMITS) -> None:
        self.document: Json = document
        self.faults: list[TemplateError] = []  # what is wrong with the text; `path` says in which string
        self._growing: Program | None = None  # if the value is one template that appends to something
        self._limits = limits
        self._parts: list[Program] = []
        self._fill = self._plan(document, ())
        self.reads: TemplateReads = all_reads([part.reads for part in self._parts]) if self._parts else NOTHING

    @property
    def is_literal(self) -> bool:
        return self._fill is None

    def render(self, roots: Mapping[str, Any]) -> Json:
        """The rendered value. The first failure ends it: raises `TemplateError`."""
        if self.faults:
            raise self.faults[0].with_traceback(None)
        if self._fill is None:
            return self.document
        budget = Budget(self._limits, weighs_results=len(self._parts) > FEW)
        try:
            return self._fill(roots, budget)
        finally:
            budget.settle()

    @property
    def grows(self) -> Held | None:
        """What the value begins with, if that is a list or a text."""
        return None if self._growing is None else self._growing.grows

    def added(self, roots: Mapping[str, Any]) -> Any:
        """What it appends, without inspecting it. Raises `TemplateError`, perhaps another than the whole would."""
        assert self._growing is not None
        budget = Budget(self._limits)
        try:
            return self._growing.added(roots, budget)
        finally:
            budget.settle()

    def _plan(self, value: Json, path: Path) -> _Fill | None:
        if isinstance(value, str):
            return self._plan_text(value, path)
        if not isinstance(value, dict | list):
            return None
        if len(path) >= self._limits.depth:
            self._blame(path, LimitExceeded(f"the value is nested deeper than {self._limits.depth}"))
            return None
        if isinstance(value, dict):
            members = {key: self._plan(item, (*path, key)) for key, item in value.items()}
            return _fill_mapping(value, members) if any(members.values()) else None
        items = [self._plan(item, (*path, at)) for at, item in enumerate(value)]
        return _fill_list(value, items) if any(items) else None

    def _plan_text(self, text: str, path: Path) -> _Fill | None:
        try:
            program = compile_text(text, self._limits)
        except TemplateError as fault:
            self._blame(path, fault)
            return None
        if program.is_literal:
            return None
        self._parts.append(program)
        if not path and program.grows is not None:
            self._growing = program
        return _fill_text(program, path)

    def _blame(self, path: Path, fault: TemplateError) -> None:
        fault.path = path
        self.faults.append(fault)


def _fill_text(program: Program, path: Path) -> _Fill:
    def fill(roots: Mapping[str, Any], budget: Budget) -> Json:
        note_place(path)
        try:
            value = program.render(roots, budget)
            if budget.weighs_results:
                budget.charge_result(value)
            return value
        except TemplateError as failure:
            failure.path = path
            raise

    return fill


def _fill_mapping(value: dict[str, Json], members: dict[str, _Fill | None]) -> _Fill:
    price = price_of_parts(len(members))

    def fill(roots: Mapping[str, Any], budget: Budget) -> Json:
        if price:
            pay(price)
        return {key: value[key] if part is None else part(roots, budget) for key, part in members.items()}

    return fill


def _fill_list(value: list[Json], items: list[_Fill | None]) -> _Fill:
    price = price_of_parts(len(items))

    def fill(roots: Mapping[str, Any], budget: Budget) -> Json:
        if price:
            pay(price)
        return [item if part is None else part(roots, budget) for item, part in zip(value, items, strict=True)]

    return fill
