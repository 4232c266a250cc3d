"""The pages that are written from the code say what it says, and nothing public is without a description."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tools import reference

import perdure
import perdure.testing
from perdure.cli.verbs import VERBS
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


def _written(page: str) -> str:
    return (reference.FOLDER / page).read_text(encoding="utf-8")


def test_every_public_name_has_its_entry() -> None:
    """Also each member of a class that is offered, and the classes that `connect` and `connect_sync` return."""
    text = _written("python.md")
    entries = set(re.findall(r"^### (\S+)$", text, re.MULTILINE))
    for module in (perdure, perdure.testing):
        names = {f"{module.__name__}.{name}" for name in module.__all__ if name != "__version__"}
        assert names <= entries, names - entries
        for kind in (getattr(module, name) for name in module.__all__ if inspect.isclass(getattr(module, name))):
            missing = [name for name, _ in reference.public_members(kind) if not re.search(rf"\b{name}\b", text)]
            assert missing == [], f"{kind.__name__}: {missing}"
    for kind in (RemoteEngine, SyncEngine):
        assert [name for name, _ in reference.public_members(kind) if not re.search(rf"\b{name}\b", text)] == []


def test_every_verb_and_error_has_its_entry() -> None:
    assert set(VERBS) <= set(re.findall(r"^## (\S+)$", _written("cli.md"), re.MULTILINE))
    codes = {page.stem for page in (reference.FOLDER.parent / "errors").glob("*.md")}
    assert codes == set(re.findall(r"^\| \[([\w-]+)\]", _written("errors.md"), re.MULTILINE))


@pytest.mark.parametrize("language", ["flow", "playbook", "story"])
def test_every_field_has_its_entry(language: str) -> None:
    """The last part of each field's path is in the table of its language; the tables follow references."""
    rows = re.findall(r"^\| \**`([^`]+)`", _written(f"{language}-fields.md"), re.MULTILINE)
    entries = {re.split(r"\.|\[\]", row.rstrip("[]"))[-1] for row in rows}
    names = {path.rpartition(".")[2] for path, _ in _fields(schema_of_language(languages(), language), "")}

    assert len(rows) > 50
    assert names - entries == set()


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
