"""The documents of a run: the one it has, and those that it had before it was moved.

A log folds against its programs in order. What was decided before a move is folded with the document of that time,
whose text is in the move's event, or beside it; everything behind the last move with the document that the run has.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from perdure.kernel.codec import Turns
from perdure.kernel.dialect import Dialect
from perdure.kernel.events import RunMigrated
from perdure.kernel.execution import Execution
from perdure.kernel.json_values.values import Ref, RunId
from perdure.kernel.versions import read_pinned
from perdure.stores.protocol import Store


class FormerDocument(msgspec.Struct, frozen=True):
    """A document that a run was moved from."""

    digest: bytes
    language: str  # as it was pinned
    text: bytes


def moves_in(turns: Turns) -> list[RunMigrated]:
    return [event for _, events in turns for event in events if type(event) is RunMigrated]


def texts_beside(moves: Iterable[RunMigrated]) -> list[bytes]:
    """Digests of the documents that are kept beside the log."""
    return [move.document.digest for move in moves if isinstance(move.document, Ref)]


def former_documents(moves: Sequence[RunMigrated], text_of: Callable[[bytes], bytes]) -> list[FormerDocument]:
    """One for each move; `text_of` gives those that are beside the log."""
    return [
        FormerDocument(
            move.before,
            move.language,
            text_of(move.document.digest) if isinstance(move.document, Ref) else move.document,
        )
        for move in moves
    ]


async def read_former(store: Store, run: RunId, moves: Sequence[RunMigrated]) -> list[FormerDocument]:
    texts = await store.values(run, texts_beside(moves)) if texts_beside(moves) else {}
    missing = [name for name in texts_beside(moves) if name not in texts]
    if missing:
        raise LookupError(f"document {missing[0].hex()[:12]}, which run {run} had before it was moved, is not there")
    return former_documents(moves, texts.__getitem__)


def begin_folding(id: RunId, dialect: Dialect, former: Sequence[FormerDocument], program: Any) -> Execution:
    """A run before its first event, which can fold all of its log; `program` is that of the document it has."""
    programs = [*(compiled_former(dialect, document) for document in former), program]
    execution = Execution(id, dialect, programs[0])
    execution.later_programs = programs[1:]
    return execution


def compiled_former(dialect: Dialect, document: FormerDocument) -> Any:
    return read_pinned(dialect, document.language, document.text)
