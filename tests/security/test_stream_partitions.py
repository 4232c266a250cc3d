"""Data exhaust nothing: packets name their partitions, and there is no end of names."""

import asyncio

import pytest

from perdure.services.story.streams import built_in_steps
from perdure.streams import inlet as inlets
from perdure.streams.inlet import Inlet
from perdure.streams.stream_graph import Settings, StreamStep
from perdure.streams.stream_messages import StreamMessage, make_message


def test_numbers_of_settled_partitions_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are written with every commit: 100,000 partitions were 25 MB of each."""
    monkeypatch.setattr(inlets, "MOST_PARTITIONS", 16, raising=False)
    settings = Settings(ordering="per_partition", at_least_once=True, replay="memory", max_messages=1_000)
    inlet = Inlet(StreamStep("a", settings=settings))

    def offer(partition: str) -> int:
        packet, _ = inlet.offer(make_message("m", 0, payload=1), partition, 1, 0)
        assert packet is not None
        return packet.sequence

    offer("unsettled")
    inlet.take(0)
    for number in range(200):
        offer(f"p{number}")
        offer("used")
        for _ in range(2):
            packet = inlet.take(0)
            assert packet is not None
            inlet.acknowledge(packet.position, 0)
    assert len(inlet.state.sequences) <= 18 and len(inlet.state.acked) <= 18
    assert (offer("unsettled"), offer("used"), offer("p199"), offer("p0")) == (2, 201, 2, 1)


async def test_built_in_steps_forget_partitions_without_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        async def finish(self, inbound: "Inbound") -> None:
            pass

    class Inbound:
        def __init__(self, partition: str) -> None:
            self.packet, self.partition, self.staged = self, partition, list[StreamMessage]()

    async def work() -> StreamMessage:
        return make_message("m", 0, payload=1)

    session: object = Session()
    in_order = built_in_steps._InOrder(session)  # type: ignore[arg-type]
    for number in range(100):
        inbound: object = Inbound(f"p{number}")
        in_order.add(inbound, work())  # type: ignore[arg-type]
    await in_order.finish()
    await asyncio.sleep(0)
    assert in_order._last == {}
