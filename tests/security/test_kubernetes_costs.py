"""What callers of the Kubernetes API can ask for takes no longer than others can wait."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from perdure.engine.resources.field_managers import APPLY, UPDATE, FieldManager, applied, leaves, updated
from perdure.server.kubernetes.discovery import CONFIG_MAP, ApiResource
from perdure.server.kubernetes.feed_tail import FeedTail
from perdure.server.kubernetes.run_resources import RunViews
from perdure.server.kubernetes.selectors import ObjectQuery, ObjectSelection
from perdure.server.kubernetes.watches import LISTED_AT_ONCE, Watch

FIELDS = 20_000


def test_fields_of_managers_are_not_compared_one_by_one() -> None:
    """With each other they were 400 million comparisons, on the event loop."""
    before = {"metadata": {"name": "x", "annotations": {f"k{number}": "a" for number in range(FIELDS)}}}
    after = {"metadata": {"name": "x", "annotations": {f"k{number}": "b" for number in range(FIELDS)}}}
    owner = FieldManager("owner", APPLY, "v1", "", frozenset(leaves(before)))
    other = FieldManager("other", APPLY, "v1", "", frozenset())
    begun = time.process_time()
    result, managers = applied(before, after, [owner], other, force=True)
    assert result == after and [manager.name for manager in managers] == ["other"]
    result, managers = applied(after, {"metadata": {"name": "x"}}, managers, other, force=True)
    assert not result["metadata"].get("annotations")
    (writer,) = updated(before, after, [owner], FieldManager("writer", UPDATE, "v1", "", frozenset()))
    assert len(writer.fields) == FIELDS
    assert time.process_time() - begun < 20


async def test_watches_that_begin_together_list_a_page_at_a_time() -> None:
    """Each had the whole list in memory, and made it without a pause."""
    reading = most = 0

    class Objects:
        async def page(self, namespace: Any, selection: Any, limit: int, behind: Any) -> tuple[list[Any], Any]:
            nonlocal reading, most
            reading += 1
            most = max(most, reading)
            await asyncio.sleep(0)
            reading -= 1
            assert 0 < limit <= LISTED_AT_ONCE
            begin = behind[0] if behind else 0
            end = min(begin + limit, 250)
            items = [{"metadata": {"name": f"c{number}", "namespace": "n"}} for number in range(begin, end)]
            return items, [end] if end < 250 else None

    class Store:
        async def read_feed(self, position: int, limit: int) -> Any:
            return SimpleNamespace(floor=0, last=0, changes=[], continues=lambda position: True)

    class Tail(FeedTail):
        async def follow(self, position: int) -> Any:
            yield []

    client: Any = SimpleNamespace(store=Store())
    tokens = SimpleNamespace(is_valid=lambda caller: True)
    server = SimpleNamespace(authentication=SimpleNamespace(tokens=tokens), is_stopping=True)
    call: Any = SimpleNamespace(
        caller=None, query=ObjectQuery(watch=True), path={}, headers={}, engine=client, server=server
    )
    call.query = ObjectQuery(watch=True)
    tail = Tail(client, RunViews())

    async def watched() -> int:
        watch = Watch(call, ApiResource(CONFIG_MAP), Objects(), tail, ObjectSelection(call.query))
        return len([line async for part in watch.stream().events for line in part.splitlines()])

    assert await asyncio.gather(*(watched() for _ in range(20))) == [250] * 20
    assert most == 1
