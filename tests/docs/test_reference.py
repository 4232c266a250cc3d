"""The pages that are written from the code say what it says, and nothing public is without a description."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from tools import reference

import perdure
import perdure.testing
from perdure.server.api_client.remote_engine import RemoteEngine
from perdure.server.api_client.sync_engine import SyncEngine
from perdure.views.resources.document_check import schema_of_language
from perdure.wiring import languages


def test_the_pages_are_those_that_the_code_gives() -> None:
    for name, text in reference.pages().items():
        written = (reference.FOLDER / name).read_text(encoding="utf-8")
        assert written == text, f"docs/reference/{name} is not up to date: run `python -m tools.reference`"


def test_every_public_name_has_a_description() -> None:
    kinds: list[type] = [RemoteEngine, SyncEngine]
    for module in (perdure, perdure.testing):
        for name in module.__all__:
            value = getattr(module, name)
            assert name == "__version__" or value.__doc__, f"{module.__name__}.{name} has no docstring"
            if inspect.isclass(value):
                kinds.append(value)
    members = [(kind.__name__, name, member) for kind in kinds for name, member in reference.public_members(kind)]

    assert len(members) > 100
    assert [f"{kind}.{name}" for kind, name, member in members if not reference.text_of(name, member)] == []


@pytest.mark.parametrize("language", ["flow", "playbook", "story"])
def test_every_field_has_a_description(language: str) -> None:
    fields = dict(_fields(schema_of_language(languages(), language), ""))

    assert len(fields) > 50
    assert [path for path, schema in fields.items() if not schema.get("description")] == []


def _fields(schema: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every member of every object of a schema; what a condition looks at is not a field."""
    if isinstance(schema, list):
        for part in schema:
            yield from _fields(part, path)
    if not isinstance(schema, dict):
        return
    for name, member in schema.get("properties", {}).items():
        yield f"{path}.{name}", member
        yield from _fields(member, f"{path}.{name}")
    for name, part in schema.items():
        if name not in ("properties", "if", "enum", "examples", "required"):
            yield from _fields(part, f"{path}/{name}")
