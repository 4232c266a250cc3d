"""The Engram a step uses: may it be named, is it there, does its input fit? (STY-041, STY-042)"""

from typing import Any

from perdure.dialects.story.code import WAYS, place_of
from perdure.dialects.story.document.around import Around
from perdure.dialects.story.document.engrams import check_fit
from perdure.dialects.story.document.look import ENGRAM_REFERENCE, NO_TEMPLATE, NOT_FOUND, Look
from perdure.dialects.story.inline_stories import MAP_TEMPLATE
from perdure.dialects.story.merging import merged
from perdure.dialects.story.resources import Reference, Resource, read_reference, spec_of, version_of


def check_step(look: Look, name: str, namespace: str, is_streaming: bool, around: Around) -> None:
    at = look.at("ref")
    if at.value is None:
        return
    target = read_reference(at.value, namespace)
    if target is None:
        if isinstance(at.value, str | dict):
            at.problem(f"step '{name}' requires 'ref.name' to be set")
        return
    if not around.may_name(at, "Story", namespace, "Engram", target, ENGRAM_REFERENCE):
        return
    engram = around.find("Engram", target)
    if engram is None:
        at.warn(f"step '{name}': there is no Engram '{target.key}' yet: the step will wait for it", code=NOT_FOUND)
        return
    if (misfit := target.misfit("Engram", engram)) is not None:
        at.warn(f"step '{name}': {misfit}: the step will fail", code=ENGRAM_REFERENCE)
    mode = spec_of(engram).get("mode") or "job"
    if not is_streaming and mode != "job":
        message = f"Engram '{target.key}' runs as {mode}, which only a streaming Story can use: the step will fail"
        at.warn(f"step '{name}': {message}", code="InvalidConfiguration")
    template = _template_of(engram, around)
    if template is None:
        called = read_reference(spec_of(engram).get("templateRef"), "") or Reference("", "")
        message = f"step '{name}': EngramTemplate '{called.name}' of Engram '{target.key}' not found"
        at.problem(message, code=ENGRAM_REFERENCE)
        return
    _implemented(at, name, template, around)
    _input(look, name, engram, template)


def maps(ref: Any, namespace: str, around: Around) -> bool:
    """Whether a step's Engram runs Stories over items."""
    target = read_reference(ref, namespace)
    engram = None if target is None else around.find("Engram", target)
    wanted = None if engram is None else read_reference(spec_of(engram).get("templateRef"), "")
    return wanted is not None and wanted.name == MAP_TEMPLATE


def _template_of(engram: Resource, around: Around) -> Resource | None:
    target = read_reference(spec_of(engram).get("templateRef"), "")
    return None if target is None else around.find("EngramTemplate", target)


def _implemented(look: Look, name: str, template: Resource, around: Around) -> None:
    """STY-009: nothing to run is no error, the step waits."""
    called = template["metadata"]["name"]
    if place_of(template) is None and around.known.implements(called, version_of(template)) is False:
        message = f"step '{name}': nothing here implements the template '{called}': the step will wait"
        look.warn(message, code=NO_TEMPLATE, hint=WAYS)


def _input(look: Look, name: str, engram: Resource, template: Resource) -> None:
    given, runtime = look.at("with").value or {}, look.at("runtime").value or {}
    base = spec_of(engram).get("with") or {}
    if not all(isinstance(one, dict) for one in (given, runtime, base)):
        return
    whole = {**merged(base, given), **runtime}
    schema = spec_of(template).get("inputSchema")
    check_fit(look.at("with"), whole, schema, "input", before=f"step '{name}': ")
