"""Outputs that are too large to stay inline, as templates see them (STY-207, STY-208, STY-219).

Large values are stored once beside the run's log, whatever a Story says. Under the policy `controller` templates
read them as if they were small. Otherwise they see references in place of large values: a plain path gives a
reference into the value, which is resolved before a worker sees it. A template that needs the value itself fails
under `error`, and is evaluated by a helper step under `inject` (`materialize`).
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
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Payload
from perdure.kernel.turn import Turn

PATH = "$bubuStoragePath"


def visible_output(turn: Turn, step: Step, output: Payload) -> Any:
    """A step's output with references in place of parts that exceed its Engram's inline limit (STY-221)."""
    lookup = find_engram(turn, step) if step.data.get("ref") is not None else None
    engram = lookup if isinstance(lookup, ResolvedEngram) else None
    execution = ExecutionPolicy(turn.program, step, {}, {}) if engram is None else engram.execution
    size = len(output) if isinstance(output, bytes) else output.size
    value = jsontext.decode(turn.text(output))
    return offloaded(value, size, execution.inline_limit(), address_of(turn.body, step.name))


def address_of(body: Body, step: str, *, in_input: bool = False) -> StorageAddress:
    return StorageAddress(f"{body.namespace}/{body.name}", step, in_input)


class BrokenReference(ValueError):
    """A storage reference that does not lead to a value of this run."""


class MissingStoredValue(BrokenReference):
    """A path into a value that leads to nothing."""

    def __init__(self, path: str, reference: str = "") -> None:
        location = f" of the offloaded value {reference!r}" if reference else ""
        super().__init__(f"missing key at {path}{location}")
        self.path = path


def hydrated(turn: Turn, value: Any, *, follows: bool = False, is_last: bool = False) -> Any:
    """The value with storage references replaced by their values; unknown references are left in place.

    With `follows`, raises `MissingStoredValue` if a path leads to nothing; with `is_last`, raises `BrokenReference`
    unless the reference may belong to a file in storage that only workers can read.
    """
    if isinstance(value, dict):
        if isinstance(value.get(STORAGE), str):
            try:
                return at_path(body_at(turn.body, value[STORAGE], turn.text), value.get(PATH) or "")
            except MissingStoredValue as missing:
                if follows or is_last:
                    raise MissingStoredValue(missing.path, value[STORAGE]) from None
            except BrokenReference:
                if is_last and not is_of_workers(value[STORAGE]):
                    raise
            return value
        return {name: hydrated(turn, inner, follows=follows, is_last=is_last) for name, inner in value.items()}
    if isinstance(value, list):
        return [hydrated(turn, inner, follows=follows, is_last=is_last) for inner in value]
    return value


def body_at(body: Body, reference: str, text: Callable[[Payload], bytes]) -> Any:
    """The value at an address of this run. Raises `BrokenReference`."""
    address = StorageAddress.read(reference)
    state = body.steps.get(address.step) if address is not None else None
    if address is None or state is None or address.run != f"{body.namespace}/{body.name}":
        raise BrokenReference(f"the storage reference {reference!r} does not lead to a step of this run")
    payload = (state.run.arguments if state.run is not None else None) if address.in_input else state.output
    if payload is None:
        raise BrokenReference(f"the storage reference {reference!r} does not lead to a value of step {address.step!r}")
    value = jsontext.decode(text(payload))
    return at_path(value["inputs"] if address.in_input else value, address.path)


def at_path(value: Any, path: str) -> Any:
    """The value at a path such as `a.b[0]` or `items[*].id`. Raises `MissingStoredValue`."""
    try:
        return follow(value, path)
    except PathNotFound as missing:
        raise MissingStoredValue(missing.path) from None
