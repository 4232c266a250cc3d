"""The console's types of the API are those of the server's table of routes (CON-020)."""

import json
from pathlib import Path

from tools.console_types import PAGE, typescript

LOCK = Path(__file__).parents[2] / "console" / "package-lock.json"


def test_the_types_are_those_of_the_routes() -> None:
    assert PAGE.read_text("utf-8") == typescript(), "run: python -m tools.console_types"


def test_the_lock_of_packages_has_digests_and_no_addresses() -> None:
    packages = json.loads(LOCK.read_text("utf-8"))["packages"]
    others = {name: about for name, about in packages.items() if name}

    assert len(others) > 20
    assert [name for name, about in others.items() if "integrity" not in about or "resolved" in about] == []
