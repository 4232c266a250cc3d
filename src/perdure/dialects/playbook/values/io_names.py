"""Profile "io" at run time: what a bare name means, and the scopes `output`, `step` and `job` (PBK-158).

A bare name is looked for in the task's args, the iterator, `iter`, `args`, `ctx`, the results of earlier tasks of the
pipeline by their labels and of steps by their names, and `workload`, in this order; the first that has it wins. In an
entry of the keychain there is only `workload`. Where a result has no member `data`, that is the result itself; of a
result that is kept by reference, the values that its reference has are members, and `_ref`, `_store`, `_preview`. A
task that reads other members of it reads its body; guards and routing do not (PBK-174).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perdure.dialects.playbook.plan.program import SCOPES
from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.values import Reader
from perdure.expressions.jinja import Template, TemplateError

Layer = Callable[[frozenset[str]], Mapping[str, Any]]
"""Returns the values of those of the names that it has, and possibly others."""


def look_up(layers: Sequence[Layer], names: frozenset[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for layer in layers:
        missing = names - SCOPES - values.keys()
        if not missing:
            break
        layer_values = layer(missing)
        values |= {name: layer_values[name] for name in missing if name in layer_values}
    return values


def results_by_step(body: b.Body, text: Reader, event: b.Boundary | None = None) -> Layer:
    """The latest result of each step; for a step that is just ending, the one in its boundary event."""

    def layer(names: frozenset[str]) -> Mapping[str, Any]:
        results = {name: tally.result for name, tally in body.tallies.items() if tally.finished and name in names}
        if event is not None and event.step in names and event.run in body.runs:
            results[event.step] = event.result
        return {name: result.read(text) for name, result in results.items()}

    return layer


class _Result(dict[str, Any]):
    """A map whose member `data` is itself, as it has no other."""

    def __contains__(self, name: object) -> bool:
        return name == "data" or super().__contains__(name)

    def __missing__(self, name: str) -> Any:
        if name == "data":
            return self
        raise KeyError(name)


class BareReads(frozenset[str]):
    """Bare names that a template reads, and which members of each; none: all of it."""

    members: Mapping[str, frozenset[str] | None]

    def __new__(cls, names: frozenset[str], members: Mapping[str, frozenset[str] | None]) -> "BareReads":
        reads = super().__new__(cls, names)
        reads.members = members
        return reads


def members_of(names: frozenset[str]) -> Mapping[str, frozenset[str] | None]:
    return names.members if isinstance(names, BareReads) else {}


Resolve = Callable[[dict[str, Any]], Any]


def as_results(layer: Layer, members: Mapping[str, frozenset[str] | None], resolve: Resolve | None) -> Layer:
    """Results that are read by the names of their steps or tasks."""
    return lambda names: {name: _as_result(result, members.get(name), resolve) for name, result in layer(names).items()}


def _as_result(result: Any, members: frozenset[str] | None, resolve: Resolve | None) -> Any:
    """Of a result kept by reference, what its reference has; for a task that reads other members of it, its body."""
    if not isinstance(result, dict):
        return result
    if _is_reference(result):
        names = {f"_{name}": result[name] for name in ("ref", "store", "preview") if name in result}
        known = {**(result.get("extracted") or {}), **names, **result}
        if resolve is not None and members is not None and not members <= known.keys():
            body = resolve(result)
            known = {**known, **body} if isinstance(body, dict) else known
        result = known
    return result if "data" in result else _Result(result)


def _is_reference(result: dict[str, Any]) -> bool:
    return result.get("kind") in ("result_ref", "manifest")


def task_args(args: Template | None, scope: Callable[[Template], Mapping[str, Any]]) -> Layer:
    """The rendered args of the task; none if they cannot be rendered."""

    def layer(names: frozenset[str]) -> Mapping[str, Any]:
        if args is None or not isinstance(args.document, dict) or not names & args.document.keys():
            return {}
        try:
            values = args.render(scope(args))
        except TemplateError:
            return {}
        assert isinstance(values, dict)
        return values

    return layer


def output(status: str, result: Any, error: Any, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The outcome under the names of this profile."""
    is_reference = isinstance(result, dict) and _is_reference(result)
    return {**(more or {}), "status": status, "data": result, "error": error, "ref": result if is_reference else None}
