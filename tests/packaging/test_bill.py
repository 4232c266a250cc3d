"""Dependencies: bounded, listed with their licences, and written into every wheel."""

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from requirements import bill, lowest

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
DECLARED = [
    *PROJECT["dependencies"],
    *(requirement for extra in PROJECT["optional-dependencies"].values() for requirement in extra),
]


@pytest.mark.parametrize("requirement", DECLARED)
def test_every_dependency_has_a_lower_and_an_upper_bound(requirement: str) -> None:
    assert re.fullmatch(r"[a-z0-9\[\]-]+>=[0-9.]+,<[0-9.]+", requirement)


@pytest.mark.parametrize("requirement", DECLARED)
def test_the_lock_is_within_the_bounds(requirement: str) -> None:
    """What the tests run with is what users may have."""
    from packaging.requirements import Requirement

    declared = Requirement(requirement)
    locked = re.search(rf"^{declared.name}==([^ ]+)", (ROOT / "requirements" / "dev.lock").read_text("utf-8"), re.M)
    assert locked and declared.specifier.contains(locked[1])


def test_lower_bounds_are_exact_versions() -> None:
    assert "duckdb==1.4" in lowest.lower_bounds() and "psycopg[binary]==3.2.4" in lowest.lower_bounds()
    assert len(lowest.lower_bounds()) == len(DECLARED)


def test_the_bill_is_what_is_installed_and_locked() -> None:
    """Versions and licences; `make licences` collects them anew."""
    listed = {part["name"]: part for part in bill.collected()}
    lock = (ROOT / "requirements" / "dev.lock").read_text("utf-8")
    for part in bill.collect():
        assert part["name"] in listed, f"run `make licences`: {part['name']} is not listed"
        assert listed[part["name"]]["licence"] == part["licence"] != "not declared"
    for name, part in listed.items():
        assert f"\n{name}=={part['version']} " in f"\n{lock}", (
            f"run `make licences`: {name} is locked in another version"
        )


def test_the_page_of_licences_is_made_of_the_bill() -> None:
    assert (ROOT / bill.PAGE).read_text("utf-8") == bill.page(bill.collected())


def test_a_wheel_carries_the_bill(tmp_path: Path) -> None:
    """As CycloneDX JSON beside its metadata; no address to download from is in it, and two builds give the same."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [name for name in packed.namelist() if "/sboms/" in name]
        text = packed.read(name).decode()
    document = json.loads(text)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document == bill.cyclonedx(bill.collected(), metadata.version("perdure"))
    assert {component["name"] for component in document["components"]} == {part["name"] for part in bill.collected()}
    assert "://" not in text
    known = {component["bom-ref"] for component in document["components"]} | {
        document["metadata"]["component"]["bom-ref"]
    }
    assert all({dependency["ref"], *dependency["dependsOn"]} <= known for dependency in document["dependencies"])
