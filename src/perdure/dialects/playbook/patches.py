"""Assignments to `ctx` and `iter`: rendered together against the state before them, then applied (PBK-083, 152)."""

from collections.abc import Mapping
from typing import Any

from perdure.dialects.playbook import body as b
from perdure.dialects.playbook.errors import Error, error, said
from perdure.dialects.playbook.values import BadKey, Patch, Variables
from perdure.expressions.jinja import Template, TemplateError
from perdure.kernel import jsontext

LARGEST_VALUE = 64 * 1024
LARGEST_CTX = 1024 * 1024


class BadPatch(Exception):
    """The patch cannot be applied; nothing of it is."""

    def __init__(self, problem: Error) -> None:
        super().__init__(problem.message)
        self.problem = problem


def render(assignments: Mapping[str, Template], scope: Mapping[str, Any], what: str) -> Patch:
    patch: list[tuple[str, bytes]] = []
    for key, template in assignments.items():
        try:
            text = jsontext.encode(template.render(scope))
        except TemplateError as fault:
            raise BadPatch(error("template", f"{what}.{key}: {said(fault)}")) from None
        except jsontext.NotJson as problem:
            raise BadPatch(error("serialization", f"{what}.{key}: {problem}")) from None
        patch.append((key, text))
    check_values(patch, what)
    return tuple(patch)


def check_values(patch: "list[tuple[str, bytes]] | Patch", what: str) -> None:
    for key, text in patch:
        if len(text) > LARGEST_VALUE:
            message = f"{what}.{key} has {len(text)} bytes, {LARGEST_VALUE} are allowed; pass a reference instead"
            raise BadPatch(error("limit", message, "CTX_VALUE_TOO_LARGE"))


def measure(body: b.Body, patch: Patch) -> int:
    """The size of `ctx` after the patch, never too low; raises `BadPatch` when it cannot be applied."""
    size = body.ctx_size + sum(len(key) + len(text) + 4 for key, text in patch)
    if size > LARGEST_CTX or any("." in key for key, _ in patch):
        after = overlay(body.ctx, patch, "ctx")
        if size > LARGEST_CTX:
            size = len(jsontext.encode(after))
    if size > LARGEST_CTX:
        message = f"ctx would have {size} bytes, {LARGEST_CTX} are allowed; pass references instead"
        raise BadPatch(error("limit", message, "CTX_TOO_LARGE"))
    return size


def overlay(variables: Variables, patch: Patch, what: str) -> dict[str, Any]:
    try:
        return variables.overlaid(patch)
    except BadKey as problem:
        raise BadPatch(error("template", f"{what}: {problem}")) from None


def conflicts(body: b.Body, run: int, patch: Patch) -> tuple[str, ...]:
    """Keys that another step-run has set to something else since this one began (PBK-154)."""
    began = body.runs[run].seq
    found = []
    for key, text in patch:
        name = key.partition(".")[0]
        writer, seq = body.writers.get(name, (run, 0))
        if writer != run and seq > began and name in body.ctx.data and _differs(body.ctx.data, key, text):
            found.append(key)
    return tuple(found)


def _differs(data: Any, key: str, text: bytes) -> bool:
    for name in key.split("."):
        if not isinstance(data, dict) or name not in data:
            return False
        data = data[name]
    return jsontext.canonical(data) != jsontext.canonical(jsontext.decode(text))
