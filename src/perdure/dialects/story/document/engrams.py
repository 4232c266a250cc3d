"""Engrams and their templates (STY-044), and the checks that Impulses share with them."""

from collections.abc import Mapping
from typing import Any

from perdure.dialects.story.document import templates
from perdure.dialects.story.document.context import CheckContext, ResourceCase
from perdure.dialects.story.document.cursor import INVALID, REFUSED, Cursor
from perdure.dialects.story.document.policies import MODES, OVERRIDES, POLICY, SECRETS, TEMPLATE_EXECUTION
from perdure.dialects.story.document.shapes import (
    BooleanShape,
    ChoiceShape,
    FieldsShape,
    JsonSchemaShape,
    KubernetesShape,
    ListShape,
    MapShape,
    ObjectShape,
    ReferenceShape,
    Shape,
    TextShape,
    shown,
)
from perdure.dialects.story.plan import engram_code
from perdure.dialects.story.resources.resource import Resource, read_reference, spec_of
from perdure.dialects.story.values import template_roots
from perdure.dialects.story.values.schema_fit import compiled_schema
from perdure.kernel.json_values import jsontext

TEMPLATE: dict[str, Shape] = {
    "version": TextShape(least=1),
    "description": TextShape(),
    "supportedModes": ListShape(ChoiceShape(MODES), 1, 3),
    "configSchema": JsonSchemaShape("config"),
    "secretSchema": MapShape(
        FieldsShape(
            {
                "required": BooleanShape(),
                "description": TextShape(),
                "mountType": ChoiceShape(("env", "file", "both")),
                "envPrefix": TextShape(),
                "mountPath": TextShape(),
                "expectedKeys": ListShape(TextShape()),
            }
        )
    ),
    "image": KubernetesShape(TextShape(most=512)),
    "execution": TEMPLATE_EXECUTION,
}
REQUIRED = ("version", "supportedModes")

ENGRAM_TEMPLATE = FieldsShape(
    {
        **TEMPLATE,
        "inputSchema": JsonSchemaShape("input"),
        "outputSchema": JsonSchemaShape("output"),
        "declaredOutputKeys": ListShape(TextShape(least=1)),
    },
    REQUIRED,
)
ENGRAM = FieldsShape(
    {
        "version": TextShape(most=64),
        "templateRef": ReferenceShape(),
        "mode": ChoiceShape(MODES),
        "with": ObjectShape(),
        "secrets": SECRETS,
        "executionPolicy": POLICY,
        "overrides": OVERRIDES,
        "transport": FieldsShape({"tls": KubernetesShape()}),
    }
)


def validate_template(case: ResourceCase) -> None:
    """Check the annotations that say where the template's code is (STY-009)."""
    for name, problem in engram_code.problems(case.resource):
        case.root.at("metadata", "annotations", f"{engram_code.PREFIX}{name}").problem(INVALID, problem)
    _check_policy(case.root.at("metadata", "annotations"), case.resource, "default", case.context)
    if engram_code.place_of(case.resource) == engram_code.CONTAINER:
        report = case.root.report
        report.ignored[:] = [path for path in report.ignored if path != ("spec", "image")]


def _check_policy(cursor: Cursor, template: Resource, namespace: str, context: CheckContext) -> None:
    """Whether the operator allows what the annotations of the template choose."""
    place = engram_code.place_of(template)
    if place is not None and (refusal := context.known.refusal(place, namespace)) is not None:
        cursor.problem(REFUSED, refusal, hint="An operator can allow it; see docs/security.md.")


def validate_engram(case: ResourceCase) -> None:
    """Validate an Engram against its template (STY-044).

    A Story that may use the template might already name the Engram: who may not use it does not bring its inputs.
    """
    cursor, context = case.spec, case.context
    template = find_template(cursor, "EngramTemplate", context)
    templates.check(cursor.at("with"), template_roots.BATCH)
    templates.check(cursor.at("overrides", "cache", "key"), template_roots.CACHE_KEY)
    templates.check(cursor.at("executionPolicy", "cache", "key"), template_roots.CACHE_KEY)
    if template is None:
        return
    _check_policy(cursor.at("templateRef"), template, case.namespace, context)
    mode = cursor.at("mode")
    check_mode(mode if mode.value else cursor, mode.value or "job", template)
    check_settings(cursor.at("with"), template, context)
    check_secrets(cursor, template)


def find_template(cursor: Cursor, kind: str, context: CheckContext) -> Resource | None:
    """The template of an Engram or Impulse; reports a missing template or another version."""
    reference = cursor.at("templateRef")
    target = read_reference(reference.value, "")
    if target is None:
        cursor.problem(INVALID, "spec.templateRef.name is required")
        return None
    template = context.find(kind, target)
    if template is None:
        reference.problem(
            INVALID,
            f"{kind} '{target.name}' not found",
            hint="Apply it together with the others, or load the code that registers it.",
        )
    elif (misfit := target.misfit(kind, template)) is not None:
        reference.problem(INVALID, misfit)
    return template


def check_mode(cursor: Cursor, mode: Any, template: Resource) -> None:
    supported = spec_of(template).get("supportedModes")
    if isinstance(supported, list) and mode in MODES and mode not in supported:
        names = ", ".join(map(str, supported))
        cursor.problem(INVALID, f"workload mode {shown(mode)} is not supported by template (supportedModes: {names})")


def check_settings(cursor: Cursor, template: Resource, context: CheckContext) -> None:
    config = {} if cursor.value is None else cursor.value
    if not isinstance(config, dict):
        return
    size, most = len(jsontext.encode(config)), context.settings.max_inline_size
    if size > most:
        cursor.problem(INVALID, f"{cursor.spelled} too large ({size} bytes > {most})")
    check_fit(cursor, config, spec_of(template).get("configSchema"), "config")


def check_fit(cursor: Cursor, data: Mapping[str, Any], schema: Any, schema_name: str, prefix: str = "") -> None:
    """Whether data can fit a schema of the template, whatever the templates in it will evaluate to."""
    if schema is None:
        return
    compiled = compiled_schema(schema)
    if isinstance(compiled, str):
        return  # reported at the schema itself
    for misfit in compiled.static_misfits(compiled.complete(data)):
        cursor.at(*misfit.path).problem(
            INVALID, f"{prefix}the template's {schema_name} schema does not accept this value: {misfit}"
        )


def check_secrets(cursor: Cursor, template: Resource) -> None:
    declared = spec_of(template).get("secretSchema")
    declared = declared if isinstance(declared, dict) else {}
    secrets = cursor.at("secrets").value
    secrets = secrets if isinstance(secrets, dict) else {}
    for name, definition in declared.items():
        if isinstance(definition, dict) and definition.get("required") is True and not secrets.get(name):
            cursor.problem(INVALID, f"secret {shown(name)} is required by the template")
    for name in secrets:
        if name not in declared:
            cursor.at("secrets", name).problem(INVALID, f"secret {shown(name)} is not in the template's secretSchema")
