"""Texts with a cursor, for tests of what editors ask."""

from functools import lru_cache
from pathlib import Path

from perdure.editor.completion_items import CompletionItem, complete
from perdure.editor.document_tree import DocumentTree
from perdure.editor.names import DocumentNames
from perdure.editor.schema_lookup import LanguageSchema, ProviderFacts
from perdure.views.resources.provider_list import list_document_providers
from perdure.wiring import languages

CURSOR = "§"
EXAMPLES = Path(__file__).parents[2] / "examples"


@lru_cache
def schema_of(language: str) -> LanguageSchema:
    schema = languages()[language].document_schema()
    assert schema is not None
    providers = [
        ProviderFacts(entry.name, entry.description, dict(entry.provider.parameters) if entry.provider else {})
        for entry in list_document_providers()
    ]
    return LanguageSchema(language, schema, providers)


def split(text: str) -> tuple[str, int]:
    """The text without its cursor, and where that was."""
    return text.replace(CURSOR, "", 1), text.index(CURSOR)


def items_at(language: str, text: str, *others: DocumentNames) -> dict[str, CompletionItem]:
    plain, offset = split(text)
    return {item.label: item for item in complete(plain, offset, schema_of(language), others)}


def accept(language: str, text: str, label: str) -> str:
    """The text after an item was chosen."""
    item = items_at(language, text)[label]
    plain = split(text)[0]
    return f"{plain[: item.start]}{item.insert}{plain[item.end :]}"


def names_of(language: str, text: str) -> DocumentNames:
    return DocumentNames.read(DocumentTree(text), schema_of(language))


def examples() -> list[tuple[str, Path]]:
    """All examples, each with its language."""
    known = languages()
    listed = []
    for path in sorted(EXAMPLES.rglob("*")):
        if path.suffix in (".json", ".yaml") and not path.name.endswith(".test.yaml"):
            text = path.read_bytes()
            listed += [(name, path) for name, language in known.items() if language.recognizes(text)][:1]
    return listed
