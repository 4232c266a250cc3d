"""A playbook as a resource: what the catalog knows it by."""

from typing import Any

from perdure.documents import UnreadableText, read_document
from perdure.kernel.validation import Declared


def declares(text: bytes) -> list[Declared]:
    """Its key is its path (PBK-210)."""
    found = _playbook(text)
    path = None if found is None else found["metadata"].get("path") or found["metadata"].get("name")
    return [Declared("Playbook", "", str(path), found, text)] if found is not None and path else []


def _playbook(text: bytes) -> dict[str, Any] | None:
    try:
        data = read_document(text).data
    except UnreadableText:
        return None
    is_playbook = isinstance(data, dict) and data.get("kind") == "Playbook" and isinstance(data.get("metadata"), dict)
    return data if is_playbook else None
