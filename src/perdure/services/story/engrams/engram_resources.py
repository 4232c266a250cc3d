"""The resources that represent an Engram's code in a Story's catalog."""

from collections.abc import Mapping
from typing import Any

CATALOG = "catalog.bubustack.io/v1alpha1"
BUBU = "bubustack.io/v1alpha1"


def template(
    name: str,
    version: str,
    *,
    description: str = "",
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    config_schema: Mapping[str, Any] | None = None,
    secrets: Mapping[str, Any] | None = None,
    output_keys: tuple[str, ...] = (),
    timeout: str = "",
    retry: Mapping[str, Any] | None = None,
    modes: tuple[str, ...] = ("job",),
) -> dict[str, Any]:
    spec: dict[str, Any] = {"version": version, "supportedModes": list(modes)}
    members = {
        "description": description,
        "inputSchema": input_schema,
        "outputSchema": output_schema,
        "configSchema": config_schema,
        "secretSchema": secrets,
        "declaredOutputKeys": list(output_keys),
    }
    spec.update({key: value for key, value in members.items() if value})
    execution = {key: value for key, value in (("timeout", timeout), ("retry", retry)) if value}
    if execution:
        spec["execution"] = execution
    return {"apiVersion": CATALOG, "kind": "EngramTemplate", "metadata": {"name": name}, "spec": spec}


def engram(name: str, namespace: str, version: str, mode: str = "job") -> dict[str, Any]:
    """Loaded code as an Engram: it is in every namespace, as far as the operator's policy allows its provider."""
    spec: dict[str, Any] = {"version": version, "templateRef": {"name": name, "version": version}}
    if mode != "job":
        spec["mode"] = mode
    return {
        "apiVersion": BUBU,
        "kind": "Engram",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
