"""Assignments to `ctx` and `iter`: rendered together against the state before them, then applied (PBK-083, 152)."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.task_errors import Error, error, template_message
from perdure.dialects.playbook.state.values import BadKey, Patch, Variables
from perdure.expressions.jinja import Template, TemplateError
from perdure.kernel.evaluation_trace import note_site
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.growth import joined
from perdure.kernel.turn import Turn
from perdure.kernel.turn_budget import pay_for_each

LARGEST_VALUE = 64 * 1024
LARGEST_CTX = 1024 * 1024
LARGEST_PATCH = 16 * LARGEST_CTX
_WORK_OF_AN_ASSIGNMENT = 150


class BadPatch(Exception):
    """The patch cannot be applied, not even in part."""

    def __init__(self, problem: Error) -> None:
        super().__init__(problem.message)
        self.problem = problem


class GrownPatch(NamedTuple):
    """The old value of a key of `ctx`, the text of its new value, and the text of the addition."""

    held: Any
    whole: bytes
    added: bytes


Growths = dict[str, GrownPatch]


def render(
    assignments: Mapping[str, Template], scope: Mapping[str, Any], scope_name: str, growths: Growths | None = None
) -> Patch:
    """The values of all assignments. For a key that grows, only the addition is evaluated and listed in `growths`."""
    patch: list[tuple[str, bytes]] = []
    size = 0
    pay_for_each(len(assignments), _WORK_OF_AN_ASSIGNMENT)
    for key, template in assignments.items():
        note_site(f"{scope_name}.{key}")
        if growths is not None and template.grows == ("ctx", key) and (grown := _grown(template, scope, key)):
            growths[key] = grown
            patch.append((key, grown.whole))
            continue
        try:
            text = jsontext.encode(template.render(scope))
        except TemplateError as fault:
            raise BadPatch(error("template", f"{scope_name}.{key}: {template_message(fault)}")) from None
        except jsontext.NotJson as problem:
            raise BadPatch(error("serialization", f"{scope_name}.{key}: {problem}")) from None
        patch.append((key, text))
        size += len(text)
        if size > LARGEST_PATCH:
            check_values(patch, scope_name)
            message = f"{scope_name} would get {size} bytes or more, of {LARGEST_PATCH}; pass references instead"
            raise BadPatch(error("limit", message, "CTX_TOO_LARGE"))
    check_values(patch, scope_name)
    return tuple(patch)


def _grown(template: Template, scope: Mapping[str, Any], key: str) -> GrownPatch | None:
    """None if the whole value must be evaluated: it is short, or evaluating it will report an error."""
    current = scope["ctx"].get(key)
    if not isinstance(current, list | str):
        return None
    text = jsontext.encode_finite(current)
    if len(text) < WORTH_GROWING:
        return None
    try:
        addition = template.added(scope)
        if type(addition) is not type(current):
            return None
        added = jsontext.encode(addition)
    except (TemplateError, jsontext.NotJson):
        return None
    return GrownPatch(current, joined([text, added]), added)


def check_values(patch: "list[tuple[str, bytes]] | Patch", scope_name: str) -> None:
    for key, text in patch:
        if len(text) > LARGEST_VALUE:
            message = f"{scope_name}.{key} has {len(text)} bytes, {LARGEST_VALUE} are allowed; pass a reference instead"
            raise BadPatch(error("limit", message, "CTX_VALUE_TOO_LARGE"))


GROWTH_SINCE = 3
"""The record version that introduced `CtxGrows`."""

WORTH_GROWING = 200
"""Size in bytes from which only additions to a value are recorded, rather than the whole value."""


def growing_keys(assignments: Mapping[str, Template]) -> frozenset[str]:
    """Keys that are assigned their own value with something appended."""
    return frozenset(key for key, template in assignments.items() if template.grows == ("ctx", key))


def shortened(
    turn: Turn, patch: Patch, growing: Collection[str], growths: Growths | None = None
) -> tuple[Patch, tuple[str, ...]]:
    """The patch as it is recorded, and the keys for which it holds only the addition."""
    if not growing or turn.record_version < GROWTH_SINCE:
        return patch, ()
    once = Counter(key for key, _ in patch)
    short: list[tuple[str, bytes]] = []
    grown: list[str] = []
    for key, text in patch:
        added = None
        if key in growing and once[key] == 1:
            current, growth = turn.body.ctx.data.get(key), (growths or {}).get(key)
            is_known = growth is not None and growth.held is current and growth.whole is text
            added = growth.added if growth is not None and is_known else _added(current, text)
        short.append((key, text if added is None else added))
        if added is not None:
            grown.append(key)
    return tuple(short), tuple(grown)


def _added(current: Any, text: bytes) -> bytes | None:
    if not isinstance(current, list | str) or len(text) < WORTH_GROWING:
        return None
    value = jsontext.decode(text)
    if type(value) is not type(current) or len(value) <= len(current):
        return None
    return jsontext.encode_finite(value[len(current) :])


def measure(body: b.Body, patch: Patch, recorded: Patch | None = None) -> int:
    """The size of `ctx` after the patch, never too low; raises `BadPatch` when it cannot be applied."""
    size = body.ctx_size + sum(len(key) + len(text) + 4 for key, text in (patch if recorded is None else recorded))
    if size > LARGEST_CTX or any("." in key for key, _ in patch):
        after = overlay(body.ctx, patch, "ctx")
        if size > LARGEST_CTX:
            size = len(jsontext.encode(after))
    if size > LARGEST_CTX:
        message = f"ctx would have {size} bytes, {LARGEST_CTX} are allowed; pass references instead"
        raise BadPatch(error("limit", message, "CTX_TOO_LARGE"))
    return size


def overlay(variables: Variables, patch: Patch, scope_name: str) -> dict[str, Any]:
    try:
        return variables.overlaid(patch)
    except BadKey as problem:
        raise BadPatch(error("template", f"{scope_name}: {problem}")) from None


def conflicts(body: b.Body, run: int, patch: Patch) -> tuple[str, ...]:
    """Keys that another step-run has set to something else since this one began (PBK-154)."""
    began = body.runs[run].seq
    conflicting = []
    for key, text in patch:
        name = key.partition(".")[0]
        writer, seq = body.writers.get(name, (run, 0))
        if writer != run and seq > began and name in body.ctx.data and _differs(body.ctx.data, key, text):
            conflicting.append(key)
    return tuple(conflicting)


def _differs(data: Any, key: str, text: bytes) -> bool:
    for name in key.split("."):
        if not isinstance(data, dict) or name not in data:
            return False
        data = data[name]
    return jsontext.canonical(data) != jsontext.canonical(jsontext.decode(text))
