"""Runs that wait for a resource which loaded code stands for: nobody applies it, so nobody else tells them."""

from collections.abc import Iterable, Sequence

from perdure.kernel.dialect import Dialect
from perdure.kernel.permits import RESOURCES, resource_of
from perdure.kernel.values import RunId
from perdure.stores.protocol import Store


async def brought_by_code(
    store: Store, dialects: Iterable[Dialect], partitions: Sequence[int]
) -> list[tuple[RunId, int]]:
    """Runs of these partitions, and the permits under which each waits for something that is loaded here (STY-118)."""
    providing = [dialect for dialect in dialects if dialect.provides_resources]
    asked = await store.awaited(RESOURCES, partitions) if providing else []
    is_here: dict[str, bool] = {}
    for _, _, scope in asked:
        if scope not in is_here:
            wanted = resource_of(scope)
            is_here[scope] = wanted is not None and any(dialect.provided(*wanted) is not None for dialect in providing)
    return [(run, permit) for run, permit, scope in asked if is_here[scope]]
