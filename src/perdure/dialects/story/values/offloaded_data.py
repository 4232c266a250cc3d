"""Outputs that are too large to stay inline, as templates meet them (STY-207, STY-208, STY-219).

Large values live once beside the run's log, whatever a Story says. Under the policy `controller` templates read them
as if they were small. Otherwise they see references, in place of what is too large: a plain path gives a reference into
the value, which is filled in before a worker sees it. Whatever looks inside fails under `error`, and is evaluated by a
helper step under `inject` (`materializing`).
"""

from collections.abc import Callable
from typing import Any

from perdure.dialects.story.plan.execution_policy import ExecutionPolicy
from perdure.dialects.story.plan.program import Step
from perdure.dialects.story.run.engram_lookup import ResolvedEngram, find_engram
from perdure.dialects.story.state.body import Body
from perdure.dialects.story.values.references import STORAGE
from perdure.dialects.story.values.storage_addresses import StorageAddress, is_of_workers, offloaded
from perdure.expressions.subpaths import PathNotFound, follow
from perdure.kernel import jsontext
from perdure.kernel.turn import Turn
from perdure.kernel.values import Payload

PATH = "$bubuStoragePath"


def seen(turn: Turn, step: Step, output: Payload) -> Any:
    """A step's output with references in place of what its Engram does not let stay inline (STY-221)."""
    found = find_engram(turn, step) if step.data.get("ref") is not None else None
    known = found if isinstance(found, ResolvedEngram) else None
    execution = ExecutionPolicy(turn.program, step, {}, {}) if known is None else known.execution
    size = len(output) if isinstance(output, bytes) else output.size
    value = jsontext.decode(turn.text(output))
    return offloaded(value, size, execution.inline_limit(), address_of(turn.body, step.name))


def address_of(body: Body, step: str, *, in_input: bool = False) -> StorageAddress:
    return StorageAddress(f"{body.namespace}/{body.name}", step, in_input)


class BrokenReference(ValueError):
    """A storage reference to nothing that this run has."""


class MissingStoredValue(BrokenReference):
    """A path into a value that has nothing at its end."""

    def __init__(self, path: str, whole: str = "") -> None:
        where = f" of the offloaded value {whole!r}" if whole else ""
        super().__init__(f"missing key at {path}{where}")
        self.path = path


def hydrated(turn: Turn, value: Any, *, follows: bool = False, is_last: bool = False) -> Any:
    """The value with storage references replaced by what they refer to; others are left for whoever comes later.

    With `follows`, raises `MissingStoredValue` if a path leads to nothing; with `is_last` `BrokenReference`,
    unless the reference may lead to what an Engram has put into storage, which only workers see.
    """
    if isinstance(value, dict):
        if isinstance(value.get(STORAGE), str):
            try:
                return at_path(body_at(turn.body, value[STORAGE], turn.text), value.get(PATH) or "")
            except MissingStoredValue as nothing:
                if follows or is_last:
                    raise MissingStoredValue(nothing.path, value[STORAGE]) from None
            except BrokenReference:
                if is_last and not is_of_workers(value[STORAGE]):
                    raise
            return value
        return {name: hydrated(turn, inner, follows=follows, is_last=is_last) for name, inner in value.items()}
    if isinstance(value, list):
        return [hydrated(turn, inner, follows=follows, is_last=is_last) for inner in value]
    return value


def body_at(body: Body, reference: str, text: Callable[[Payload], bytes]) -> Any:
    """What stands at an address of this run. Raises `BrokenReference`."""
    found = StorageAddress.read(reference)
    state = body.steps.get(found.step) if found is not None else None
    if found is None or state is None or found.run != f"{body.namespace}/{body.name}":
        raise BrokenReference(f"the storage reference {reference!r} leads to no step of this run")
    held = (state.run.arguments if state.run is not None else None) if found.in_input else state.output
    if held is None:
        raise BrokenReference(f"the storage reference {reference!r} leads to nothing that step {found.step!r} has")
    whole = jsontext.decode(text(held))
    return at_path(whole["inputs"] if found.in_input else whole, found.path)


def at_path(value: Any, path: str) -> Any:
    """What stands at `a.b[0]` or `items[*].id`. Raises `MissingStoredValue`."""
    try:
        return follow(value, path)
    except PathNotFound as nothing:
        raise MissingStoredValue(nothing.path) from None
