"""The templates of a topology: `if`, `runtime` and routing rules, evaluated for every packet (STR-012, 048, 052)."""

from collections.abc import Mapping
from datetime import UTC, datetime
from random import random
from typing import Any

from msgspec.structs import replace

from perdure.dialects.story.run.step_end import error_text
from perdure.dialects.story.values.template_roots import STREAMING_RUNTIME, STREAMING_STATIC
from perdure.expressions.gotemplate import (
    Ambient,
    Environment,
    ExpressionError,
    Structure,
    Template,
    compile_template,
    holds,
    is_template,
)
from perdure.services.story.engrams.failure import EngramError
from perdure.services.story.engrams.hydration import fill_stored_values
from perdure.streams.views import GateProblem

LARGEST_RESULT = 65_536  # bytes of text that a template may write for one packet (STR-052)

_RUNTIME = replace(STREAMING_RUNTIME, limits=replace(STREAMING_RUNTIME.limits, output=LARGEST_RESULT))


class TopologyTemplates:
    """Compiled once, when the topology starts; evaluated for every packet."""

    def __init__(
        self, texts: Mapping[str, Any], inputs: dict[str, Any], families: frozenset[str] | None = None
    ) -> None:
        """`families` are those whose stored values templates may read; None: they may read none (STR-053)."""
        self._families = families
        self._inputs = inputs if families is None else fill_stored_values(inputs, families)
        self._conditions = {step: _condition(parts["if"]) for step, parts in texts.items() if parts["if"].strip()}
        self._rules = {step: [_condition(text) for text in parts["when"]] for step, parts in texts.items()}
        self._runtimes = {
            step: Structure(parts["runtime"], _RUNTIME) for step, parts in texts.items() if parts["runtime"] is not None
        }

    def holds(self, step: str, roots: dict[str, Any]) -> bool:
        return self._holds(self._conditions[step], roots)

    def matches(self, step: str, rule: int, roots: dict[str, Any]) -> bool:
        return self._holds(self._rules[step][rule], roots)

    def render(self, step: str, roots: dict[str, Any]) -> Any:
        try:
            return self._runtimes[step].render({**roots, "inputs": self._inputs}, _ambient())
        except ExpressionError as error:
            raise GateProblem(error_text(error)) from None

    def with_stored_values(self, roots: dict[str, Any]) -> dict[str, Any]:
        if self._families is None:
            return roots
        try:
            filled: dict[str, Any] = fill_stored_values(roots, self._families)
        except EngramError as error:
            raise GateProblem(f"offloaded data cannot be read: {error}") from None
        return filled

    def _holds(self, condition: "Template | str", roots: dict[str, Any]) -> bool:
        try:
            if isinstance(condition, str):
                return holds(condition)
            return holds(condition.render({**roots, "inputs": self._inputs}, _ambient()))
        except ExpressionError as error:
            raise GateProblem(error_text(error)) from None


def render_static(value: Any, inputs: dict[str, Any], environment: Environment = STREAMING_STATIC) -> Any:
    try:
        return Structure(value, environment).render({"inputs": inputs}, _ambient())
    except ExpressionError as error:
        raise GateProblem(error_text(error)) from None


def _condition(text: str) -> Template | str:
    return compile_template(text, _RUNTIME) if is_template(text) else text


def _ambient() -> Ambient:
    return Ambient(datetime.now(UTC), random)
