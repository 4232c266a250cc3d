"""Programs of different ages on one store: what a newer one has recorded is recognised and never misread.

Everything recorded is read strictly: an event, an input or a member that this program has not heard of is a
`NewerRecord`, not something to skip. A pinned document names the edition of its language.

A new event is written once every live server reads it: a language that could say the same before asks `turn.spoken`,
and says it in the old words until then.
"""

from typing import TYPE_CHECKING, Any

from perdure.kernel.errors import NewerRecord

if TYPE_CHECKING:
    from perdure.kernel.dialect import Dialect

RECORDS = 3
"""Counts the vocabularies of all that is recorded: events of the kernel and of every language, inputs, editions.

A server tells the others which one it reads; runs go from lower to higher ones. `tests/kernel/test_versions.py` notices
a change and says what to do.
"""


def written_in(dialect: "Dialect") -> str:
    """The language of a document as it is pinned: its name, with the edition from the second one on."""
    return dialect.name if dialect.edition == 1 else f"{dialect.name}@{dialect.edition}"


def read_pinned(dialect: "Dialect", text_version: str, text: bytes) -> Any:
    """The program of a pinned document: parsed again, never judged again."""
    name, _, edition = text_version.partition("@")
    if name == dialect.name and int(edition or 1) > dialect.edition:
        raise NewerRecord(
            f"its document is written in edition {edition} of {name!r}; this version knows edition {dialect.edition}"
        )
    return dialect.load(text)
