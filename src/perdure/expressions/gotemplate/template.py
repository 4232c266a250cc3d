"""Templates: compiled once in the environment of their place, rendered many times."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.expressions.errors import EvaluationFault, Failure, LimitExceeded, OutOfStack, SyntaxFault
from perdure.expressions.gotemplate.access import follow_path
from perdure.expressions.gotemplate.budget import DEFAULT_LIMITS, Limits
from perdure.expressions.gotemplate.errors import NotJson
from perdure.expressions.gotemplate.frame import Ambient, Frame, TracedFrame
from perdure.expressions.gotemplate.functions import DETERMINISTIC, GO_BUILTINS, Library
from perdure.expressions.gotemplate.json_text import decode
from perdure.expressions.gotemplate.parser import parse
from perdure.expressions.gotemplate.paths import known_path
from perdure.expressions.gotemplate.planner import plan
from perdure.expressions.gotemplate.references import Mention, collect, find_mentions
from perdure.expressions.gotemplate.syntax import ActionNode, Block, Text
from perdure.expressions.source import ExpressionProblem, Source
from perdure.kernel.evaluation_trace import EvaluationTrace, current_trace
from perdure.kernel.turn_budget import begin_compiling, pay

# What every template of one place in a Story shares: which roots it may read, its functions, its limits.

KNOWN_ROOTS = frozenset({"inputs", "steps", "packet", "step", "engram", "story", "impulse", "context"})


class Environment(msgspec.Struct, frozen=True):
    """`roots` of None allows any; `scope` names the kind of template in messages (STY-035)."""

    roots: frozenset[str] | None = None
    scope: str = "these"
    library: Library = DETERMINISTIC
    limits: Limits = DEFAULT_LIMITS
    typed_functions: bool = False  # STY-199: every single action keeps a type, not only Go's builtins
    refuses_absent: bool = False  # STY-280: reading a missing key is an error if the result is an identity
    variables: frozenset[str] = frozenset()  # roots bound by the value around the template (STY-193)

    @property
    def bare_roots(self) -> frozenset[str]:
        """Names that may be written without a leading dot (STY-195). A function's name means the function."""
        names = self.variables | (self.roots or frozenset())
        return KNOWN_ROOTS | {root for root in names if root not in self.library.functions}

    def allows(self, root: str | int) -> bool:
        return self.roots is None or root in self.roots or root in self.variables

    def binding(self, variables: frozenset[str] | None) -> "Environment":
        """The same place with more roots; None when their names are not known before rendering."""
        if variables is None:
            return replace(self, roots=None)
        return replace(self, variables=self.variables | variables)


DEFAULT = Environment()
_WORK_OF_A_PATH = 30


# Whether a rendered `if` or `until` holds (STY-061).

_TRUE = frozenset({"true", "1", "yes", "y"})
_FALSE = frozenset({"false", "0", "no", "n", ""})


def is_condition(text: str) -> bool:
    """Whether a text without braces is one of the texts that a condition may be."""
    return text.strip().lower() in _TRUE | _FALSE


def holds(result: Any) -> bool:
    """A bool, or one of a few texts in any case; anything else is an error."""
    if isinstance(result, bool):
        return result
    text = result.strip().lower() if isinstance(result, str) else None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    excerpt = "" if text is None else f": {result[:60]!r}"
    raise EvaluationFault(f"condition did not resolve to boolean{excerpt}")


# What is wrong with a template that parses: functions it may not call, roots it may not read. Lists every problem.


def check(mentions: Iterable[Mention], source: Source, environment: Environment) -> tuple[ExpressionProblem, ...]:
    findings = []
    for mention in mentions:
        if isinstance(mention.subject, str):
            problem = _refuse_function(mention.subject, mention.offset, source, environment)
        else:
            problem = _refuse_root(mention.subject[0], environment) if mention.subject else None
        if problem is not None:
            findings.append(ExpressionProblem.at(source, mention.offset, problem))
    return tuple(findings)


def _refuse_function(name: str, offset: int, source: Source, environment: Environment) -> str | None:
    problem = environment.library.refuse(name)
    follows = source.text[offset + len(name) : offset + len(name) + 1]
    if problem is not None and name not in environment.library.denied and follows in (".", "["):
        return f"unknown context {name!r} is not allowed for {environment.scope} templates"
    return problem


def _refuse_root(root: str | int, environment: Environment) -> str | None:
    if environment.allows(root):
        return None
    unknown = "" if root in KNOWN_ROOTS else "unknown "
    return f"{unknown}context {root!r} is not allowed for {environment.scope} templates"


def is_template(text: str) -> bool:
    """Whether a string is a template; any other string is itself (STY-193)."""
    return "{{" in text


