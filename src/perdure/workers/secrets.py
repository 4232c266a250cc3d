"""Secrets of one task: resolved just before it runs, and taken out of everything it says.

Arguments carry `{"$secret": "NAME"}` where a value is meant; values never reach the history through failures or logs.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure.kernel import jsontext
from perdure.kernel.outcomes import Code, Failed, Outcome
from perdure.kernel.work import Port
from perdure.providers.failure import ProviderFailure
from perdure.providers.text import is_file_name

Resolver = Callable[[str], str | None]
"""Name → value, or None when there is no such secret."""

MARK = "$secret"
REDACTED = "[redacted]"

_SHORTEST_REDACTED = 4  # a shorter value is no secret, and replacing it would garble every text


class SecretMissing(ProviderFailure):
    def __init__(self, name: str) -> None:
        variable = f"PERDURE_SECRET_{_variable(name)}"
        message = f"secret {name!r} is not set; give it as {variable}, or as the file {name} in PERDURE_SECRETS_DIR"
        super().__init__(Code.SECRET_MISSING, message, retryable=False, details={"secret": name})


def from_environment(name: str) -> str | None:
    """`PERDURE_SECRET_<name>`, then the file `<name>` in `PERDURE_SECRETS_DIR`.

    A secret with keys is asked for as `name/key`: a file in a folder, or a variable with `_` for what cannot be in one.
    """
    value = os.environ.get(f"PERDURE_SECRET_{name}") or os.environ.get(f"PERDURE_SECRET_{_variable(name)}")
    folder = os.environ.get("PERDURE_SECRETS_DIR")
    parts = name.split("/")
    if value is not None or not folder or len(parts) > 2 or not all(map(is_file_name, parts)):
        return value
    try:
        return Path(folder, *parts).read_text("utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError):
        return None


def _variable(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


class Secrets:
    """Looks secrets up for one task and remembers which ones it has handed out."""

    __slots__ = ("_known", "_resolve")

    def __init__(self, resolve: Resolver) -> None:
        self._resolve = resolve
        self._known: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._known:
            value = self._resolve(name)
            if value is None:
                raise SecretMissing(name)
            self._known[name] = value
        return self._known[name]

    def fill(self, value: Any) -> Any:
        """The value with every `{"$secret": NAME}` in it replaced."""
        match value:
            case {"$secret": str(name)} if len(value) == 1:
                return self[name]
            case dict():
                return {key: self.fill(item) for key, item in value.items()}
            case list():
                return [self.fill(item) for item in value]
            case _:
                return value

    def redact(self, value: Any) -> Any:
        """The value with every secret in its texts replaced."""
        if not self._known:
            return value
        match value:
            case str():
                for secret in self._hidden():
                    value = value.replace(secret, REDACTED)
                return value
            case dict():
                return {self.redact(key): self.redact(item) for key, item in value.items()}
            case list() | tuple():
                return [self.redact(item) for item in value]
            case _:
                return value

    def redact_outcome(self, outcome: Outcome) -> Outcome:
        if not self._known or not isinstance(outcome, Failed):
            return outcome
        details = outcome.details and jsontext.encode(self.redact(jsontext.decode(outcome.details)))
        return Failed(outcome.code, self.redact(outcome.message), outcome.retryable, details)

    def _hidden(self) -> list[str]:
        """Longest first, so that a secret that contains another one disappears whole."""
        known = list(self._known.values())  # in one step: the function may look up another one in its thread
        return sorted((value for value in known if len(value) >= _SHORTEST_REDACTED), key=len, reverse=True)


class DiscreetPort:
    """A task's port, with secrets taken out of what is only meant to be read."""

    __slots__ = ("_port", "_secrets", "claim_effect", "complete_effect", "emit_signal", "release_effect", "report")

    def __init__(self, port: Port, secrets: Secrets) -> None:
        self._port = port
        self._secrets = secrets
        self.claim_effect: Callable[[str], Any] = port.claim_effect
        self.complete_effect: Callable[[str, bytes], Any] = port.complete_effect
        self.release_effect: Callable[[str], Any] = port.release_effect
        self.emit_signal: Callable[[str, bytes], Any] = port.emit_signal
        self.report: Callable[[bytes], Any] = port.report

    def heartbeat(self, detail: bytes | None) -> None:
        if detail is not None:
            detail = jsontext.encode(self._secrets.redact(jsontext.decode(detail)))
        self._port.heartbeat(detail)

    def log(self, level: str, message: str, fields: dict[str, Any]) -> None:
        self._port.log(level, self._secrets.redact(message), self._secrets.redact(fields))
