"""Providers that tasks may call in this process, and their parameters, as lists and as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perdure.kernel.documents.problems import guess
from perdure.kernel.json_values import jsontext
from perdure.providers.registry import Provider, language_of, shared
from perdure.views.errors import ProviderNotFound

__all__ = [
    "Parameter",
    "Provider",
    "ProviderEntry",
    "find_provider",
    "list_document_providers",
    "list_parameters",
    "list_providers",
]


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """A provider, or why it cannot be loaded: one that is broken must not hide the others."""

    name: str
    provider: Provider | None
    problem: str = ""

    @property
    def description(self) -> str:
        return "" if self.provider is None else self.provider.description

    def json(self) -> dict[str, Any]:
        if self.provider is None:
            return {"name": self.name, "problem": self.problem}
        return {
            "name": self.name,
            "description": self.provider.description,
            "mode": self.provider.mode.value,
            "side_effects": self.provider.side_effects,
            "parameters": self.provider.parameters,
        }


def list_providers() -> list[ProviderEntry]:
    return [_entry(name) for name in shared.names()]


def list_document_providers() -> list[ProviderEntry]:
    """Those that documents may name."""
    return [_entry(name) for name in shared.names() if language_of(name) is None]


def find_provider(name: str) -> ProviderEntry:
    if not shared.knows(name):
        raise ProviderNotFound(f"there is no provider {name!r}{guess(name, shared.names())}")
    return _entry(name)


def _entry(name: str) -> ProviderEntry:
    try:
        provider = shared.find(name)
    except Exception as error:
        return ProviderEntry(name, None, f"cannot be loaded: {type(error).__name__}: {error}")
    return ProviderEntry(name, provider, "" if provider else "cannot be loaded")


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str  # in few words: `list of string`, `string or null`, `"json"`
    is_required: bool
    default: str  # as JSON; empty: none
    description: str


def declare_providers(schemas: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Providers that workers elsewhere have, with schemas of their arguments if they are known."""
    for name, schema in schemas.items():
        shared.declare(name, schema)


def known_providers() -> list[str]:
    """Names of all providers that tasks can call in this process, those that only a language calls included."""
    return shared.names()


def list_parameters(schema: Mapping[str, Any]) -> list[Parameter]:
    required = schema.get("required", ())
    return [
        Parameter(name, _type(about), name in required, _default(about), about.get("description", ""))
        for name, about in schema.get("properties", {}).items()
    ]


def _type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "$ref" in schema:
        return "object"
    if "enum" in schema:
        return " or ".join(jsontext.encode(value).decode() for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array" and schema.get("items"):
        return f"list of {_type(schema['items'])}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _default(schema: Mapping[str, Any]) -> str:
    return jsontext.encode(schema["default"]).decode() if schema.get("default") is not None else ""
