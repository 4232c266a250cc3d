"""A run starts another document, of any language: which document that is, and which options the child gets.

It is the one that was applied with the run and is recorded in its options, so that a child finds the same; otherwise
what the catalog holds at that moment. Either way the text is pinned for the child: later changes do not affect it.
"""

from functools import lru_cache
from typing import Any

import msgspec

from perdure.kernel.documents.lookups import Callee, CalleeLookup
from perdure.kernel.json_values import jsontext
from perdure.kernel.turn import Turn

DEEPEST = 16
"""How many runs may start each other in a row, in whatever language (PBK-204)."""


HANDED_ON = ("folder", "env")
"""Options that a child inherits from its parent: where scripts are, and the variables that were allowed."""


class RecordedDocument(msgspec.Struct, frozen=True):
    """A document as it is recorded with a run that may start it."""

    names: list[str]
    language: str
    text: str
    version: str = ""
    calls: bool = False  # it may start other documents itself
    file: str = ""


def depth(turn: Turn) -> int:
    """How many ancestors this run has."""
    return int(jsontext.decode(turn.state.options).get("depth", 0))


def is_too_deep(turn: Turn) -> bool:
    return depth(turn) >= DEEPEST


def find_callee(turn: Turn, name: str, version: str | None = None, language: str = "") -> Callee | None:
    """The document with this name or path, perhaps of one language only. A path may be that of an applied file.

    Without a version it is the one applied last, or the namespace's latest.
    """
    applied = [
        document
        for document in recorded_documents(turn.state.options)
        if (name in document.names or _is_file(name, document.file))
        and version in (None, document.version)
        and language in ("", document.language)
    ]
    if applied:
        latest = applied[-1]
        return Callee(latest.language, latest.text.encode(), latest.calls)
    return turn.callee(CalleeLookup(name, version, turn.execution.namespace, language))


def _is_file(name: str, file: str) -> bool:
    """Whether a path as a document writes it (`./part.yaml`) can be this file: where the document was is not known."""
    if not file or not name.endswith((".yaml", ".yml", ".json")):
        return False
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return file.replace("\\", "/").split("/")[-len(parts) :] == parts


def options_for(turn: Turn, callee: Callee, extra: dict[str, Any] | None = None) -> bytes:
    """The options of the child besides its input. Most children start no documents: then nothing is copied for them."""
    options: dict[str, Any] = {**(extra or {}), "depth": depth(turn) + 1}
    own_options = jsontext.decode(turn.state.options)
    options |= {name: own_options[name] for name in HANDED_ON if name in own_options}
    if callee.calls and own_options.get("applied"):
        options["applied"] = own_options["applied"]
    return jsontext.encode(options)


@lru_cache(maxsize=32)
def recorded_documents(options: bytes) -> list[RecordedDocument]:
    return msgspec.convert(jsontext.decode(options).get("applied", []), list[RecordedDocument])
