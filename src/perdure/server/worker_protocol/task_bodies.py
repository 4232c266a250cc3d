"""A leased task as its worker is told of it, and what the worker says of its end."""

from collections import OrderedDict
from collections.abc import Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.engine.decision_threads import SMALL, done_aside
from perdure.engine.tasks.leased_tasks import parcel_of
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Payload, Ref
from perdure.kernel.outcomes import Cancelled, Failed, Outcome
from perdure.kernel.tasks.assignments import decode_pipeline
from perdure.server.worker_protocol import worker_types as w
from perdure.stores.pool_tasks import TaskLease
from perdure.views.api_errors import BodyTooLarge
from perdure.views.times import iso

if TYPE_CHECKING:
    from perdure.server.calls import ApiCall

CANCELLED = "Cancelled"
MOST_BYTES = 256 << 20  # of the values that workers put for one task, over all its deliveries
MOST_VALUES = 1_000
TASKS_KEPT = 10_000  # whose values are counted


async def describe_tasks(
    call: "ApiCall", leases: Sequence[TaskLease], opens: Sequence[str], offered: Set[str] | None
) -> list[dict[str, Any]]:
    """To whoever opens its language and offers all that it needs a task goes with its pipeline (SRV-034)."""
    left = call.server.limits.body  # bytes of the answer; what does not fit is fetched by its digest
    described = []
    for lease in leases:
        parcel, lease_for = parcel_of(lease), call.server.tasks.lease_for / SECOND
        assignment = parcel.assignment
        arguments, left = await _value(call, lease, parcel.arguments, left)
        input, left = await _value(call, lease, parcel.input, left)
        deadline, now = assignment.deadline, call.engine.clock.now()
        pipeline = decode_pipeline(lease.pipeline) if assignment.language in opens else None
        if pipeline is not None and offered is not None and not offered >= set(pipeline.needs):
            pipeline = None
        described.append(
            {
                "lease": lease.lease,
                "run": lease.run,
                "task": lease.task,
                "kind": "task" if pipeline is None else "pipeline",
                "pool": lease.pool,
                "provider": assignment.provider.removeprefix(f"{assignment.language}."),
                "language": assignment.language,
                "namespace": lease.namespace,
                "path": assignment.path,
                "attempt": assignment.attempt,
                "delivery": lease.delivery,
                "arguments": arguments,
                "input": input,
                "sealed": assignment.sealed,
                "idempotency_key": assignment.idempotency_key,
                "large": [
                    name for name, value in (("arguments", arguments), ("input", input)) if isinstance(value, dict)
                ],
                "deadline": iso(deadline),
                "deadline_in": None if deadline is None else (deadline - now) / SECOND,
                "lease_until": iso(lease.until),
                "lease_for": lease_for,
                "beat_every": lease_for / 3,
                "holds_effects": assignment.hold_effects_in_doubt,
                "suspicion": assignment.suspicion,
                "losses": assignment.losses,
                "secrets": assignment.secrets,
                "needs": [] if pipeline is None else pipeline.needs,
                "number": lease.number,
                "pipeline": None if pipeline is None else msgspec.Raw(pipeline.body),
                "traceparent": assignment.traceparent or None,
                "sends_secrets": bool(assignment.secrets) and call.server.secrets.sends_to(lease.pool),
            }
        )
    return described


async def _value(call: "ApiCall", lease: TaskLease, payload: Payload, left: int) -> tuple[Any, int]:
    size = payload.size if isinstance(payload, Ref) else len(payload)
    if isinstance(payload, Ref) and size > left:
        return {"$large": payload.digest.hex(), "bytes": size}, left
    return msgspec.Raw(await call.server.tasks.text(lease.run, payload) or b"null"), left - size


async def encode_value(value: Any) -> bytes:
    return await done_aside(SMALL + 1 if jsontext.is_large(value) else 0, partial(jsontext.encode, value))


async def read_failure(body: w.FailBody) -> Outcome:
    if body.code == CANCELLED:
        return Cancelled(body.message)
    details = None if body.details is None else await encode_value(body.details)
    return Failed(body.code, body.message, body.retryable, details)


class PutValues:
    """Large values that workers put before they answer. The store keeps each until its run is removed, named or not.

    Counted per server. A value that is put again is the same one.
    """

    def __init__(self) -> None:
        self._by_task: OrderedDict[tuple[str, int, int, int], dict[bytes, int]] = OrderedDict()

    def add(self, lease: TaskLease, name: bytes, size: int) -> None:
        """Raises `BodyTooLarge`: so many belong to no answer."""
        task = (lease.run, lease.task, parcel_of(lease).assignment.attempt, lease.number)
        sizes = self._by_task.setdefault(task, {})
        self._by_task.move_to_end(task)
        if len(self._by_task) > TASKS_KEPT:
            self._by_task.popitem(last=False)
        if name not in sizes and (len(sizes) >= MOST_VALUES or sum(sizes.values()) + size > MOST_BYTES):
            raise BodyTooLarge(
                f"the values that were put for this task have more than {MOST_BYTES >> 20} MiB together,"
                f" or are more than {MOST_VALUES:,}",
                hint="Put the output once, when it is whole.",
            )
        sizes[name] = size
