"""A run to take along: written as a capsule (`perdure export`), and put into a store of its own to look at."""

from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

import perdure
from perdure.engine.client import Client
from perdure.engine.runs.capsule_writer import write_capsule
from perdure.engine.runs.capsules import Capsule
from perdure.stores.records import (
    LogRecord,
    ProgramRecord,
    RunRecord,
    StreamRowRecord,
    TaskLogRecord,
    ValueRecord,
)
from perdure.views.access import NoParameters, Question, Scope
from perdure.views.errors import BadRequest

if TYPE_CHECKING:
    from perdure.stores.admin import StoreAdmin

LARGEST_ANSWER = 32 << 20  # bytes of a capsule that a server answers
ORDER = (
    ProgramRecord,
    RunRecord,
    ValueRecord,
    LogRecord,
    StreamRowRecord,
    TaskLogRecord,
)  # in which a store takes them


class CapsuleText(msgspec.Struct):
    lines: list[str]


async def read_lines(client: Client, scope: Scope, query: NoParameters) -> CapsuleText:
    lines: list[str] = []
    size = 0
    async for line in write_capsule(client, scope.run, perdure.__version__):
        lines.append(line.decode())
        size += len(line)
        if size > LARGEST_ANSWER:
            raise BadRequest(
                f"the capsule has more than {LARGEST_ANSWER >> 20} MiB",
                hint="Export it where the store is: `perdure export RUN --db URL`.",
            )
    return CapsuleText(lines)


CAPSULE = Question(
    "export_run",
    "/runs/{id}/capsule",
    "the run with its document, history and values, to take along",
    NoParameters,
    CapsuleText,
    read_lines,
)


def fill_store(capsule: Capsule, admin: "StoreAdmin") -> None:
    """Put everything into an empty store."""
    records = sorted(capsule.records, key=lambda record: ORDER.index(type(record)))
    with admin.import_into() as filling:
        for _, batch in groupby(records, type):
            filling.import_batch(filling.as_stored(list(batch)))
