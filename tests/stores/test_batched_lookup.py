"""Lookups that arrive together are answered by one query."""

import asyncio
from collections.abc import Mapping

import pytest

from perdure.stores.postgres.batched_lookup import BatchedLookup


class Shelf:
    """Answers when it is told to, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.open = asyncio.Event()

    async def fetch(self, keys: list[str]) -> Mapping[str, str]:
        self.asked.append(sorted(keys))
        await self.open.wait()
        if "broken" in keys:
            raise OSError("broken")
        return {key: key.upper() for key in keys if key != "missing"}


async def test_who_asks_while_others_are_answered_shares_the_next_question() -> None:
    shelf = Shelf()
    gathering = BatchedLookup(shelf.fetch)
    first = asyncio.ensure_future(gathering.ask(["a"]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = [asyncio.ensure_future(gathering.ask([key])) for key in ("b", "c", "b", "missing")]
    await asyncio.sleep(0)
    shelf.open.set()

    assert await first == {"a": "A"}
    assert await asyncio.gather(*later) == [{"b": "B"}, {"c": "C"}, {"b": "B"}, {}]
    assert shelf.asked == [["a"], ["b", "c", "missing"]]


async def test_an_answer_is_never_older_than_its_question() -> None:
    shelf = Shelf()
    gathering = BatchedLookup(shelf.fetch)
    first = asyncio.ensure_future(gathering.ask(["a"]))
    while not shelf.asked:
        await asyncio.sleep(0)
    second = asyncio.ensure_future(gathering.ask(["a"]))
    shelf.open.set()
    await asyncio.gather(first, second)

    assert shelf.asked == [["a"], ["a"]]


async def test_one_who_gives_up_takes_the_answer_from_nobody() -> None:
    shelf = Shelf()
    gathering = BatchedLookup(shelf.fetch)
    impatient = asyncio.ensure_future(gathering.ask(["a"]))
    patient = asyncio.ensure_future(gathering.ask(["b"]))
    await asyncio.sleep(0)
    impatient.cancel()
    shelf.open.set()

    assert await patient == {"b": "B"}


async def test_trouble_is_told_to_all_who_asked_and_to_nobody_after_them() -> None:
    shelf = Shelf()
    shelf.open.set()
    gathering = BatchedLookup(shelf.fetch)
    answers = await asyncio.gather(gathering.ask(["broken"]), gathering.ask(["a"]), return_exceptions=True)

    assert all(isinstance(answer, OSError) for answer in answers)
    assert await gathering.ask(["a"]) == {"a": "A"}
    with pytest.raises(OSError):
        await gathering.ask(["broken"])
