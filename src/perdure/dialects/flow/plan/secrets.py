"""Secrets in the arguments of a call: `{"$secret": "NAME"}`, written literally in the document.

A secret is recognised by its place in the document, never in data. The worker fills it in; the engine sees a text.
"""

from collections.abc import Iterator
from typing import Any

MARK = "$secret"

Place = tuple[str | int, ...]


def is_secret(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get(MARK), str)


def secret_places(document: Any, path: Place = ()) -> Iterator[tuple[Place, str]]:
    """The places of secrets in a part of a document, with their names."""
    if is_secret(document):
        yield path, document[MARK]
    elif isinstance(document, dict):
        for name, part in document.items():
            yield from secret_places(part, (*path, name))
    elif isinstance(document, list):
        for at, part in enumerate(document):
            yield from secret_places(part, (*path, at))


def without_secrets(document: Any) -> Any:
    """The same with a text in place of each secret, as schemas and histories see it."""
    if is_secret(document):
        return f"[secret {document[MARK]}]"
    if isinstance(document, dict):
        return {name: without_secrets(part) for name, part in document.items()}
    if isinstance(document, list):
        return [without_secrets(part) for part in document]
    return document
