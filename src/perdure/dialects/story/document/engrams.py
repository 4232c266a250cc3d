"""Engrams and their templates (STY-044), and what Impulses have in common with them."""

from collections.abc import Mapping
from typing import Any

from perdure.dialects.story.document import templates
from perdure.dialects.story.document.context import Case, Context
from perdure.dialects.story.document.cursor import Cursor
from perdure.dialects.story.document.policies import MODES, OVERRIDES, POLICY, SECRETS, TEMPLATE_EXECUTION
from perdure.dialects.story.document.shapes import (
    Fields,
    Flag,
    JsonSchema,
    Kubernetes,
    ListOf,
    MapOf,
    Object,
    OneOf,
    ReferenceShape,
    Shape,
    Text,
    shown,
)
from perdure.dialects.story.plan import engram_code
from perdure.dialects.story.resources.resource import Resource, read_reference, spec_of
from perdure.dialects.story.values import template_roots
from perdure.dialects.story.values.schema_fit import compiled_schema
from perdure.kernel import jsontext

TEMPLATE: dict[str, Shape] = {
    "version": Text(least=1),
    "description": Text(),
    "supportedModes": ListOf(OneOf(MODES), 1, 3),
    "configSchema": JsonSchema("config"),
    "secretSchema": MapOf(
        Fields(
            {
                "required": Flag(),
                "description": Text(),
                "mountType": OneOf(("env", "file", "both")),
                "envPrefix": Text(),
                "mountPath": Text(),
                "expectedKeys": ListOf(Text()),
            }
        )
    ),
    "image": Kubernetes(Text(most=512)),
    "execution": TEMPLATE_EXECUTION,
}
REQUIRED = ("version", "supportedModes")

ENGRAM_TEMPLATE = Fields(
    {
        **TEMPLATE,
        "inputSchema": JsonSchema("input"),
        "outputSchema": JsonSchema("output"),
        "declaredOutputKeys": ListOf(Text(least=1)),
    },
    REQUIRED,
)
ENGRAM = Fields(
    {
        "version": Text(most=64),
        "templateRef": ReferenceShape(),
        "mode": OneOf(MODES),
        "with": Object(),
        "secrets": SECRETS,
        "executionPolicy": POLICY,
        "overrides": OVERRIDES,
        "transport": Fields({"tls": Kubernetes()}),
    }
)


def validate_template(case: Case) -> None:
    """STY-009: what its annotations say of its code."""
    for name, problem in engram_code.problems(case.resource):
        case.root.at("metadata", "annotations", f"{engram_code.PREFIX}{name}").problem(problem)
    if engram_code.place_of(case.resource) == engram_code.CONTAINER:
        findings = case.root.findings
        findings.ignored[:] = [path for path in findings.ignored if path != ("spec", "image")]


def validate_engram(case: Case) -> None:
    """STY-044"""
    look, around = case.spec, case.around
    template = find_template(look, "EngramTemplate", around)
    templates.check(look.at("with"), template_roots.BATCH)
    templates.check(look.at("overrides", "cache", "key"), template_roots.CACHE_KEY)
    templates.check(look.at("executionPolicy", "cache", "key"), template_roots.CACHE_KEY)
    if template is None:
        return
    mode = look.at("mode")
    check_mode(mode if mode.value else look, mode.value or "job", template)
    check_settings(look.at("with"), template, around)
    check_secrets(look, template)


def find_template(look: Cursor, kind: str, around: Context) -> Resource | None:
    """The template an Engram or Impulse is made from; reports when there is none, or another version of it."""
    at = look.at("templateRef")
    target = read_reference(at.value, "")
    if target is None:
        look.problem("spec.templateRef.name is required")
        return None
    found = around.find(kind, target)
    if found is None:
        at.problem(f"{kind} '{target.name}' not found", hint="Apply it with the others, or load what registers it.")
    elif (misfit := target.misfit(kind, found)) is not None:
        at.problem(misfit)
    return found


def check_mode(look: Cursor, mode: Any, template: Resource) -> None:
    supported = spec_of(template).get("supportedModes")
    if isinstance(supported, list) and mode in MODES and mode not in supported:
        known = ", ".join(map(str, supported))
        look.problem(f"workload mode {shown(mode)} is not supported by template (supportedModes: {known})")


def check_settings(look: Cursor, template: Resource, around: Context) -> None:
    given = {} if look.value is None else look.value
    if not isinstance(given, dict):
        return
    size, most = len(jsontext.encode(given)), around.settings.max_inline_size
    if size > most:
        look.problem(f"{look.spelled} too large ({size} bytes > {most})")
    check_fit(look, given, spec_of(template).get("configSchema"), "config")


def check_fit(look: Cursor, given: Mapping[str, Any], schema: Any, what: str, before: str = "") -> None:
    """Whether some data can fit a schema of the template, whatever the templates in them will turn out to be."""
    if schema is None:
        return
    compiled = compiled_schema(schema)
    if isinstance(compiled, str):
        return  # told where the schema stands
    for misfit in compiled.static_misfits(compiled.complete(given)):
        look.at(*misfit.path).problem(f"{before}the template's {what} schema refuses it: {misfit}")


def check_secrets(look: Cursor, template: Resource) -> None:
    known = spec_of(template).get("secretSchema")
    known = known if isinstance(known, dict) else {}
    given = look.at("secrets").value
    given = given if isinstance(given, dict) else {}
    for name, definition in known.items():
        if isinstance(definition, dict) and definition.get("required") is True and not given.get(name):
            look.problem(f"secret {shown(name)} is required by the template")
    for name in given:
        if name not in known:
            look.at("secrets", name).problem(f"secret {shown(name)} is not in the template's secretSchema")
