"""Messages: where they go, and how they get there inside or outside a commit."""

from collections.abc import Sequence
from zlib import crc32

from msgspec.structs import replace

from perdure.kernel.json_values.values import RunId
from perdure.stores.commit_types import DeliveredMessage, Message
from perdure.stores.postgres.session import Session, Step
from perdure.stores.postgres.wire import BLOB, BLOBS, INT, INTS, TEXT, TEXTS, Statement

SHARED = 64
MESSAGE_BITS = 20

_SEND = Statement(
    # Whoever removes the run waits until the message is there, and then sees it.
    "INSERT INTO inbox (partition, position, run, at, body, is_word)"
    " SELECT partition, nextval('inbox_positions'), id, coalesce({}, instant()), {}, {} FROM runs WHERE id = {}"
    " FOR KEY SHARE RETURNING position, partition, at",
    INT,
    BLOB,
    INT,
    TEXT,
)
_SEND_UNBORN = Statement(
    "INSERT INTO inbox (partition, position, run, at, body, is_word)"
    " SELECT partition, nextval('inbox_positions'), run, coalesce({}, instant()), {}, {} FROM inbox WHERE run = {}"
    " ORDER BY position LIMIT 1 RETURNING position, partition, at",
    INT,
    BLOB,
    INT,
    TEXT,
)
_SEND_ALL = Statement(
    "WITH step AS MATERIALIZED (SELECT nextval('inbox_positions') AS at)"
    " INSERT INTO inbox (partition, position, run, at, body)"
    " SELECT coalesce(r.partition, n.home), step.at + n.place, n.run, n.at, n.body"
    " FROM step, unnest({}, {}, {}, {}, {}) AS n (place, run, at, body, home) LEFT JOIN runs r ON r.id = n.run"
    " RETURNING position, partition",
    INTS,
    TEXTS,
    INTS,
    BLOBS,
    INTS,
)


def birthplace(run: RunId, sender: int) -> int:
    """Where a child is born: among what is shared it is spread, a private run keeps it."""
    return 1 + crc32(run.encode()) % SHARED if sender <= SHARED else sender


def send(session: Session, message: Message, *, stamps: bool, statement: Statement = _SEND) -> DeliveredMessage | None:
    """None when there is no such run. With `stamps` it arrives when the store's clock says that it is written."""
    rows = session.run(statement, None if stamps else message.at, message.body, int(message.is_control), message.to)
    for position, partition, at in rows:
        return DeliveredMessage(position, partition, replace(message, at=at))
    return None


def send_together(session: Session, messages: Sequence[Message], *, stamps: bool) -> list[DeliveredMessage]:
    """In one transaction; to a run that is not there yet, where its start is."""
    delivered = []
    with session.transaction():
        for message in messages:
            message_sent = send(session, message, stamps=stamps)
            message_sent = message_sent or send(session, message, stamps=stamps, statement=_SEND_UNBORN)
            if message_sent is not None:
                delivered.append(message_sent)
    return delivered


def send_all(session: Session, messages: Sequence[tuple[Message, int]]) -> list[DeliveredMessage]:
    """Messages with the partition of their sender, inside a transaction."""
    if not messages:
        return []
    statement, values = insert_statement(messages)
    return delivered(session.run(statement, *values), [message for message, _ in messages])


def insert_statement(messages: Sequence[tuple[Message, int]]) -> Step:
    """What sends them; `delivered` understands the answer."""
    return _SEND_ALL, (
        range(len(messages)),
        [message.to for message, _ in messages],
        [message.at for message, _ in messages],
        [message.body for message, _ in messages],
        [birthplace(message.to, sender) for message, sender in messages],
    )


def delivered(rows: Sequence[tuple[int, int]], messages: Sequence[Message]) -> list[DeliveredMessage]:
    """What positions say of messages that were sent together."""
    mask = (1 << MESSAGE_BITS) - 1
    return [DeliveredMessage(position, partition, messages[position & mask]) for position, partition in sorted(rows)]
