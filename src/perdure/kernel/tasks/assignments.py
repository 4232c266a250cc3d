"""What a worker receives, and the interface through which a running task reaches its run."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from perdure.kernel.json_values.values import Instant, Payload, RunId


class Assignment(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One delivery of one attempt of a task. `arguments` and `input` are JSON text; sealed arguments an envelope."""

    run: RunId
    task: int
    path: str
    provider: str
    arguments: bytes
    input: bytes
    attempt: int
    delivery: int
    idempotency_key: str
    deadline: Instant | None = None
    hold_effects_in_doubt: bool = False
    sealed: bool = False
    language: str = ""  # of the run
    suspicion: int = 0  # whether its process may have been lost because of it, see `crash_attribution`
    losses: int = 0
    apart: bool = False  # runs in a process of its own, whatever its provider declares
    secrets: tuple[str, ...] = ()  # secret names in the run's document: masked in whatever any task of the run reports
    namespace: str = "default"  # of the run; the operator's policy may depend on it
    document_namespace: str = ""  # of the run's document, where it says so; the policy of both counts
    from_api: bool = False  # the run's document came through the API of a server
    traceparent: str = ""  # of its attempt, if the run was started with one (`trace_context`)


def short_name(provider: str, language: str) -> str:
    """The name of a provider in routes and for workers elsewhere: without the prefix of the language that calls it."""
    return provider.removeprefix(f"{language}.")


NOT_IMPORTED = "Platform.NotImported"
"""The outcome of an assignment that had to run in isolation and could not be started there. It is never recorded."""


class EffectClaimResult(msgspec.Struct, frozen=True):
    """The answer to a request to perform an effect.

    completed: it was performed before; `result` is its result, `unfit` why that has no JSON form.
    in_doubt: an earlier holder claimed it and vanished; it may have happened.
    """

    completed: bool
    in_doubt: bool = False
    result: bytes | None = None
    unfit: str | None = None


class RunPort(Protocol):
    """How a running task reaches its run. Every awaited call returns once the fact is durable."""

    async def claim_effect(self, key: str) -> EffectClaimResult: ...
    async def complete_effect(self, key: str, result: bytes) -> None: ...
    async def complete_effect_unfit(self, key: str, reason: str) -> None: ...
    async def release_effect(self, key: str) -> None: ...
    async def emit_signal(self, name: str, value: bytes) -> None: ...
    async def report(self, body: bytes) -> bytes | None: ...
    def heartbeat(self, detail: bytes | None) -> None: ...
    def log(self, level: str, message: str, fields: dict[str, Any]) -> None: ...


class StreamRows(Protocol):
    """Rows of a run beside its log, for packets of its streams: written together, or not at all."""

    async def read(self) -> list[tuple[bytes, bytes]]: ...

    async def write(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Returns once they are durable. None as a body: the row is removed."""


class AssignmentMessage(msgspec.Struct, array_like=True, frozen=True):
    """An assignment on its way to another process; large values travel by reference."""

    assignment: Assignment
    arguments: Payload
    input: Payload


class OfferedPipeline(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Beside a task of a pool: what its worker needs to apply the task's rules and to go on with what follows."""

    number: int  # of the pipeline within its run
    needs: tuple[str, ...]  # short names of all providers that its tasks in this pool use
    body: bytes  # JSON text, for the language that has made it


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(AssignmentMessage)
_pipeline = msgspec.msgpack.Decoder(OfferedPipeline)


def encode_pipeline(pipeline: OfferedPipeline) -> bytes:
    return _encode(pipeline)


def decode_pipeline(text: bytes) -> OfferedPipeline | None:
    return _pipeline.decode(text) if text else None


def encode_assignment(parcel: AssignmentMessage) -> bytes:
    return _encode(parcel)


def decode_assignment(body: bytes) -> AssignmentMessage:
    return _decoder.decode(body)
