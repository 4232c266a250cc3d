"""One string of a document: compiled once, rendered many times (PBK-148).

Exactly one `{{ expression }}` results in the expression's own value; anything else in text. Nothing is parsed again. An
expression that only reads and compares data is computed without Jinja where possible (`plain`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import TracebackType
from typing import Any

from jinja2 import Template, TemplateSyntaxError, nodes
from jinja2.parser import Parser

from perdure.expressions.jinja.budget import DEFAULT_LIMITS, Budget, Limits
from perdure.expressions.jinja.environment import GUARDS, VALUES, MeteredContext, MeteredEnvironment, tracing
from perdure.expressions.jinja.errors import EvaluationFault, LimitExceeded, MissingValue, SyntaxFault, TemplateError
from perdure.expressions.jinja.growth import Held, find_added, find_growth
from perdure.expressions.jinja.plain import NotPlain, Plain, plain
from perdure.expressions.jinja.reads import NOTHING, TemplateReads, find_reads
from perdure.expressions.jinja.results import Json, as_json, by_reference
from perdure.expressions.jinja.rewriter import RefusedNode, inspect, rewrite
from perdure.expressions.source import Source
from perdure.kernel.evaluation_trace import current_trace
from perdure.kernel.turn_budget import begin_compiling, pay

# Where in a template something is: located in its text once there is an error to show.

_WIDEST = 100


def fragment_around(text: str, offset: int) -> tuple[str, int, int]:
    """The `{{ … }}` or `{% … %}` around `offset`, without its braces; where it starts and ends."""
    start = max(text.rfind("{{", 0, offset + 2), text.rfind("{%", 0, offset + 2))
    if start < 0:
        return _shortened(text.strip()), 0, len(text)
    end = text.find("}}" if text[start + 1] == "{" else "%}", start)
    end = len(text) if end < 0 else end
    return _shortened(text[start + 2 : end].strip("-+ \n")), start, end


def place_of_name(text: str, name: str, start: int, end: int) -> int | None:
    """The first place between two offsets where `name` occurs as a word."""
    match = re.compile(rf"(?<!\w){re.escape(str(name))}(?!\w)").search(text, start, end)
    return match.start() if match else None


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[:60]} … {text[-30:]}"


_ANSWER = "_answer"
_MARKS = ("{{", "{%", "{#")
_FILE = "<template>"
MOST_PARTS = 200_000
"""Parts that all templates of one document may have, each template counted as some more: about 10 seconds of work."""

_PARTS_OF_A_TEMPLATE = 20
_WORK_OF_A_RENDERING, _WORK_WITHOUT_JINJA = 150, 30  # of the turn: by Jinja, and of what is computed without it
_SMALL = 32  # parts of a template that cost nothing besides the call
_left: ContextVar[list[int] | None] = ContextVar("parts_left_to_compile", default=None)


@contextmanager
def limited_compiling() -> Iterator[None]:
    """For the validation of one document."""
    before = _left.set([MOST_PARTS])
    try:
        yield
    finally:
        _left.reset(before)


_LINE_END = re.compile("\r\n?")  # Jinja would change them as well, but only after offsets were counted


def has_template(text: str) -> bool:
    """Whether a string contains any Jinja syntax."""
    return "{" in text and any(mark in text for mark in _MARKS)


class Program:
    """A compiled string. Holds no data; safe to share and to render any number of times."""

    __slots__ = (
        "_added",
        "_environment",
        "_is_path",
        "_plain",
        "_template",
        "_weight",
        "grows",
        "is_native",
        "limits",
        "reads",
        "source",
    )

    def __init__(self, text: str, environment: MeteredEnvironment, limits: Limits) -> None:
        self.source = Source(_LINE_END.sub("\n", text) if has_template(text) else text)
        self.limits = limits
        self.reads: TemplateReads = NOTHING
        self.is_native = self._is_path = False
        self.grows: Held | None = None  # what its value begins with, if that is a list or a text
        self._added: Template | None = None
        self._plain: Plain | None = None
        self._environment = environment
        self._template: Template | None = None
        self._weight = 0  # steps that are paid whatever the template does
        if has_template(text):
            self._compile(self.source.text)

    @property
    def is_literal(self) -> bool:
        """Whether the string is its own result."""
        return self._template is None

    def render(self, roots: Mapping[str, Any], budget: Budget | None = None) -> Json:
        """The value for these roots, as JSON data. Raises `TemplateError`."""
        if self._template is None:
            return self.source.text
        if current_trace.get() is not None and not self._environment.traces:
            return self._traced(lambda twin: twin.render(roots, budget))  # type: ignore[no-any-return]
        if self._plain is not None:
            pay(_WORK_WITHOUT_JINJA)
            try:
                value = self._plain(roots)
                if self._is_path or type(value) in (str, int, bool, type(None)):  # JSON as it is, see `results`
                    return value  # type: ignore[no-any-return]
            except NotPlain:
                pass
        if budget is not None:
            return self._guarded(lambda: self._convert(self._run(roots, budget), budget))  # type: ignore[no-any-return]
        own_budget = Budget(self.limits)
        try:
            return self._guarded(lambda: self._convert(self._run(roots, own_budget), own_budget))  # type: ignore[no-any-return]
        finally:
            own_budget.settle()

    def added(self, roots: Mapping[str, Any], budget: Budget) -> Any:
        """What is appended to the beginning of the value, as the expression returned it. Raises `TemplateError`."""
        assert self._added is not None
        if current_trace.get() is not None and not self._environment.traces:
            return self._traced(lambda twin: twin.added(roots, budget))
        return self._guarded(lambda: self._run(roots, budget, self._added))

    def evaluate(self, roots: Mapping[str, Any]) -> Any:
        """The value as the expression returned it: it may be undefined. Raises `TemplateError`."""
        if self._template is None:
            return self.source.text
        if current_trace.get() is not None and not self._environment.traces:
            return self._traced(lambda twin: twin.evaluate(roots))
        if self._plain is not None:
            pay(_WORK_WITHOUT_JINJA)
            try:
                return self._plain(roots)
            except NotPlain:
                pass
        own_budget = Budget(self.limits)
        try:
            return self._guarded(lambda: self._run(roots, own_budget))
        finally:
            own_budget.settle()

    def _traced(self, work: "Callable[[Program], Any]") -> Any:
        """The same with a program that reports to the current trace what it reads."""
        trace = current_trace.get()
        assert trace is not None
        twin = _compile(self.source.text, tracing(self._environment), self.limits)
        with trace.evaluating(self.source.text) as evaluation:
            value = evaluation.value = work(twin)
            return value

    def _convert(self, value: Any, budget: Budget) -> Json:
        return by_reference(budget, value) if self._is_path else as_json(budget, value)

    def _run(self, roots: Mapping[str, Any], budget: Budget, part: Template | None = None) -> Any:
        template = part or self._template
        assert template is not None
        context = MeteredContext(self._environment, {**self._environment.globals, **roots}, None, {})
        context.budget = budget
        pay(_WORK_OF_A_RENDERING)
        if self._weight:
            budget.charge(self._weight)
        pieces = list(template.root_render_func(context))
        return context.vars[_ANSWER] if self.is_native else "".join(pieces)

    def _guarded(self, work: Any) -> Any:
        try:
            return work()
        except TemplateError as error:
            failure, trace = error, error.__traceback__
        except RecursionError:
            failure, trace = LimitExceeded("the template or its data are nested too deeply"), None
        except MemoryError:
            failure, trace = LimitExceeded("there is not enough memory"), None
        except Exception as error:  # what Jinja's filters raise for unsuitable data
            failure, trace = EvaluationFault(_sentence(error)), error.__traceback__
        self._locate(failure, trace)
        try:
            raise failure.with_traceback(None) from None
        finally:
            del failure, trace  # else they keep the frames of the template alive, with all the values in them

    def _locate(self, failure: TemplateError, trace: TracebackType | None) -> None:
        offset = 0
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == _FILE and self._template is not None:
                offset = max(self._template.get_corresponding_lineno(trace.tb_lineno) - 1, 0)
            trace = trace.tb_next
        fragment, start, end = fragment_around(self.source.text, offset)
        if isinstance(failure, MissingValue) and failure.name:
            offset = place_of_name(self.source.text, failure.name, start, end) or offset
        failure.locate(self.source, offset, fragment)

    def _compile(self, text: str) -> None:
        if len(text) > self.limits.source:
            raise self._refusal(LimitExceeded(f"the template is longer than {self.limits.source} characters"), 0)
        left = _left.get()
        if left is not None and left[0] < 0:
            raise self._refusal(LimitExceeded(f"the templates of a document have at most {MOST_PARTS} parts"), 0)
        begin_compiling(len(text))
        try:
            tree = Parser(self._environment, text).parse()
            parts = inspect(tree, self.limits)
            self._weight = 2 * parts if parts > _SMALL else 0
            if left is not None:
                left[0] -= parts + _PARTS_OF_A_TEMPLATE
            self.reads = find_reads(tree, frozenset(self._environment.globals))
            expression = _only_expression(tree, text)
            if expression is not None:
                self.is_native = True
                self._is_path = _is_path(expression)
                self._plain = None if self._environment.traces else plain(expression)
                self.grows = find_growth(expression)
                tree = _answering(expression)
            self._template = self._compiled(tree)
            if self.grows is not None:  # from a tree of its own: the other one was rewritten
                separate_tree = _only_expression(Parser(self._environment, text).parse(), text)
                assert separate_tree is not None
                self._added = self._compiled(_answering(find_added(separate_tree)))
        except TemplateSyntaxError as error:
            message = (error.message or "this is not a template").rstrip(".")
            raise self._refusal(SyntaxFault(message[0].lower() + message[1:]), error.lineno - 1) from None
        except RefusedNode as refusal:
            raise self._refusal(refusal.refusal, refusal.node.lineno - 1) from None
        except (RecursionError, MemoryError, SyntaxError):  # the last is Python's, for blocks nested too deeply
            raise self._refusal(LimitExceeded("the template is nested too deeply"), 0) from None
        except (ValueError, OverflowError):
            raise self._refusal(SyntaxFault("a number has too many digits"), 0) from None

    def _compiled(self, tree: nodes.Template) -> Template:
        code = self._environment.compile(rewrite(tree, self._environment), filename=_FILE)
        return Template.from_code(self._environment, code, {})

    def _refusal(self, refusal: TemplateError, offset: int) -> TemplateError:
        offset = min(max(offset, 0), len(self.source.text))
        refusal.locate(self.source, offset, fragment_around(self.source.text, offset)[0])
        return refusal


def _answering(expression: nodes.Expr) -> nodes.Template:
    target = nodes.Name(_ANSWER, "store", lineno=expression.lineno)
    return nodes.Template([nodes.Assign(target, expression, lineno=expression.lineno)], lineno=1)


def _only_expression(tree: nodes.Template, text: str) -> nodes.Expr | None:
    """The expression, if the string is one and nothing else but blanks around it."""
    stripped = text.strip()
    if not (stripped.startswith("{{") and stripped.endswith("}}")) or len(tree.body) != 1:
        return None
    output = tree.body[0]
    if not isinstance(output, nodes.Output):
        return None
    parts = [part for part in output.nodes if not (isinstance(part, nodes.TemplateData) and not part.data.strip())]
    return parts[0] if len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData) else None


def _is_path(node: nodes.Node) -> bool:
    while isinstance(node, nodes.Getattr | nodes.Getitem) and not isinstance(getattr(node, "arg", None), nodes.Slice):
        node = node.node
    return isinstance(node, nodes.Name)


def _sentence(error: Exception) -> str:
    return f"this does not work on these data: {error or type(error).__name__}"


_LONGEST_REMEMBERED = 2_000  # so that the memory of programs is bounded in bytes, not only in number


def compile_text(text: str, limits: Limits = DEFAULT_LIMITS) -> Program:
    """A string in a data position: an undefined value that it needs is an error. Raises `TemplateError`."""
    return _compile(text, VALUES, limits) if len(text) <= _LONGEST_REMEMBERED else Program(text, VALUES, limits)


def compile_condition(text: str, limits: Limits = DEFAULT_LIMITS) -> Program:
    """A string in a guard: undefined is harmless. Raises `TemplateError`."""
    return _compile(text, GUARDS, limits) if len(text) <= _LONGEST_REMEMBERED else Program(text, GUARDS, limits)


@lru_cache(maxsize=1024)
def _compile(text: str, environment: MeteredEnvironment, limits: Limits) -> Program:
    return Program(text, environment, limits)
