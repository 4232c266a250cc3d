"""The bill of materials: what Perdure needs at run time, in which versions, under which licences.

    python requirements/bill.py             collects it anew: runtime.json beside this file, and docs/licences.md
    python requirements/bill.py --sbom FILE writes it as CycloneDX JSON

`runtime.json` is kept in the repository: a wheel is built where nothing of it is installed. While one is built,
this file is a hook of the builder, which puts the CycloneDX document into the wheel (`*.dist-info/sboms/`).
"""

import json
import sys
import tomllib
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parents[1]
COLLECTED = "requirements/runtime.json"
PAGE = "docs/licences.md"
SBOM = "build/perdure.cdx.json"

KNOWN = {"jinja2": "BSD-3-Clause"}  # its metadata says only "BSD"
CLASSIFIERS = {"MIT License": "MIT", "BSD License": "BSD", "Apache Software License": "Apache-2.0"}

Parts = list[dict[str, Any]]


def collect() -> Parts:
    """Every distribution that Perdure with all its extras needs, as this environment has it."""
    from packaging.requirements import Requirement

    project = _project()
    wanted = {"": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, dict[str, Any]] = {}

    def add(requirement: Requirement, extra: str) -> str:
        name = _plain(requirement.name)
        if name not in found:
            about = metadata.metadata(name)
            found[name] = {
                "name": name,
                "version": about["Version"],
                "licence": licence_of(name),
                "for": [],
                "needs": [],
            }
            for text in metadata.requires(name) or ():
                inner = Requirement(text)
                extras = ["", *requirement.extras]
                if inner.marker is None or any(inner.marker.evaluate({"extra": one}) for one in extras):
                    found[name]["needs"].append(add(inner, extra))
        if extra not in found[name]["for"]:
            found[name]["for"].append(extra)
            for needed in found[name]["needs"]:
                add(Requirement(needed), extra)
        return name

    for extra, texts in wanted.items():
        for text in texts:
            add(Requirement(text), extra)
    for part in found.values():
        part["needs"].sort()
    return sorted(found.values(), key=lambda part: str(part["name"]))


def licence_of(name: str) -> str:
    """As its author declares it, by its SPDX name where it has one."""
    about = metadata.metadata(name)
    said = about["License-Expression"] or KNOWN.get(_plain(name)) or about["License"]
    if said and "\n" not in said:
        return str(said)
    listed = [one.rpartition(" :: ")[2] for one in about.get_all("Classifier") or () if one.startswith("License ::")]
    return " OR ".join(CLASSIFIERS.get(one, one) for one in listed) or "not declared"


def page(parts: Parts) -> str:
    rows = [(part["name"], part["version"], part["licence"], _needed(part)) for part in parts]
    return "\n".join([*_HEAD, *(f"| {' | '.join(row)} |" for row in rows), ""])


def _needed(part: dict[str, Any]) -> str:
    return "always" if "" in part["for"] else f"for {', '.join(part['for'])}"


_HEAD = (
    "# Licences",
    "",
    "Perdure itself has the Apache License 2.0. This page lists what it needs at run time, in the versions that it is",
    "tested with, and with the licences that their authors declare. `make licences` writes this page. A wheel",
    "contains the same list as CycloneDX JSON (`sboms/` beside its metadata; `make sbom` writes it to `dist/`).",
    "",
    "| distribution | version | licence | needed |",
    "| --- | --- | --- | --- |",
)


def cyclonedx(parts: Parts, version: str) -> dict[str, Any]:
    """The bill as CycloneDX 1.6. Without a time or a random number: one source gives one document."""
    whole = _reference("perdure", version)
    references = {part["name"]: _reference(part["name"], part["version"]) for part in parts}
    direct = [_plain_of(text) for text in _declared()]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": whole,
                "name": "perdure",
                "version": version,
                "purl": whole,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [
            {
                "type": "library",
                "bom-ref": references[part["name"]],
                "name": part["name"],
                "version": part["version"],
                "purl": references[part["name"]],
                "scope": "required" if "" in part["for"] else "optional",
                "licenses": [{"license": {"name": part["licence"]}}],
            }
            for part in parts
        ],
        "dependencies": [
            {"ref": whole, "dependsOn": sorted({references[name] for name in direct})},
            *({"ref": references[one["name"]], "dependsOn": [references[n] for n in one["needs"]]} for one in parts),
        ],
    }


def _project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def _declared() -> list[str]:
    project = _project()
    return [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]


def _reference(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _plain_of(requirement: str) -> str:
    name = requirement
    for mark in "[<>=!~; ":
        name = name.partition(mark)[0]
    return _plain(name)


def collected() -> Parts:
    found: Parts = json.loads((ROOT / COLLECTED).read_text("utf-8"))
    return found


def write_sbom(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(cyclonedx(collected(), _project()["version"]), indent=1) + "\n", "utf-8")


class BillHook(BuildHookInterface):  # type: ignore[type-arg]
    """The builder calls this before it packs a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            write_sbom(ROOT / SBOM)
            build_data["sbom_files"].append(SBOM)


def main(arguments: list[str]) -> None:
    match arguments:
        case ["--sbom", file]:
            write_sbom(Path(file))
        case _:
            parts = collect()
            (ROOT / COLLECTED).write_text(json.dumps(parts, indent=1) + "\n", "utf-8")
            (ROOT / PAGE).write_text(page(parts), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
