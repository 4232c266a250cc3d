"""Secrets in the arguments of a call: `{"$secret": "NAME"}`, where it stands in the document.

They count by their place. The worker fills them in; to the engine there is a text. Data that look like one are data.
"""

from collections.abc import Iterator
from typing import Any

MARK = "$secret"

Place = tuple[str | int, ...]


def is_secret(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get(MARK), str)


def secret_places(written: Any, path: Place = ()) -> Iterator[tuple[Place, str]]:
    """Where secrets stand in a part of a document, with their names."""
    if is_secret(written):
        yield path, written[MARK]
    elif isinstance(written, dict):
        for name, part in written.items():
            yield from secret_places(part, (*path, name))
    elif isinstance(written, list):
        for at, part in enumerate(written):
            yield from secret_places(part, (*path, at))


def without_secrets(written: Any) -> Any:
    """The same with a text in the place of each secret, as schemas and histories see it."""
    if is_secret(written):
        return f"[secret {written[MARK]}]"
    if isinstance(written, dict):
        return {name: without_secrets(part) for name, part in written.items()}
    if isinstance(written, list):
        return [without_secrets(part) for part in written]
    return written
