"""A run starts another document, of any language: which one is meant, and what the child is told.

Meant is what was applied with the run and is recorded in its options, so that a child finds the same ones; else what
the catalog holds at that moment. Either way the text becomes the child's own: what is changed later concerns nobody.
"""

from functools import lru_cache
from typing import Any

import msgspec

from perdure.kernel import jsontext
from perdure.kernel.lookups import Callee, CalleeLookup
from perdure.kernel.turn import Turn

DEEPEST = 16
"""How many runs may start each other in a row, whatever they are written in (PBK-204)."""


HANDED_ON = ("folder", "env")
"""What a child is told as its parent was: where scripts lie, and the variables that were allowed."""


class RecordedDocument(msgspec.Struct, frozen=True):
    """A document as it is recorded with a run that may start it."""

    names: list[str]
    language: str
    text: str
    version: str = ""
    calls: bool = False  # it may start others in its turn
    file: str = ""


def depth(turn: Turn) -> int:
    """How many runs stand above this one."""
    return int(jsontext.decode(turn.state.options).get("depth", 0))


def is_too_deep(turn: Turn) -> bool:
    return depth(turn) >= DEEPEST


def find_callee(turn: Turn, name: str, version: str | None = None) -> Callee | None:
    """The document that goes by this name or path; without a version the one applied last, or the catalog's latest."""
    applied = [
        document
        for document in recorded_documents(turn.state.options)
        if name in document.names and version in (None, document.version)
    ]
    if applied:
        latest = applied[-1]
        return Callee(latest.language, latest.text.encode(), latest.calls)
    return turn.callee(CalleeLookup(name, version))


def options_for(turn: Turn, callee: Callee, extra: dict[str, Any] | None = None) -> bytes:
    """What the child is told besides its input. Most call nobody: then nothing is copied into their start."""
    options: dict[str, Any] = {**(extra or {}), "depth": depth(turn) + 1}
    own = jsontext.decode(turn.state.options)
    options |= {name: own[name] for name in HANDED_ON if name in own}
    if callee.calls and own.get("applied"):
        options["applied"] = own["applied"]
    return jsontext.encode(options)


@lru_cache(maxsize=32)
def recorded_documents(options: bytes) -> list[RecordedDocument]:
    return msgspec.convert(jsontext.decode(options).get("applied", []), list[RecordedDocument])
