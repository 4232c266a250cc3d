"""Runs that wait for a resource which loaded code stands for: nobody applies it, so nobody else tells them."""

from collections.abc import Iterable, Sequence

from perdure.kernel.dialect import Dialect, Stocked
from perdure.kernel.permits import RESOURCES, resource_of
from perdure.kernel.values import RunId
from perdure.stores.protocol import Store


async def brought_by_code(
    store: Store, dialects: Iterable[Dialect], partitions: Sequence[int]
) -> list[tuple[RunId, int]]:
    """Runs of these partitions, and the permits under which each waits for something that is loaded here (STY-118)."""
    stocked = [one for one in dialects if isinstance(one, Stocked)]
    asked = await store.awaited(RESOURCES, partitions) if stocked else []
    is_here: dict[str, bool] = {}
    for _, _, scope in asked:
        if scope not in is_here:
            wanted = resource_of(scope)
            is_here[scope] = wanted is not None and any(one.provided(*wanted) is not None for one in stocked)
    return [(run, permit) for run, permit, scope in asked if is_here[scope]]
