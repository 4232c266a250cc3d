"""Transitions for tests of stores."""

from typing import Any

from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values.values import RunId, digest
from perdure.kernel.outcomes import Status
from perdure.stores.commit_types import NewRun, RunSummary, Transition
from perdure.stores.protocol import Store

TEXT = b'{"drill": 1}'
PROGRAM = digest(TEXT)
WAITING = RunSummary(Status.WAITING, False, None)


def created(run: str, partition: int, summary: RunSummary = WAITING, **more: Any) -> Transition:
    parent = more.pop("parent", None)
    name, labels, at = more.pop("name", "n"), more.pop("labels", {}), more.pop("at", 1)
    namespace, named = more.pop("named", (more.pop("namespace", DEFAULT_NAMESPACE), None)) or (DEFAULT_NAMESPACE, None)
    new = NewRun("drill", name, PROGRAM, parent, labels, b"k", at, named, namespace)
    return Transition(
        RunId(run),
        partition,
        1,
        row=more.pop("row", b"first"),
        create=new,
        summary=summary,
        programs=[(PROGRAM, "drill", TEXT)],
        **more,
    )


async def granted(store: Store, home: int) -> list[str]:
    """The runs of a partition that were sent something: a permit, where nothing else is sent."""
    return [delivered.message.to for delivered in await store.inbox([home], 10)]
