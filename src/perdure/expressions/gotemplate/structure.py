"""A JSON value with templates in it: objects and lists are walked, strings rendered, other values are unchanged.

`{"$bubuTemplate": text, "$bubuTemplateVars": {…}}` stands for the result of its template (STY-193). Keys are never
templates. Parts without templates are returned by reference, not copied.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from perdure.expressions.errors import EvaluationFault, Failure, LimitExceeded, SyntaxFault
from perdure.expressions.gotemplate.errors import BadStructure, TemplateProblem
from perdure.expressions.gotemplate.frame import Ambient
from perdure.expressions.gotemplate.references import References, all_references
from perdure.expressions.gotemplate.template import DEFAULT, Environment, compile_template, is_template
from perdure.expressions.source import ExpressionProblem
from perdure.kernel.evaluation_trace import current_trace, note_place
from perdure.kernel.json_values import jsontext
from perdure.kernel.turn_budget import begin_compiling, pay, price_of_parts

TEMPLATE_KEY = "$bubuTemplate"
VARIABLES_KEY = "$bubuTemplateVars"
DEEPEST = 128  # STY-080
LARGEST = 1_048_576  # bytes of JSON, STY-035
FEW = 8  # templates in one value, which may contain the same large data as often
LARGEST_RESULT = 32 << 20  # bytes that more templates may return together

_Path = tuple[str | int, ...]


class _Results:
    """What the templates of one value return, counted as often as it is returned: all of it will be written."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = LARGEST_RESULT

    def count(self, value: Any) -> None:
        size = len(value) if type(value) is str else _BYTES_OF_A_PART * jsontext.weigh(value, _MOST_PARTS)
        self._left -= size
        if self._left < 0:
            raise LimitExceeded(f"the results of the templates are larger than {LARGEST_RESULT} bytes together")
        pay(size // _BYTES_PER_WORK)


_BYTES_OF_A_PART = 64  # as `jsontext.weigh` counts long texts
_MOST_PARTS = LARGEST_RESULT // _BYTES_OF_A_PART
_BYTES_PER_WORK = 8
_FOR_A_KNOWN_TEMPLATE = 2  # characters whose compiling takes as long as to find one that was compiled earlier
_Render = Callable[[Mapping[str, Any], Ambient | None, _Results | None], Any]


class Structure:
    """A compiled value. `references` are those of all templates in it."""

    __slots__ = ("_counts_results", "_render", "is_constant", "needs_ambient", "references")

    def __init__(self, value: Any, environment: Environment = DEFAULT) -> None:
        if _is_plain(value):
            self._render: _Render = lambda roots, ambient, results: value
            self._counts_results = False
            self.is_constant = True
            self.needs_ambient = False
            self.references = _NO_REFERENCES
            return
        walker = _Compiler(environment)
        render = walker.compile(value, (), 0)
        if not walker.problems:
            walker.check_size(value)
        if walker.problems:
            raise BadStructure(tuple(walker.problems))
        self._render = render or (lambda roots, ambient, results: value)
        self._counts_results = len(walker.templates) > FEW
        self.is_constant = render is None
        self.needs_ambient = walker.needs_ambient  # a plain path depends on neither time nor chance
        self.references = walker.references

    def render(self, roots: Mapping[str, Any], ambient: Ambient | None = None) -> Any:
        """The value with every template replaced by its result. A `Failure` says at which `place` it happened."""
        return self._render(roots, ambient, _Results() if self._counts_results else None)


_NO_REFERENCES = References()


def _is_plain(value: Any) -> bool:
    """Whether its text alone shows that it contains no template and exceeds no limit, as most values do.

    In JSON two adjacent braces occur only inside a string, and the nesting is never deeper than the number of brackets.
    """
    try:
        text = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):
        return False
    if text.find(b"{{") >= 0 or text.find(b"$bubuTemplate") >= 0 or len(text) > LARGEST:
        return False
    return text.count(b"{") + text.count(b"[") <= DEEPEST


