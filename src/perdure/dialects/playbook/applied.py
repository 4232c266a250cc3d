"""Other playbooks that a run may call: those that were applied when it was started, and are recorded with it."""

from functools import lru_cache
from typing import Any

from perdure.documents import UnreadableText, read_document
from perdure.kernel import jsontext

Applied = list[dict[str, str]]


def find(options: bytes, path: str, version: str | None) -> bytes | None:
    """The document with this `metadata.path` (or name); without a version the one applied last."""
    found = [text for names, its, text in _listed(options) if path in names and version in (None, its)]
    return found[-1].encode() if found else None


def handed_on(options: bytes, document: bytes) -> Applied:
    """What a child needs in its turn; most call nobody, and then nothing is copied into their start."""
    return jsontext.decode(options).get("applied", []) if b"playbook" in document.replace(b"Playbook", b"") else []


@lru_cache(maxsize=32)
def _listed(options: bytes) -> list[tuple[frozenset[str], str, str]]:
    listed = []
    for one in jsontext.decode(options).get("applied", []):
        metadata = _metadata(one["text"])
        if metadata is not None:
            names = frozenset(str(metadata[name]) for name in ("path", "name") if name in metadata)
            listed.append((names, str(metadata.get("version", "")), one["text"]))
    return listed


def _metadata(text: str) -> dict[str, Any] | None:
    try:
        data = read_document(text.encode()).data
    except UnreadableText:
        return None
    is_playbook = isinstance(data, dict) and data.get("kind") == "Playbook" and isinstance(data.get("metadata"), dict)
    return data["metadata"] if is_playbook else None
