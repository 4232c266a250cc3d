"""Limits over many runs. One pure allocator decides which requests are granted."""

from collections.abc import Iterable

import msgspec

from perdure.kernel.json_values.values import Instant, RunId

UNLIMITED = 2**31 - 1
RESOURCES = "resource:"  # prefix of scopes of resources


class PermitRequest(msgspec.Struct, frozen=True):
    run: RunId
    permit: int
    priority: int
    asked_at: Instant
    ageing: Instant = 0  # each such period of waiting adds one to its priority; 0: never


def resource_scope(kind: str, namespace: str, name: str) -> str:
    """The scope under which runs wait for a resource.

    It has no places while the resource is not in the catalog and `UNLIMITED` places while it is, so that a request made
    too late to see it arrive is granted at once.
    """
    return f"{RESOURCES}{kind}/{namespace}/{name}"


def resource_of(scope: str) -> tuple[str, str, str] | None:
    """Kind, namespace and name of the resource awaited under a scope; None if the scope is not of a resource."""
    if not scope.startswith(RESOURCES):
        return None
    kind, namespace, name = scope.removeprefix(RESOURCES).split("/", 2)
    return kind, namespace, name


def grant(limit: int, granted: int, waiting: Iterable[PermitRequest], now: Instant) -> list[PermitRequest]:
    """The requests that get the free places: by priority, including ageing, then in order of request."""

    def place(request: PermitRequest) -> tuple[int, Instant, RunId, int]:
        aged = (now - request.asked_at) // request.ageing if request.ageing else 0
        return (-(request.priority + aged), request.asked_at, request.run, request.permit)

    free = max(0, limit - granted)
    return sorted(waiting, key=place)[:free]
