"""The Engram that a step uses: whether it may be named, exists, and accepts the step's input (STY-041, STY-042)."""

from typing import Any

import msgspec

from perdure.dialects.story.document.context import CheckContext
from perdure.dialects.story.document.cursor import ENGRAM_REFERENCE, INVALID, NO_TEMPLATE, NOT_FOUND, REFUSED, Cursor
from perdure.dialects.story.document.engrams import check_fit
from perdure.dialects.story.document.secrets import refuse_computed
from perdure.dialects.story.plan.engram_code import WAYS, place_of, provider_for
from perdure.dialects.story.plan.inline_stories import MAP_TEMPLATE
from perdure.dialects.story.resources.resource import Reference, Resource, merged, read_reference, spec_of, version_of


def check_step(cursor: Cursor, name: str, namespace: str, is_streaming: bool, context: CheckContext) -> None:
    reference = cursor.at("ref")
    if reference.value is None:
        return
    target = read_reference(reference.value, namespace)
    if target is None:
        if isinstance(reference.value, str | dict):
            reference.problem(INVALID, f"step '{name}' requires 'ref.name' to be set")
        return
    if not context.may_name(reference, "Story", namespace, "Engram", target, ENGRAM_REFERENCE):
        return
    use = _use(target, context)
    if use is None:
        reference.warn(NOT_FOUND, f"step '{name}': there is no Engram '{target.key}' yet: the step will wait for it")
        return
    if use.misfit is not None:
        reference.warn(ENGRAM_REFERENCE, f"step '{name}': {use.misfit}: the step will fail")
    if not is_streaming and use.mode != "job":
        message = f"Engram '{target.key}' runs as {use.mode}, which only a streaming Story can use: the step will fail"
        reference.warn("InvalidConfiguration", f"step '{name}': {message}")
    if use.template is None:
        message = f"step '{name}': EngramTemplate '{use.template_name}' of Engram '{target.key}' not found"
        reference.problem(ENGRAM_REFERENCE, message)
        return
    provider = provider_for(use.template, use.template["metadata"]["name"], version_of(use.template))
    refusal = context.known.refusal(provider, namespace)
    if refusal is not None:
        reference.problem(REFUSED, f"step '{name}': {refusal}", hint="An operator can allow it; see docs/security.md.")
    refuse_computed(cursor.at("with"), f"step '{name}': ")
    if use.lacks_code:
        template_name = use.template["metadata"]["name"]
        message = f"step '{name}': no loaded code implements the template '{template_name}': the step will wait"
        reference.warn(NO_TEMPLATE, message, hint=WAYS)
    _input(cursor, name, use.engram, use.template)


def maps(ref: Any, namespace: str, context: CheckContext) -> bool:
    """Whether a step's Engram runs Stories over items."""
    target = read_reference(ref, namespace)
    use = None if target is None else _use(target, context)
    return use is not None and use.template_name == MAP_TEMPLATE


class EngramUse(msgspec.Struct, frozen=True):
    """An existing Engram as a reference leads to it; shared by all steps with that reference."""

    engram: Resource
    misfit: str | None
    mode: Any
    template_name: str
    template: Resource | None
    lacks_code: bool  # STY-009: not an error, the step waits for code


def _use(target: Reference, context: CheckContext) -> EngramUse | None:
    if target not in context.uses:
        engram = context.find("Engram", target)
        context.uses[target] = None if engram is None else _describe(target, engram, context)
    use: EngramUse | None = context.uses[target]
    return use


def _describe(target: Reference, engram: Resource, context: CheckContext) -> EngramUse:
    template_ref = read_reference(spec_of(engram).get("templateRef"), "")
    template = None if template_ref is None else context.find("EngramTemplate", template_ref)
    return EngramUse(
        engram,
        target.misfit("Engram", engram),
        spec_of(engram).get("mode") or "job",
        "" if template_ref is None else template_ref.name,
        template,
        template is not None
        and place_of(template) is None
        and context.known.implements(template["metadata"]["name"], version_of(template)) is False,
    )


def _input(cursor: Cursor, name: str, engram: Resource, template: Resource) -> None:
    schema = spec_of(template).get("inputSchema")
    if schema is None:
        return
    with_block, runtime = cursor.at("with").value or {}, cursor.at("runtime").value or {}
    base = spec_of(engram).get("with") or {}
    if not all(isinstance(block, dict) for block in (with_block, runtime, base)):
        return
    step_input = {**merged(base, with_block), **runtime}
    check_fit(cursor.at("with"), step_input, schema, "input", prefix=f"step '{name}': ")
