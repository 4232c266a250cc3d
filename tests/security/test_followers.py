"""Thousands may follow the changes of runs: what is done for them is done a little at a time (SRV-071)."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from perdure.server.kubernetes import feed_tail, run_resources
from perdure.stores.feed_changes import RUN, EntryFacts, FeedChange, FeedPage
from perdure.stores.protocol import RunFilter
from perdure.views.runs.run_changes import MISSED_AT_ONCE, WOKEN_AT_ONCE, ChangeFeed


class Feed:
    """A feed in memory, which counts how much is read of it."""

    def __init__(self, count: int) -> None:
        self.changes: list[FeedChange] = []
        self.read = 0
        self.add(count)

    def add(self, count: int) -> None:
        first = len(self.changes) + 1
        self.changes += [
            FeedChange(at, 0, RUN, "default", f"r{at}", 1, False, "running", "flow", "d", None, {}, 0, None, None)
            for at in range(first, first + count)
        ]

    async def read_feed(self, after: int, limit: int) -> FeedPage:
        changes = self.changes[after : after + limit]
        self.read += len(changes)
        return FeedPage(0, len(self.changes), changes)


async def most_in_a_turn(count: Callable[[], int], is_over: Callable[[], bool]) -> int:
    """By how much a count grows between two turns of the event loop, at most."""
    most, before = 0, count()
    async with asyncio.timeout(60):
        while not is_over():
            await asyncio.sleep(0)
            most, before = max(most, count() - before), count()
    return most


async def test_followers_of_one_caller_read_what_they_have_missed_in_turn() -> None:
    """Two hundred who had missed three thousand changes kept everybody else waiting for twenty seconds."""
    store = Feed(1_000)
    feed = ChangeFeed(SimpleNamespace(store=store, clock=SimpleNamespace(now=lambda: 0)), lambda who: True)  # type: ignore[arg-type]
    positions: list[int] = []

    async def follow(who: str) -> None:
        messages = feed.follow(RunFilter(), 0, who)
        seen = 0
        while seen < 1_000:
            seen += (await anext(messages)).count(b"event: status")
        await messages.aclose()
        positions.append(seen)

    followers = [asyncio.ensure_future(follow(who)) for who in ("ada", "bob") for _ in range(30)]
    most = await most_in_a_turn(lambda: store.read, lambda: len(positions) == 60)
    assert most <= 2 * MISSED_AT_ONCE + 60, "a page for each caller, and a look of each follower"
    assert set(positions) == {1_000}
    await asyncio.gather(*followers)


async def test_followers_are_woken_some_at_a_time() -> None:
    """Nine hundred wrote to their connections in one turn of the event loop."""
    store = Feed(1)
    feed = ChangeFeed(SimpleNamespace(store=store, clock=SimpleNamespace(now=lambda: 0)), lambda who: True)  # type: ignore[arg-type]
    heard = 0

    async def follow(messages: AsyncGenerator[bytes, Any]) -> None:
        nonlocal heard
        while b"r51" not in await anext(messages):
            pass
        heard += 1

    streams = [feed.follow(RunFilter(), None, number) for number in range(400)]
    for stream in streams:
        await anext(stream)  # its position
    followers = [asyncio.ensure_future(follow(stream)) for stream in streams]
    reading = asyncio.ensure_future(feed.run())
    while feed.followers < 400:
        await asyncio.sleep(0)
    store.add(50)
    most = await most_in_a_turn(lambda: heard, lambda: heard == 400)
    assert most <= WOKEN_AT_ONCE
    reading.cancel()
    await asyncio.gather(reading, *followers, return_exceptions=True)
    for stream in streams:
        await stream.aclose()


async def test_what_a_change_means_is_computed_once_for_all_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 600 watches counted the runs of a Story when any Story had changed: others waited for two seconds."""
    counts = 0

    async def with_usage(client: Any, kind: Any, resources: Any) -> Any:
        nonlocal counts
        counts += 1
        await asyncio.sleep(0)
        return list(resources)

    monkeypatch.setattr(feed_tail, "with_usage", with_usage)
    tail = feed_tail.FeedTail(SimpleNamespace(), run_resources.RunViews())  # type: ignore[arg-type]
    facts = EntryFacts("uid", 1, 0, None)
    body = b'{"kind":"Story","metadata":{"name":"s"}}'
    change = FeedChange(7, 0, "Story", "red", "s", 1, False, None, None, None, None, {}, None, None, body, facts)
    kind: Any = SimpleNamespace(name="Story")
    changes_of_tails = await asyncio.gather(*(tail.counted(change, kind) for _ in range(50)))
    assert counts == 1 and all(changes == changes_of_tails[0] for changes in changes_of_tails)
    assert [changed.last["metadata"]["name"] for changed in changes_of_tails[0]] == ["s"]
