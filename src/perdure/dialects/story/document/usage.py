"""The Engram a step uses: may it be named, is it there, does its input fit? (STY-041, STY-042)"""

from typing import Any

import msgspec

from perdure.dialects.story.document.context import CheckContext
from perdure.dialects.story.document.cursor import ENGRAM_REFERENCE, INVALID, NO_TEMPLATE, NOT_FOUND, Cursor
from perdure.dialects.story.document.engrams import check_fit
from perdure.dialects.story.document.secrets import refuse_computed
from perdure.dialects.story.plan.engram_code import WAYS, place_of, provider_for
from perdure.dialects.story.plan.inline_stories import MAP_TEMPLATE
from perdure.dialects.story.resources.resource import Reference, Resource, merged, read_reference, spec_of, version_of

REFUSED = "PolicyRefused"


def check_step(cursor: Cursor, name: str, namespace: str, is_streaming: bool, around: CheckContext) -> None:
    at = cursor.at("ref")
    if at.value is None:
        return
    target = read_reference(at.value, namespace)
    if target is None:
        if isinstance(at.value, str | dict):
            at.problem(INVALID, f"step '{name}' requires 'ref.name' to be set")
        return
    if not around.may_name(at, "Story", namespace, "Engram", target, ENGRAM_REFERENCE):
        return
    use = _use(target, around)
    if use is None:
        at.warn(NOT_FOUND, f"step '{name}': there is no Engram '{target.key}' yet: the step will wait for it")
        return
    if use.misfit is not None:
        at.warn(ENGRAM_REFERENCE, f"step '{name}': {use.misfit}: the step will fail")
    if not is_streaming and use.mode != "job":
        message = f"Engram '{target.key}' runs as {use.mode}, which only a streaming Story can use: the step will fail"
        at.warn("InvalidConfiguration", f"step '{name}': {message}")
    if use.template is None:
        message = f"step '{name}': EngramTemplate '{use.template_name}' of Engram '{target.key}' not found"
        at.problem(ENGRAM_REFERENCE, message)
        return
    provider = provider_for(use.template, use.template["metadata"]["name"], version_of(use.template))
    refusal = around.known.refusal(provider, namespace)
    if refusal is not None:
        at.problem(REFUSED, f"step '{name}': {refusal}", hint="An operator can allow it; see docs/security.md.")
    refuse_computed(cursor.at("with"), f"step '{name}': ")
    if use.lacks_code:
        called = use.template["metadata"]["name"]
        message = f"step '{name}': nothing here implements the template '{called}': the step will wait"
        at.warn(NO_TEMPLATE, message, hint=WAYS)
    _input(cursor, name, use.engram, use.template)


def maps(ref: Any, namespace: str, around: CheckContext) -> bool:
    """Whether a step's Engram runs Stories over items."""
    target = read_reference(ref, namespace)
    use = None if target is None else _use(target, around)
    return use is not None and use.template_name == MAP_TEMPLATE


class EngramUse(msgspec.Struct, frozen=True):
    """An Engram that is there, as one reference leads to it: the same for all steps that have it."""

    engram: Resource
    misfit: str | None
    mode: Any
    template_name: str
    template: Resource | None
    lacks_code: bool  # STY-009: nothing to run is no error, the step waits


def _use(target: Reference, around: CheckContext) -> EngramUse | None:
    if target not in around.uses:
        engram = around.find("Engram", target)
        around.uses[target] = None if engram is None else _found(target, engram, around)
    found: EngramUse | None = around.uses[target]
    return found


def _found(target: Reference, engram: Resource, around: CheckContext) -> EngramUse:
    wanted = read_reference(spec_of(engram).get("templateRef"), "")
    template = None if wanted is None else around.find("EngramTemplate", wanted)
    return EngramUse(
        engram,
        target.misfit("Engram", engram),
        spec_of(engram).get("mode") or "job",
        "" if wanted is None else wanted.name,
        template,
        template is not None
        and place_of(template) is None
        and around.known.implements(template["metadata"]["name"], version_of(template)) is False,
    )


def _input(cursor: Cursor, name: str, engram: Resource, template: Resource) -> None:
    schema = spec_of(template).get("inputSchema")
    if schema is None:
        return
    given, runtime = cursor.at("with").value or {}, cursor.at("runtime").value or {}
    base = spec_of(engram).get("with") or {}
    if not all(isinstance(one, dict) for one in (given, runtime, base)):
        return
    whole = {**merged(base, given), **runtime}
    check_fit(cursor.at("with"), whole, schema, "input", before=f"step '{name}': ")
