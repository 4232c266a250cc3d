"""Programs of different versions on one store: records of a newer one are recognised and never misread.

All records are read strictly: an event, an input or a member that this program does not know is a `NewerRecord` and is
not skipped. A pinned document names the edition of its language.

A new event is written once every live server can read it: until then a language that has an older event for the same
fact checks `turn.record_version` and writes that one.
"""

from typing import TYPE_CHECKING, Any

from perdure.kernel.errors import NewerRecord

if TYPE_CHECKING:
    from perdure.kernel.dialect import Dialect

RECORDS = 11
"""Counts the versions of all records: events of the kernel and of every language, inputs, editions.

A server tells the others which one it reads; runs are handed over from lower to higher ones.
`tests/kernel/test_versions.py` notices a change and says what to do.
"""


def pinned_language(dialect: "Dialect") -> str:
    """The language of a pinned document: its name, with the edition from the second one on."""
    return dialect.name if dialect.edition == 1 else f"{dialect.name}@{dialect.edition}"


def read_pinned(dialect: "Dialect", text_version: str, text: bytes) -> Any:
    """The program of a pinned document: parsed again, never validated again."""
    name, _, edition = text_version.partition("@")
    if name == dialect.name and int(edition or 1) > dialect.edition:
        raise NewerRecord(
            f"its document is written in edition {edition} of {name!r}; this version knows edition {dialect.edition}"
        )
    return dialect.load(text)
