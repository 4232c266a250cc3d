"""Outputs that are too large to stay inline, as templates meet them (STY-207, STY-208, STY-219).

Large values live once beside the run's log, whatever a Story says. Under the policy `controller` templates read them
as if they were small. Under `error` they see a reference: a plain path gives a reference into the value, which is
filled in before anybody else sees it, and whatever looks inside fails.
"""

import re
from collections.abc import Callable
from typing import Any

from perdure.dialects.story.body import Body
from perdure.dialects.story.payloads import STORAGE
from perdure.dialects.story.policies import Execution
from perdure.dialects.story.program import Program, Step, part
from perdure.dialects.story.references import Engram, find_engram
from perdure.dialects.story.storing import Address
from perdure.kernel import jsontext
from perdure.kernel.turn import Turn
from perdure.kernel.values import Payload

PATH = "$bubuStoragePath"
FORCED = "bubustack.io/controller-resolve"

_PART = re.compile(r"[^.\[\]]+|\[(?:\d+|\*)\]")


def reads_in_process(program: Program) -> bool:
    notes = part(program.story, "metadata", "annotations")
    return program.settings.offloaded_data == "controller" or str(notes.get(FORCED)).lower() == "true"


def refusal(program: Program) -> str | None:
    """A policy that is not offered here."""
    if program.settings.offloaded_data != "inject" or reads_in_process(program):
        return None
    return (
        "templating.offloaded-data-policy 'inject' is not offered: no materialize step is needed where templates can "
        "read large values in process; use 'controller' or 'error'"
    )


def is_offloaded(turn: Turn, step: Step, output: Payload) -> bool:
    """Whether this step's output is larger than its Engram lets stay inline (STY-221)."""
    found = find_engram(turn, step) if step.data.get("ref") is not None else None
    known = found if isinstance(found, Engram) else None
    execution = Execution(turn.program, step, known.engram if known else {}, known.template if known else {})
    size = len(output) if isinstance(output, bytes) else output.size
    return size > execution.inline_limit()


def address_of(body: Body, step: str, *, in_input: bool = False) -> Address:
    return Address(f"{body.namespace}/{body.name}", step, in_input)


def reference_to(body: Body, step: str) -> dict[str, str]:
    return {STORAGE: str(address_of(body, step))}


class LeadsNowhere(ValueError):
    """A storage reference to nothing that this run has."""


def hydrated(turn: Turn, value: Any, *, is_last: bool = False) -> Any:
    """The value with storage references replaced by what they refer to.

    One that leads nowhere is left for whoever comes later; the last to look raises `LeadsNowhere`.
    """
    if isinstance(value, dict):
        if isinstance(value.get(STORAGE), str):
            try:
                return at_path(body_at(turn.body, value[STORAGE], turn.text), value.get(PATH) or "")
            except LeadsNowhere:
                if is_last:
                    raise
                return value
        return {name: hydrated(turn, inner, is_last=is_last) for name, inner in value.items()}
    return [hydrated(turn, inner, is_last=is_last) for inner in value] if isinstance(value, list) else value


def body_at(body: Body, reference: str, text: Callable[[Payload], bytes]) -> Any:
    """What stands at an address of this run. Raises `LeadsNowhere`."""
    found = Address.read(reference)
    state = body.steps.get(found.step) if found is not None else None
    if found is None or state is None or found.run != f"{body.namespace}/{body.name}":
        raise LeadsNowhere(f"the storage reference {reference!r} leads to no step of this run")
    held = (state.run.arguments if state.run is not None else None) if found.in_input else state.output
    if held is None:
        raise LeadsNowhere(f"the storage reference {reference!r} leads to nothing that step {found.step!r} has")
    whole = jsontext.decode(text(held))
    return at_path(whole["inputs"] if found.in_input else whole, found.path)


def at_path(value: Any, path: str) -> Any:
    """What stands at `a.b[0]` or `items[*].id`; None where there is nothing."""
    steps = _PART.findall(path)
    for at, step in enumerate(steps):
        if step == "[*]":
            rest = "".join(one if one.startswith("[") else f".{one}" for one in steps[at + 1 :]).lstrip(".")
            return [at_path(one, rest) for one in value] if isinstance(value, list) else None
        if step.startswith("["):
            number = int(step[1:-1])
            value = value[number] if isinstance(value, list) and number < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value
