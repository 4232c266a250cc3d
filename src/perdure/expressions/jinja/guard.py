"""A condition of a rule or an arc: a boolean, or a template whose answer counts as one (PBK-029, PBK-147, PBK-149)."""

from collections.abc import Mapping
from typing import Any

from perdure.expressions.jinja.budget import DEFAULT_LIMITS, Limits
from perdure.expressions.jinja.errors import SyntaxFault
from perdure.expressions.jinja.program import Program, compile_condition
from perdure.expressions.jinja.reads import NOTHING, Reads
from perdure.expressions.jinja.truth import is_true


class Guard:
    """`Guard("{{ ctx.ready }}")`, `Guard(True)`. Raises `TemplateError` when the text cannot be a condition."""

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
    def reads(self) -> Reads:
        return NOTHING if self._program is None else self._program.reads

    def holds(self, roots: Mapping[str, Any]) -> bool:
        """Whether the condition is true. Raises `TemplateError` when it has no answer."""
        return self._answer if self._program is None else is_true(self._program.evaluate(roots))
