"""How a task of a worker elsewhere reaches its run, and what the server keeps for it: calls under its lease."""

import secrets
from collections.abc import Iterable, Iterator
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from perdure.kernel.errors import Conflict, PerdureError
from perdure.kernel.json_values import jsontext
from perdure.kernel.outcomes import Code
from perdure.kernel.secrets.credentials import is_reference, secret_texts
from perdure.kernel.tasks.assignments import EffectClaimResult
from perdure.providers.failure import ProviderFailure

CREDENTIAL, CONFIG = "credential:", "config:"


class LeaseCalls(Protocol):
    async def ask(self, lease: str, path: str, body: Any, **headers: str) -> Any: ...
    def add_line(self, lease: str, line: dict[str, Any]) -> None: ...


def task_path(lease: str, rest: str) -> str:
    return f"/worker/tasks/{lease}/{rest}"


class ServerPort:
    """How a running task reaches its run. What a lost answer leaves open is asked again, and answered the same."""

    def __init__(self, source: LeaseCalls, lease: str) -> None:
        self._source = source
        self._lease = lease
        self._lines = 0

    async def _ask(self, path: str, body: Any, **headers: str) -> Any:
        try:
            return await self._source.ask(self._lease, path, body, **headers)
        except ConnectionError as error:
            raise Conflict(f"the server cannot be reached: {error}") from None

    async def claim_effect(self, key: str) -> EffectClaimResult:
        answer = await self._ask(f"effects/{quote(key, safe='')}/claim", {})
        state = answer["state"]
        result = jsontext.encode(answer["result"]) if "result" in answer else None
        return EffectClaimResult(state == "completed", state in ("in_doubt", "held"), result, answer.get("unfit"))

    async def complete_effect(self, key: str, result: bytes) -> None:
        await self._ask(f"effects/{quote(key, safe='')}/complete", {"result": msgspec.Raw(result)})

    async def complete_effect_unfit(self, key: str, reason: str) -> None:
        await self._ask(f"effects/{quote(key, safe='')}/complete", {"unfit": reason})

    async def release_effect(self, key: str) -> None:
        await self._ask(f"effects/{quote(key, safe='')}/release", {})

    async def emit_signal(self, name: str, value: bytes) -> None:
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        await self._ask(f"signals/{quote(name, safe='')}", {"value": msgspec.Raw(value)}, **headers)

    async def report(self, body: bytes) -> bytes | None:
        answer = await self._ask("report", {"body": msgspec.Raw(body)})
        return jsontext.encode(answer["answer"])

    def heartbeat(self, detail: bytes | None) -> None:
        """The worker keeps all leases together."""

    def log(self, level: str, message: str, fields: dict[str, Any]) -> None:
        self._lines += 1
        line = {"message": message, "level": level, "fields": fields, "number": self._lines}
        self._source.add_line(self._lease, line)


class SentSecrets:
    """What a server sends of the credentials and Secrets that it keeps, for one task; forgotten with the task."""

    def __init__(self, source: LeaseCalls, lease: str) -> None:
        self._source = source
        self._lease = lease
        self._sent: dict[str, Any] = {}
        self._asked: set[str] = set()
        self.secrets = self

    async def _ask(self, names: Iterable[str]) -> None:
        missing_names = [name for name in names if name not in self._asked]
        if not missing_names:
            return
        try:
            answer = await self._source.ask(self._lease, "secrets", {"names": missing_names})
        except (PerdureError, ConnectionError) as error:
            is_away = isinstance(error, ConnectionError)
            message = f"the server did not send the secrets of the task: {error}"
            raise ProviderFailure(Code.SECRET_MISSING, message, retryable=is_away) from None
        self._asked.update(missing_names)
        self._sent |= answer["secrets"]

    async def value(self, namespace: str, name: str) -> dict[str, Any] | None:
        """The members of a credential, with references as they were written; None: the server has none for the task."""
        await self._ask([f"{CREDENTIAL}{name}"])
        return self.known_value(namespace, name)

    def known_value(self, namespace: str, name: str) -> dict[str, Any] | None:
        value: dict[str, Any] | None = self._sent.get(f"{CREDENTIAL}{name}")
        return value

    async def see(self, namespace: str, names: Iterable[str]) -> "SentSecrets":
        """Be sent those of the names that are Secrets and ConfigMaps, before the task begins."""
        await self._ask(name for name in names if "/" in name and not name.startswith((CREDENTIAL, "env:", "file:")))
        return self

    def secret(self, name: str) -> str | None:
        return self._text(name)

    def config(self, name: str, key: str) -> str | None:
        return self._text(f"{CONFIG}{name}/{key}")

    def _text(self, name: str) -> str | None:
        value: str | None = self._sent.get(name)
        return value

    def texts(self, name: str) -> Iterator[str]:
        """What must be masked for `NAME/KEY`, or for `NAME/*`."""
        values = [self._sent.get(name)]
        if name.endswith("/*"):
            values += [value for known, value in self._sent.items() if known.startswith(name.removesuffix("*"))]
        for value in values:
            yield from (text for text in secret_texts(value) if not is_reference(text))
