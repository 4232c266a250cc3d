"""Engrams and their templates (STY-044), and what Impulses have in common with them."""

from collections.abc import Mapping
from typing import Any

from perdure.dialects.story.document import templates
from perdure.dialects.story.document.context import CheckContext, ResourceCase
from perdure.dialects.story.document.cursor import INVALID, Cursor
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
from perdure.kernel import jsontext

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
    """STY-009: what its annotations say of its code."""
    for name, problem in engram_code.problems(case.resource):
        case.root.at("metadata", "annotations", f"{engram_code.PREFIX}{name}").problem(INVALID, problem)
    if engram_code.place_of(case.resource) == engram_code.CONTAINER:
        report = case.root.report
        report.ignored[:] = [path for path in report.ignored if path != ("spec", "image")]


def validate_engram(case: ResourceCase) -> None:
    """STY-044"""
    cursor, around = case.spec, case.context
    template = find_template(cursor, "EngramTemplate", around)
    templates.check(cursor.at("with"), template_roots.BATCH)
    templates.check(cursor.at("overrides", "cache", "key"), template_roots.CACHE_KEY)
    templates.check(cursor.at("executionPolicy", "cache", "key"), template_roots.CACHE_KEY)
    if template is None:
        return
    mode = cursor.at("mode")
    check_mode(mode if mode.value else cursor, mode.value or "job", template)
    check_settings(cursor.at("with"), template, around)
    check_secrets(cursor, template)


def find_template(cursor: Cursor, kind: str, around: CheckContext) -> Resource | None:
    """The template an Engram or Impulse is made from; reports when there is none, or another version of it."""
    at = cursor.at("templateRef")
    target = read_reference(at.value, "")
    if target is None:
        cursor.problem(INVALID, "spec.templateRef.name is required")
        return None
    found = around.find(kind, target)
    if found is None:
        at.problem(
            INVALID, f"{kind} '{target.name}' not found", hint="Apply it with the others, or load what registers it."
        )
    elif (misfit := target.misfit(kind, found)) is not None:
        at.problem(INVALID, misfit)
    return found


def check_mode(cursor: Cursor, mode: Any, template: Resource) -> None:
    supported = spec_of(template).get("supportedModes")
    if isinstance(supported, list) and mode in MODES and mode not in supported:
        known = ", ".join(map(str, supported))
        cursor.problem(INVALID, f"workload mode {shown(mode)} is not supported by template (supportedModes: {known})")


def check_settings(cursor: Cursor, template: Resource, around: CheckContext) -> None:
    given = {} if cursor.value is None else cursor.value
    if not isinstance(given, dict):
        return
    size, most = len(jsontext.encode(given)), around.settings.max_inline_size
    if size > most:
        cursor.problem(INVALID, f"{cursor.spelled} too large ({size} bytes > {most})")
    check_fit(cursor, given, spec_of(template).get("configSchema"), "config")


def check_fit(cursor: Cursor, given: Mapping[str, Any], schema: Any, what: str, before: str = "") -> None:
    """Whether some data can fit a schema of the template, whatever the templates in them will turn out to be."""
    if schema is None:
        return
    compiled = compiled_schema(schema)
    if isinstance(compiled, str):
        return  # told where the schema stands
    for misfit in compiled.static_misfits(compiled.complete(given)):
        cursor.at(*misfit.path).problem(INVALID, f"{before}the template's {what} schema refuses it: {misfit}")


def check_secrets(cursor: Cursor, template: Resource) -> None:
    known = spec_of(template).get("secretSchema")
    known = known if isinstance(known, dict) else {}
    given = cursor.at("secrets").value
    given = given if isinstance(given, dict) else {}
    for name, definition in known.items():
        if isinstance(definition, dict) and definition.get("required") is True and not given.get(name):
            cursor.problem(INVALID, f"secret {shown(name)} is required by the template")
    for name in given:
        if name not in known:
            cursor.at("secrets", name).problem(INVALID, f"secret {shown(name)} is not in the template's secretSchema")
