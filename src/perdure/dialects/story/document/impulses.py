"""Impulses and their templates (STY-045)."""

from perdure.dialects.story.document import templates
from perdure.dialects.story.document.context import ResourceCase
from perdure.dialects.story.document.cursor import INVALID, Cursor
from perdure.dialects.story.document.document_references import (
    DOCUMENT_REFERENCE,
    ON_FAILURE,
    check_failure_hook,
    check_schedule_hooks,
    check_target,
)
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
from perdure.dialects.story.resources.resource import spec_of
from perdure.dialects.story.triggers.schedules import TEMPLATE as CRON
from perdure.dialects.story.triggers.schedules import read_schedules
from perdure.dialects.story.values import template_roots
from perdure.expressions.cron import BadSchedule
from perdure.kernel.json_values import jsontext

LARGEST = 256 * 1024  # bytes of an Impulse

IMPULSE_TEMPLATE = FieldsShape(
    {**TEMPLATE, "contextSchema": JsonSchemaShape("context"), "deliveryPolicy": DELIVERY}, REQUIRED
)

IMPULSE = FieldsShape(
    {
        "version": TextShape(most=64),
        "templateRef": ReferenceShape(),
        "storyRef": ReferenceShape(),
        "documentRef": DOCUMENT_REFERENCE,
        "onFailure": ON_FAILURE,
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
    """Validate an Impulse against its template (STY-045)."""
    cursor, context = case.spec, case.context
    if len(jsontext.encode(case.resource)) > LARGEST:
        cursor.problem(INVALID, f"an Impulse has at most {LARGEST // 1024} KiB: it is read again for each event")
    template = find_template(cursor, "ImpulseTemplate", context)
    check_target(cursor, case.namespace, context)
    check_failure_hook(cursor.at("onFailure"), case.namespace, context)
    mode = cursor.at("workload", "mode")
    if mode.value == "job":
        mode.problem(INVALID, "spec.workload.mode must not be 'job' for Impulse (must be always-on)")
    elif mode.value and template is not None:
        check_mode(mode, mode.value, template)
    templates.check(cursor.at("mapping"), template_roots.MAPPING)
    refuse_secrets(cursor.at("mapping"))
    _delivery(cursor.at("deliveryPolicy"))
    if template is not None:
        check_settings(cursor.at("with"), template, context)
        check_secrets(cursor, template)
    if template is not None and spec_of(template) == spec_of(CRON):
        try:
            read_schedules(case.resource)
        except BadSchedule as refusal:
            cursor.at("with").problem(INVALID, str(refusal))
        check_schedule_hooks(cursor, case.namespace, context)


def _delivery(cursor: Cursor) -> None:
    """Check the rules for deduplicating and retrying triggers (STY-045)."""
    mode, key = cursor.at("dedupe", "mode").value, cursor.at("dedupe", "keyTemplate")
    has_key = isinstance(key.value, str) and bool(key.value.strip())
    if mode == "key" and not has_key:
        cursor.at("dedupe").problem(INVALID, f"{key.spelled} is required when mode is key")
    elif mode != "key" and has_key:
        key.problem(INVALID, f"{key.spelled} is only allowed when mode is key")
    if has_key:
        templates.check(key, template_roots.TRIGGER_KEY)
    signature = cursor.at("signature")
    if isinstance(signature.value, dict):
        for path in (("form",), ("secretRef", "name"), ("secretRef", "key")):
            if not signature.at(*path).value:
                signature.problem(INVALID, f"{signature.at(*path).spelled} is required")
    delays = {}
    for member in ("baseDelay", "maxDelay"):
        delay = cursor.at("retry", member)
        if delay.value in (None, "") or not isinstance(delay.value, str):
            continue
        try:
            delays[member] = read_duration(delay.value)
        except BadDuration as refusal:
            delay.problem(INVALID, f"invalid {member}: {refusal}")
            continue
        if delays[member] < 0:
            delay.problem(INVALID, f"{member} must not be negative")
    if 0 < delays.get("maxDelay", 0) < delays.get("baseDelay", 0):
        cursor.at("retry", "maxDelay").problem(INVALID, "maxDelay must not be smaller than baseDelay")
