"""Impulses and their templates (STY-045)."""

from perdure.dialects.story.document import templates
from perdure.dialects.story.document.context import CheckContext, ResourceCase
from perdure.dialects.story.document.cursor import INVALID, NOT_FOUND, STORY_REFERENCE, Cursor
from perdure.dialects.story.document.engrams import (
    REQUIRED,
    TEMPLATE,
    check_mode,
    check_secrets,
    check_settings,
    find_template,
)
from perdure.dialects.story.document.policies import DELIVERY, MODES, OVERRIDES, SECRETS
from perdure.dialects.story.document.secrets import refuse_secrets
from perdure.dialects.story.document.shapes import (
    ChoiceShape,
    FieldsShape,
    IntegerShape,
    JsonSchemaShape,
    KubernetesShape,
    ObjectShape,
    ReferenceShape,
    TextShape,
)
from perdure.dialects.story.resources.durations import BadDuration, read_duration
from perdure.dialects.story.resources.resource import read_reference, spec_of
from perdure.dialects.story.triggers.cron import BadSchedule
from perdure.dialects.story.triggers.schedules import TEMPLATE as CRON
from perdure.dialects.story.triggers.schedules import read_schedules
from perdure.dialects.story.values import template_roots

IMPULSE_TEMPLATE = FieldsShape(
    {**TEMPLATE, "contextSchema": JsonSchemaShape("context"), "deliveryPolicy": DELIVERY}, REQUIRED
)

IMPULSE = FieldsShape(
    {
        "version": TextShape(most=64),
        "templateRef": ReferenceShape(),
        "storyRef": ReferenceShape(),
        "with": ObjectShape(),
        "secrets": SECRETS,
        "mapping": ObjectShape(),
        "deliveryPolicy": DELIVERY,
        "throttle": FieldsShape(
            {"maxInFlight": IntegerShape(0), "ratePerSecond": IntegerShape(0), "burst": IntegerShape(0)}
        ),
        "workload": FieldsShape(
            {
                "mode": ChoiceShape(MODES),
                "job": KubernetesShape(),
                "statefulSet": KubernetesShape(),
                "resources": KubernetesShape(),
                "updateStrategy": KubernetesShape(),
            }
        ),
        "service": KubernetesShape(),
        "execution": OVERRIDES,
    }
)


def validate_impulse_template(case: ResourceCase) -> None:
    _delivery(case.spec.at("deliveryPolicy"))


def validate_impulse(case: ResourceCase) -> None:
    """STY-045"""
    cursor, around = case.spec, case.context
    template = find_template(cursor, "ImpulseTemplate", around)
    _target(cursor, case.namespace, around)
    mode = cursor.at("workload", "mode")
    if mode.value == "job":
        mode.problem(INVALID, "spec.workload.mode must not be 'job' for Impulse (must be always-on)")
    elif mode.value and template is not None:
        check_mode(mode, mode.value, template)
    templates.check(cursor.at("mapping"), template_roots.MAPPING)
    refuse_secrets(cursor.at("mapping"))
    _delivery(cursor.at("deliveryPolicy"))
    if template is not None:
        check_settings(cursor.at("with"), template, around)
        check_secrets(cursor, template)
    if template is not None and spec_of(template) == spec_of(CRON):
        try:
            read_schedules(case.resource)
        except BadSchedule as refusal:
            cursor.at("with").problem(INVALID, str(refusal))


def _target(cursor: Cursor, namespace: str, around: CheckContext) -> None:
    at = cursor.at("storyRef")
    target = read_reference(at.value, namespace)
    if target is None:
        cursor.problem(STORY_REFERENCE, "spec.storyRef.name is required")
        return
    if not around.may_name(at, "Impulse", namespace, "Story", target, STORY_REFERENCE):
        return
    found = around.find("Story", target)
    if found is None:
        at.warn(NOT_FOUND, f"there is no Story '{target.key}' yet: triggers will wait for it")
    elif (misfit := target.misfit("Story", found)) is not None:
        at.warn(STORY_REFERENCE, misfit)


def _delivery(cursor: Cursor) -> None:
    """How triggers are told apart and tried again (STY-045)."""
    mode, key = cursor.at("dedupe", "mode").value, cursor.at("dedupe", "keyTemplate")
    has_key = isinstance(key.value, str) and bool(key.value.strip())
    if mode == "key" and not has_key:
        cursor.at("dedupe").problem(INVALID, "keyTemplate is required when mode is key")
    elif mode != "key" and has_key:
        key.problem(INVALID, "keyTemplate is only allowed when mode is key")
    if has_key:
        templates.check(key, template_roots.TRIGGER_KEY)
    spans = {}
    for word in ("baseDelay", "maxDelay"):
        at = cursor.at("retry", word)
        if at.value in (None, "") or not isinstance(at.value, str):
            continue
        try:
            spans[word] = read_duration(at.value)
        except BadDuration as refusal:
            at.problem(INVALID, f"invalid {word}: {refusal}")
            continue
        if spans[word] < 0:
            at.problem(INVALID, f"{word} must not be negative")
    if 0 < spans.get("maxDelay", 0) < spans.get("baseDelay", 0):
        cursor.at("retry", "maxDelay").problem(INVALID, "maxDelay must not be smaller than baseDelay")
