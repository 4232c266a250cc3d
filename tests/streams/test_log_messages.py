"""A hub whose packets are messages of one stream elsewhere keeps the laws too, wherever its writer is interrupted."""

from random import Random
from typing import NamedTuple

import pytest

from perdure.streams.hub import Hub
from perdure.streams.inlet import InletState, Packet
from perdure.streams.log_messages import (
    HEAD,
    IDS,
    KeptMessage,
    LogMessage,
    MessageLog,
    PacketName,
    read_head,
    restore,
    take_over,
    text_of,
    token,
)
from perdure.streams.stream_messages import make_message
from perdure.streams.stream_rows import Changes
from tests.sampling import Sample
from tests.streams.test_simulation import RUN, SEEDS, NoExpressions, Simulation, check_done


class Stored(NamedTuple):
    place: int
    message: LogMessage


class SimulatedStream:
    """Takes a message only if it follows the one that is expected, and if the last head is that of its writer."""

    def __init__(self) -> None:
        self.last = 0
        self.stored: dict[int, LogMessage] = {}
        self.head: Stored | None = None

    def take(self, message: LogMessage, expected: int, head: int) -> bool:
        if expected != self.last or head != (self.head.place if self.head else 0):
            return False
        self.last += 1
        if message.subject == HEAD:
            self.head = Stored(self.last, message)
        else:
            self.stored[self.last] = message
        return True

    def kept(self, kind: str) -> list[KeptMessage]:
        return [
            KeptMessage(place, message.id, message.body)
            for place, message in self.stored.items()
            if message.subject.startswith(kind)
        ]


class Writer:
    def __init__(self, stream: SimulatedStream, draw: Random) -> None:
        """Take over, which may be interrupted and begun again."""
        self.stream, self.draw = stream, draw
        for _ in range(draw.choice([1, 1, 2])):
            before = stream.head
            place = before.place if before else 0
            self.head, message = take_over(before.message.body if before else None, place)
            assert stream.take(message, stream.last, place)
        self.sequence = stream.last
        self.restored = restore(self.head, stream.kept("packets"), stream.kept(IDS))
        for place in self.restored.refused:
            del stream.stored[place]
        self.log = MessageLog(self.head.epoch, 200, self.restored.kept)
        for kept in stream.kept(IDS):
            self._note_ids(kept.id, kept.place)

    def _note_ids(self, id: str, place: int) -> None:
        _, last, step = id.split(".", 2)
        self.log.note_ids(step, int(last), place)

    def write(self, changes: Changes, stops_after: int | None = None) -> bool:
        """Whether all of it was taken; `stops_after` so many messages the writer dies."""
        messages = self.log.write(changes)
        assert self.stream.head is not None
        base, head = self.sequence, self.stream.head.place
        for number, message in enumerate(messages[:stops_after]):
            if not self.stream.take(message, base + number, head):
                return False
            if message.subject.startswith(IDS):
                self._note_ids(message.id, base + number + 1)
        if stops_after is not None and stops_after < len(messages):
            return False
        self.sequence = base + len(messages)
        gone = set(changes.removed)
        for place, message in list(self.stream.stored.items()):
            name = PacketName.read(message.id) if message.subject.startswith("packets") else None
            if name is not None and (name.step, name.position) in gone and self.draw.random() < 0.7:
                del self.stream.stored[place]  # the others lose their acknowledgement
        for place in self.log.take_old_ids(changes.ids_removed):
            self.stream.stored.pop(place, None)
        return True


