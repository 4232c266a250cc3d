"""One registry for all languages: what it contains, how providers are added, what it costs."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.workers.scene import failure_of, outcome_of

from perdure.providers import DuplicateProvider, Mode, Provider, Registry
from perdure.providers.registry import SHIPPED
from perdure.services.story import SHIPPED_ENGRAMS
from perdure.services.story.engrams.shipped import PROVIDERS


def nothing() -> None:
    """Do nothing at all."""


def test_a_decorated_function_is_registered_and_stays_a_function() -> None:
    registry = Registry()

    @registry.provider("math.add", description="Adds.", side_effects=False)
    def add(a: int, b: int) -> int:
        return a + b

    result = registry.find("math.add")
    assert result is not None
    assert add(1, 2) == 3
    assert (result.description, result.side_effects, result.mode, result.prefix) == (
        "Adds.",
        False,
        Mode.THREAD,
        "MathAdd",
    )
    assert result.parameters["required"] == ["a", "b"]


def test_what_is_not_declared_is_read_from_the_function() -> None:
    registry = Registry()
    registry.provider("nothing")(nothing)
    result = registry.find("nothing")

    assert result is not None
    assert (result.description, result.side_effects) == ("Do nothing at all.", True)


def test_a_declared_schema_stands() -> None:
    registry = Registry()
    registry.provider("nothing", parameters={"type": "object"})(nothing)
    result = registry.find("nothing")

    assert result is not None
    assert result.parameters == {"type": "object"}


def test_the_mode_follows_from_the_function_unless_said() -> None:
    async def wait() -> None: ...

    assert Provider.of("a", wait).mode is Mode.ASYNC
    assert Provider.of("b", nothing).mode is Mode.THREAD
    registry = Registry()
    registry.provider("c", isolated=True)(nothing)
    registry.provider("d", inline=True)(nothing)
    assert [provider.mode for provider in registry] == [Mode.ISOLATED, Mode.INLINE]
    with pytest.raises(ValueError, match="one of inline, isolated and quick"):
        registry.provider("e", inline=True, isolated=True)
    with pytest.raises(ValueError, match="a plain one, without a context"):
        registry.provider("f", quick=True)(wait)
    assert registry.find("f") is None


def test_an_unknown_name_is_no_error() -> None:
    assert Registry().find("no.such.provider") is None


def test_a_name_is_given_once() -> None:
    registry = Registry()
    registry.provider("twice")(nothing)
    with pytest.raises(DuplicateProvider, match=r"provider 'twice' is defined at .*test_registry.py:\d+ and again at"):
        registry.provider("twice")(nothing)
    with pytest.raises(DuplicateProvider, match="provider 'http' is defined at perdure"):
        registry.provider("http")(nothing)


def test_the_shipped_providers_have_descriptions_and_schemas() -> None:
    registry = Registry()
    shipped: dict[str, Any] = {name: registry.find(name) for name, module in SHIPPED.items() if ".story." not in module}

    assert set(shipped) <= set(registry.names())
    for provider in shipped.values():
        assert provider.description
        assert provider.parameters["type"] == "object"
        assert provider.parameters["additionalProperties"] is False
    assert [shipped[name].prefix for name in ("echo", "http", "shell")] == ["Echo", "Http", "Shell"]


def test_a_missing_library_is_known_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Registry().lacks("postgres") is None
    assert Registry().lacks("shell") is None

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert Registry().lacks("postgres") == "perdure[postgres]"
    assert Registry().lacks("sqlite") is None


def test_the_registry_is_cheap_to_import() -> None:
    heavy = "{'httpx', 'asyncio', 'subprocess', 'importlib.metadata', 'perdure.providers.http'}"
    code = f"import sys, perdure.providers; print(sorted({heavy} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout == "[]\n"


def test_installed_packages_bring_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "brought-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[perdure.providers]\nbrought.double = brought_tools:double\nbrought.broken = brought_missing:f\n"
    )
    (tmp_path / "brought_tools.py").write_text("def double(x: int) -> int:\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = Registry()

    assert {"brought.double", "brought.broken"} <= set(registry.names())
    result = registry.find("brought.double")
    assert result is not None
    assert result.function.invoke({"x": 4}) == 8
    assert registry.knows("brought.broken")
    broken = asyncio.run(outcome_of("brought.broken", registry=registry))
    assert failure_of(broken) == ("Platform.ProviderFault", False)
    assert "brought_missing" in str(broken)


def test_shipped_engrams_are_listed_without_importing_their_package() -> None:
    assert SHIPPED_ENGRAMS == PROVIDERS
