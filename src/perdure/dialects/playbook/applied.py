"""Other playbooks that a run may call: those that were applied when it was started, and are recorded with it."""

from functools import lru_cache
from typing import Any

from perdure.documents import UnreadableText, read_document
from perdure.kernel import jsontext
from perdure.kernel.judging import Declared

Applied = list[dict[str, str]]


def find(options: bytes, path: str, version: str | None) -> bytes | None:
    """The document with this `metadata.path` (or name); without a version the one applied last."""
    found = [text for names, its, text in _listed(options) if path in names and version in (None, its)]
    return found[-1].encode() if found else None


def handed_on(options: bytes, document: bytes) -> Applied:
    """What a child needs in its turn; most call nobody, and then nothing is copied into their start."""
    return jsontext.decode(options).get("applied", []) if b"playbook" in document.replace(b"Playbook", b"") else []


def declares(text: bytes) -> list[Declared]:
    """The playbook as a resource: its key is its path (PBK-210)."""
    found = _playbook(text)
    path = None if found is None else found["metadata"].get("path") or found["metadata"].get("name")
    return [Declared("Playbook", "", str(path), found, text)] if found is not None and path else []


@lru_cache(maxsize=32)
def _listed(options: bytes) -> list[tuple[frozenset[str], str, str]]:
    listed = []
    for one in jsontext.decode(options).get("applied", []):
        found = _playbook(one["text"].encode())
        if found is not None:
            metadata = found["metadata"]
            names = frozenset(str(metadata[name]) for name in ("path", "name") if name in metadata)
            listed.append((names, str(metadata.get("version", "")), one["text"]))
    return listed


def _playbook(text: bytes) -> dict[str, Any] | None:
    try:
        data = read_document(text).data
    except UnreadableText:
        return None
    is_playbook = isinstance(data, dict) and data.get("kind") == "Playbook" and isinstance(data.get("metadata"), dict)
    return data if is_playbook else None
