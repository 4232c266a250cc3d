"""Binary frames that arrive in pieces (STR-082, 083).

Pieces come in any order, and some more than once. Frames of which a piece is missing are bounded in number and size,
and given up after two minutes. Contradictions between pieces are an error of whoever published them.

    add ─▶ incomplete ─▶ the whole message        a piece that never comes: the frame is dropped
"""

from collections import OrderedDict

import msgspec

from perdure.streams.stream_graph import SECOND
from perdure.streams.stream_messages import LARGEST_ASSEMBLY, BadMessage, StreamMessage

MOST_OPEN = 256
KEPT_FOR = 120 * SECOND


class _Assembly:
    __slots__ = ("at", "first", "pieces", "size")

    def __init__(self, first: StreamMessage, at: int) -> None:
        self.first = first
        self.at = at
        self.pieces: dict[int, bytes] = {}
        self.size = 0


class ChunkAssembler:
    """Collects the chunks that one step has published."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[str, str], _Assembly] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        """How many frames are incomplete."""
        return len(self._open)

    def add(self, message: StreamMessage, now: int) -> StreamMessage | None:
        """The whole message, once its last chunk is here. Raises `BadMessage` where chunks contradict each other."""
        chunk, frame = message.chunk, message.binary
        assert chunk is not None and frame is not None
        key = chunk.stream_id, chunk.chunk_id
        assembly = self._open.get(key)
        if assembly is None:
            if len(self._open) >= MOST_OPEN:
                raise BadMessage(f"more than {MOST_OPEN} frames are incomplete")
            assembly = self._open[key] = _Assembly(message, now)
        first = assembly.first
        assert first.chunk is not None and first.binary is not None
        if first.chunk.chunk_count != chunk.chunk_count or first.chunk.total_bytes != chunk.total_bytes:
            raise BadMessage(f"the chunks of {chunk.chunk_id!r} disagree about their number or size")
        if (first.kind, first.metadata, first.binary.mime_type) != (message.kind, message.metadata, frame.mime_type):
            raise BadMessage(f"the chunks of {chunk.chunk_id!r} differ in their kind, metadata or mimeType")
        if chunk.chunk_index in assembly.pieces:
            return None  # it came twice
        if self._bytes + len(frame.payload) > LARGEST_ASSEMBLY:
            raise BadMessage(f"incomplete frames have more than {LARGEST_ASSEMBLY} bytes")
        assembly.pieces[chunk.chunk_index] = frame.payload
        assembly.size += len(frame.payload)
        self._bytes += len(frame.payload)
        if len(assembly.pieces) < chunk.chunk_count:
            return None
        self._forget(key)
        if chunk.total_bytes is not None and assembly.size != chunk.total_bytes:
            raise BadMessage(f"the chunks have {assembly.size} bytes together, and say {chunk.total_bytes}")
        whole = b"".join(assembly.pieces[index] for index in range(chunk.chunk_count))
        return msgspec.structs.replace(first, binary=msgspec.structs.replace(first.binary, payload=whole), chunk=None)

    def expire(self, now: int) -> int:
        """How many frames were given up, because their last chunk did not come."""
        old = [key for key, assembly in self._open.items() if now - assembly.at >= KEPT_FOR]
        for key in old:
            self._forget(key)
        return len(old)

    def _forget(self, key: tuple[str, str]) -> None:
        self._bytes -= self._open.pop(key).size
