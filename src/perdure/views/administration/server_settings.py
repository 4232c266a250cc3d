"""Servers of one store that were set up differently: policy and routes should be the same, and nobody else compares.

Each server notes its own beside the workers that it has seen, in a row of no pool, and looks at those of the others.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from perdure.engine.client import Client
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.stores.pool_tasks import WorkerRow
from perdure.views.times import iso

NO_POOL = ""
NOTED_EVERY: Instant = 15 * SECOND
GONE_AFTER: Instant = 60 * SECOND
FORGOTTEN_AFTER: Instant = 86_400 * SECOND


class NotedSettings(msgspec.Struct):
    """What one server works with, as it was noted last."""

    name: str
    version: str
    policy: dict[str, Any]
    routes: dict[str, str]
    seen_at: Instant = 0

    def differences(self, other: "NotedSettings") -> list[str]:
        """The names of settings that are unlike: `policy.code`, `route.train`."""
        pairs = (("policy", self.policy, other.policy), ("route", self.routes, other.routes))
        return [f"{table}.{name}" for table, ours, theirs in pairs for name in _unlike(ours, theirs)]


def _unlike(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))


class ServerSettingsLog:
    """What this server notes of itself, and what it finds of others."""

    def __init__(self, client: Client, own: NotedSettings, say: Callable[[str], None]) -> None:
        self._client = client
        self.own = own
        self._say = say
        self._noted_at: Instant = 0
        self._warned: frozenset[str] = frozenset()

    async def note(self, *, has_left: bool = False) -> None:
        """Now and then; a difference is said once."""
        now = self._client.clock.now()
        if not has_left and now - self._noted_at < NOTED_EVERY:
            return
        text = jsontext.encode(msgspec.structs.replace(self.own, seen_at=0)).decode()
        row = WorkerRow(NO_POOL, self.own.name, "", text, "[]", 0, now, now if has_left else None)
        try:
            await self._client.store.note_workers([row], now - FORGOTTEN_AFTER)
            warnings = frozenset() if has_left else frozenset(warnings_of(await self.all()))
        except PerdureError:  # a store that is away: the next time
            return
        self._noted_at = now
        for warning in sorted(warnings - self._warned):
            self._say(warning)
        self._warned = warnings

    async def all(self) -> list[NotedSettings]:
        """Of the servers that are there, this one too."""
        now, noted = self._client.clock.now(), []
        for row in await self._client.store.workers():
            if row.pool == NO_POOL and row.left_at is None and now - row.seen_at < GONE_AFTER:
                settings = msgspec.json.decode(row.providers, type=NotedSettings)
                noted.append(msgspec.structs.replace(settings, seen_at=row.seen_at))
        return noted if any(server.name == self.own.name for server in noted) else [self.own, *noted]


class ServersAnswer(msgspec.Struct):
    """`settings`: of each server its version and routes, and what is unlike those of others."""

    items: list[dict[str, Any]]
    settings: list[dict[str, Any]]
    warnings: list[str]


def warnings_of(servers: Sequence[NotedSettings]) -> list[str]:
    """A sentence for each server that differs from the first one by name."""
    first, *others = sorted(servers, key=lambda server: server.name)
    return [
        f"the servers {first.name} and {other.name} of this store are set up differently: {', '.join(names)}"
        for other in others
        if (names := first.differences(other))
    ]


def settings_json(servers: Sequence[NotedSettings]) -> list[dict[str, Any]]:
    """Names and routes, no policy: it may name addresses and folders."""
    return [
        {
            "name": server.name,
            "version": server.version,
            "routes": server.routes,
            "unlike": sorted({name for other in servers for name in server.differences(other)}),
            "seen_at": iso(server.seen_at) if server.seen_at else None,
        }
        for server in sorted(servers, key=lambda server: server.name)
    ]
