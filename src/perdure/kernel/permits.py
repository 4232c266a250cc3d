"""Limits over many runs. One pure allocator decides who may go; a run only asks and is told."""

from collections.abc import Iterable

import msgspec

from perdure.kernel.values import Instant, RunId

UNLIMITED = 2**31 - 1
RESOURCES = "resource:"  # how scopes of resources begin


class PermitRequest(msgspec.Struct, frozen=True):
    run: RunId
    permit: int
    priority: int
    asked_at: Instant
    ageing: Instant = 0  # each time so long has passed it gains one step of priority; 0: never


def resource_scope(kind: str, namespace: str, name: str) -> str:
    """The scope under which runs wait for a resource. It has no places while the resource is not in the catalog and
    `UNLIMITED` ones while it is, so that whoever asks too late to see it arrive is granted at once.
    """
    return f"{RESOURCES}{kind}/{namespace}/{name}"


def resource_of(scope: str) -> tuple[str, str, str] | None:
    """Kind, namespace and name of what is waited for under a scope; None where it is no resource."""
    if not scope.startswith(RESOURCES):
        return None
    kind, namespace, name = scope.removeprefix(RESOURCES).split("/", 2)
    return kind, namespace, name


def grant(limit: int, held: int, waiting: Iterable[PermitRequest], now: Instant) -> list[PermitRequest]:
    """Who gets the free places: higher priority first, with what waiting has added to it, then who asked first."""

    def place(request: PermitRequest) -> tuple[int, Instant, RunId, int]:
        aged = (now - request.asked_at) // request.ageing if request.ageing else 0
        return (-(request.priority + aged), request.asked_at, request.run, request.permit)

    free = max(0, limit - held)
    return sorted(waiting, key=place)[:free]