class Template:
    """A compiled template. Holds no data; safe to share and to render any number of times.

    Its result is (STY-198) the value itself when it is only a path, the JSON value that its text spells when it is one
    action over Go's builtins, and otherwise its text.
    """

    __slots__ = ("_environment", "_path", "_perform", "_reads_json", "_slots", "_whole", "references", "source")

    def __init__(self, text: str, environment: Environment = DEFAULT) -> None:
        self.source = Source(text)
        limits = environment.limits
        if len(text) > limits.source:
            raise self._refuse(SyntaxFault, f"the template is longer than {limits.source} characters")
        begin_compiling(len(text))
        try:
            tree = parse(self.source, limits, environment.bare_roots)
            mentions = find_mentions(tree)
            findings = check(mentions, self.source, environment)
            if findings:
                raise SyntaxFault(findings)
            self._perform = plan(tree.body, environment.library)
        except RecursionError:
            raise self._refuse(OutOfStack, "the template is nested too deeply") from None
        self.references = collect(mentions)
        self._whole = _single_action(tree.body)
        self._path = known_path(self._whole.pipeline, True) if self._whole else None
        uses_builtins_only = environment.typed_functions or self.references.functions <= GO_BUILTINS
        self._reads_json = self._whole is not None and uses_builtins_only
        self._slots = tree.slots
        self._environment = environment

    @property
    def is_path(self) -> bool:
        """Whether it is a plain path: its result depends on nothing but the data."""
        return bool(self._path)

    def render(self, roots: Mapping[str, Any], ambient: Ambient | None = None) -> Any:
        """The result for these roots, which are read in place, never copied and never changed.

        Raises a `Failure`: `EvaluationFault`, `MissingKey`, `NeedsStoredValue` or `LimitExceeded`.
        """
        trace = current_trace.get()
        if trace is not None:
            return self._traced(trace, roots, ambient)
        return self._rendered(roots, ambient)

    def _traced(self, trace: EvaluationTrace, roots: Mapping[str, Any], ambient: Ambient | None) -> Any:
        with trace.evaluating(self.source.text) as evaluation:
            value = evaluation.value = self._rendered(roots, ambient)
            if self._path:
                trace.read(self._path, value)
            return value

    def _rendered(self, roots: Mapping[str, Any], ambient: Ambient | None) -> Any:
        if self._path:
            pay(_WORK_OF_A_PATH)
            try:
                return follow_path(roots if isinstance(roots, dict) else dict(roots), self._path)
            except Failure as failure:
                self._locate(failure)
                raise
        text = self.render_text(roots, ambient)
        return _read_json(text) if self._reads_json else text

    def render_text(self, roots: Mapping[str, Any], ambient: Ambient | None = None) -> str:
        """What Go would write, whatever the template consists of. Raises as `render` does."""
        data = roots if isinstance(roots, dict) else dict(roots)
        trace = current_trace.get()
        if trace is None:
            frame = Frame(data, self._slots, self._environment.limits, ambient)
        else:
            frame = TracedFrame(data, self._slots, self._environment.limits, ambient, trace)
        try:
            self._perform(frame)
            if frame.absent and self._environment.refuses_absent:
                raise EvaluationFault(f"it reads {frame.absent!r}, which is absent")
            return "".join(frame.parts)
        except Failure as failure:
            self._locate(failure)
            raise
        except RecursionError:
            raise LimitExceeded("the data are nested too deeply") from None
        except MemoryError:
            raise LimitExceeded("there is not enough memory") from None
        finally:
            frame.budget.settle()

    def _locate(self, failure: Failure) -> None:
        """Add which part of the template the failure is about."""
        if self._whole is not None:
            failure.blame(self._whole.pipeline)
        failure.locate(self.source)

    def _refuse(self, kind: type[SyntaxFault], message: str) -> SyntaxFault:
        return kind((ExpressionProblem.at(self.source, 0, message),))


def _single_action(body: Block) -> ActionNode | None:
    """The only action of a template with nothing but blanks around it."""
    statements = [part for part in body if not (isinstance(part, Text) and part.text.isspace())]
    match statements:
        case [ActionNode() as action]:
            return action
    return None


def _read_json(text: str) -> Any:
    try:
        return decode(text)
    except NotJson:
        return text


def compile_template(text: str, environment: Environment = DEFAULT) -> Template:
    """Compile, or find the template compiled earlier if it is not very long. Raises `SyntaxFault`."""
    if len(text) > _LONGEST_REMEMBERED:
        return Template(text, environment)
    return _compile(text, environment)


_LONGEST_REMEMBERED = 2000  # so that the memory of templates is bounded in bytes, not only in number


@lru_cache(maxsize=1024)
def _compile(text: str, environment: Environment) -> Template:
    return Template(text, environment)