class LogSimulation(Simulation):
    def __init__(self, seed: int) -> None:
        self.stream = SimulatedStream()
        super().__init__(seed, "durable")
        self.writer = Writer(self.stream, self.draw)

    def flush(self) -> None:
        changes = self.hub.take_changes()
        if self.draw.random() < 0.15:
            assert not self.writer.write(changes, self.draw.randrange(len(changes.put) + 1))
            self.crash_hub()
            return
        assert self.writer.write(changes)
        for step, number in self.unanswered:
            self.answered[step].add(number)
        self.unanswered.clear()

    def crash_hub(self) -> None:
        former, pending = self.writer, self.hub.take_changes()
        self.writer = Writer(self.stream, self.draw)
        assert not former.write(pending), "a former owner writes nothing"
        super().crash_hub()

    def restored_hub(self) -> Hub:
        hub = Hub(self.topology, NoExpressions(), RUN)
        hub.restore(self.writer.restored.kept, self.now)
        return hub

    def drain(self) -> None:
        self.draw.random = lambda: 1.0  # type: ignore[method-assign]
        super().drain()


def run(seed: int) -> LogSimulation:
    simulation = LogSimulation(seed)
    for _ in range(1_500):
        simulation.step()
    simulation.drain()
    return simulation


def test_a_stream_of_messages_loses_nothing_wherever_its_writer_stops(sample: Sample) -> None:
    """STR-062 STR-064 STR-066 STR-069 STR-089 STR-110 STR-122: in order, and nothing of a former owner gets in."""
    for seed in sample.take(SEEDS, 2):
        simulation = run(seed)

        check_done(simulation)
        assert simulation.stream.head is not None
        head = read_head(simulation.stream.head.message.body)
        left = [PacketName.read(message.id) for message in simulation.stream.kept("packets")]
        assert not [name for name in left if head.counts(name.step, name.position)], f"seed {seed}: nothing counts"


@pytest.mark.parametrize("order", [(1, 2, 3, 4, 5), (5, 4, 3, 2, 1), (2, 4, 1, 5, 3)])
def test_the_head_says_which_packets_count(order: tuple[int, ...]) -> None:
    """STR-110: whatever order they are acknowledged in; a number that was never written is no gap."""
    positions = {1: 1, 2: 2, 3: 5, 4: 6, 5: 9}
    packets = [Packet(positions[number], make_message(str(number), 0, payload=number), 0) for number in sorted(order)]
    log = MessageLog(1, 1000)
    log.write(Changes([("s", packet) for packet in packets], [], {"s": InletState(position=9)}, {}, {}))
    alive = set(positions.values())
    for number in order:
        head = read_head(log.write(Changes([], [("s", positions[number])], {}, {}, {}))[-1].body)
        alive.discard(positions[number])
        assert {position for position in range(12) if head.counts("s", position)} == alive
    assert head.kept == {"s": []}


def test_the_head_stays_small_while_one_packet_waits() -> None:
    """STR-110, the tenth thing: what was acknowledged behind it leaves nothing."""
    log = MessageLog(1, 1000)
    for position in range(1, 3_000):
        packet = Packet(position, make_message("m", 0, payload=0), 0)
        removed = [("s", position - 1)] if position > 2 else []
        messages = log.write(Changes([("s", packet)], removed, {"s": InletState(position=position)}, {}, {}))
    assert read_head(messages[-1].body).kept == {"s": [(1, 1), (2_999, 2_999)]}


@pytest.mark.parametrize("text", ["", "0", "a.b", "*", ">", "ü b", "%", "_", "parallel/join"])
def test_any_text_is_a_token(text: str) -> None:
    """STR-110: partitions are texts of the publisher."""
    assert text_of(token(text)) == text
    assert token(text) and not set(token(text)) & set(". *>\t")


def test_a_large_packet_comes_back_whole() -> None:
    """STR-110."""
    message = make_message("big", 0, payload="x" * 1000)
    log = MessageLog(1, 100)
    packet = Packet(1, message, 7, "p")
    messages = log.write(Changes([("s", packet)], [], {"s": InletState(position=1)}, {}, {}))
    head, _ = take_over(messages[-1].body, len(messages))
    kept = [KeptMessage(place, message.id, message.body) for place, message in enumerate(messages[:-1], 1)]

    assert len(kept) > 10
    assert restore(head, reversed(kept), ()).kept.packets == {"s": [packet]}