class _Compiler:
    """Compiles a part to a renderer, or to None when there is no template in it. Collects all problems."""

    __slots__ = ("_environment", "needs_ambient", "problems", "templates")

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.problems: list[TemplateProblem] = []
        self.templates: list[References] = []
        self.needs_ambient = False

    @property
    def references(self) -> References:
        return all_references(self.templates)

    def compile(self, value: Any, path: _Path, depth: int) -> _Render | None:
        if depth > DEEPEST:
            self._complain(path, f"a value with templates is at most {DEEPEST} levels deep")
            return None
        if isinstance(value, str):
            return self._text(value, path) if is_template(value) else None
        if isinstance(value, list):
            return self._list(value, path, depth)
        if isinstance(value, dict):
            return self._bound(value, path, depth) if TEMPLATE_KEY in value else self._map(value, path, depth)
        return None

    def _complain(self, path: _Path, message: str, finding: ExpressionProblem | None = None) -> None:
        self.problems.append(TemplateProblem(_spell(path), message, path, finding))

    def check_size(self, value: Any) -> None:
        try:
            size = len(msgspec.json.encode(value))
        except (TypeError, ValueError):
            self._complain((), "this is not a JSON value")
            return
        if size > LARGEST:
            self._complain((), f"a value with templates has at most {LARGEST} bytes of JSON, not {size}")

    def _text(self, text: str, path: _Path) -> _Render | None:
        begin_compiling(_FOR_A_KNOWN_TEMPLATE)
        try:
            template = compile_template(text, self._environment)
        except SyntaxFault as fault:
            for finding in fault.findings:
                self._complain(path, str(finding), finding)
            return None
        self.templates.append(template.references)
        self.needs_ambient = self.needs_ambient or not template.is_path
        place = _spell(path)

        def render(roots: Mapping[str, Any], ambient: Ambient | None, results: _Results | None) -> Any:
            if current_trace.get() is not None:
                note_place(path)
            try:
                value = template.render(roots, ambient)
                if results is not None:
                    results.count(value)
                return value
            except Failure as failure:
                failure.place = failure.place or place
                raise

        return render

    def _list(self, value: list[Any], path: _Path, depth: int) -> _Render | None:
        parts = [self.compile(part, (*path, at), depth + 1) for at, part in enumerate(value)]
        if not any(parts):
            return None
        pairs = tuple(zip(parts, value, strict=True))
        price = price_of_parts(len(pairs))

        def render_list(roots: Mapping[str, Any], ambient: Ambient | None, results: _Results | None) -> Any:
            if price:
                pay(price)
            return [render(roots, ambient, results) if render else part for render, part in pairs]

        return render_list

    def _map(self, value: dict[str, Any], path: _Path, depth: int) -> _Render | None:
        parts = {key: self.compile(part, (*path, key), depth + 1) for key, part in value.items()}
        if not any(parts.values()):
            return None
        entries = tuple((key, parts[key], part) for key, part in value.items())
        price = price_of_parts(len(entries))

        def render_map(roots: Mapping[str, Any], ambient: Ambient | None, results: _Results | None) -> Any:
            if price:
                pay(price)
            return {key: render(roots, ambient, results) if render else part for key, render, part in entries}

        return render_map

    def _bound(self, value: dict[str, Any], path: _Path, depth: int) -> _Render | None:
        text, bindings = value[TEMPLATE_KEY], value.get(VARIABLES_KEY)
        if not isinstance(text, str):
            self._complain(path, f"{TEMPLATE_KEY} must be a string")
            return None
        render_given = self.compile(bindings, (*path, VARIABLES_KEY), depth + 1)
        names = frozenset(bindings) if isinstance(bindings, dict) and TEMPLATE_KEY not in bindings else None
        if bindings is None:
            names = frozenset()
        elif names is None and render_given is None:
            self._complain(path, f"{VARIABLES_KEY} must be an object")
            return None
        inner = _Compiler(self._environment.binding(names))
        render_text = inner._text(text if is_template(text) else f"{{{{ {text} }}}}", path)
        self.problems += inner.problems
        self.templates.append(inner.references.without_roots(names or ()))
        self.needs_ambient = self.needs_ambient or inner.needs_ambient
        if render_text is None:
            return None

        def render(roots: Mapping[str, Any], ambient: Ambient | None, results: _Results | None) -> Any:
            variables = render_given(roots, ambient, results) if render_given else bindings
            if variables is not None and not isinstance(variables, dict):
                raise _placed(EvaluationFault(f"{VARIABLES_KEY} must be an object"), path)
            return render_text({**roots, **variables} if variables else roots, ambient, results)

        return render


def _placed(fault: EvaluationFault, path: _Path) -> EvaluationFault:
    fault.place = _spell(path)
    return fault


def _spell(path: _Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
