"""The secrets of one Engram step: looked up when they are asked for, and remembered so that nothing repeats them.

A secret has a name and keys, as where Stories come from. The key `token` of the secret `api` is the environment's
`PERDURE_SECRET_api_token`, or the file `api/token` in `PERDURE_SECRETS_DIR`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.providers.context import SecretSource

REDACTED = "[redacted]"
SHORTEST_REDACTED = 4  # a shorter value is no secret, and replacing it would garble every text


class Vault:
    """What this task has seen of secrets."""

    def __init__(self, source: SecretSource) -> None:
        self._source = source
        self._seen: set[str] = set()

    def value(self, name: str, key: str) -> str:
        found = self._source[f"{name}/{key}"]
        if len(found) >= SHORTEST_REDACTED:
            self._seen.add(found)
        return found

    def redact(self, value: Any) -> Any:
        """The value with every secret in its texts replaced."""
        if not self._seen:
            return value
        match value:
            case str():
                for secret in sorted(self._seen, key=len, reverse=True):  # one that contains another disappears whole
                    value = value.replace(secret, REDACTED)
                return value
            case dict():
                return {self.redact(key): self.redact(item) for key, item in value.items()}
            case list() | tuple():
                return [self.redact(item) for item in value]
            case _:
                return value


class Keys:
    """One secret, by its keys: `context.secrets["api"]["token"]`."""

    def __init__(self, vault: Vault, name: str) -> None:
        self._vault = vault
        self.name = name

    def __getitem__(self, key: str) -> str:
        return self._vault.value(self.name, key)


class EngramSecrets(Mapping[str, Keys]):
    """Logical names, as the Engram or the step maps them, to secrets."""

    def __init__(self, vault: Vault, names: Mapping[str, str]) -> None:
        self._vault = vault
        self._names = names

    def __getitem__(self, logical: str) -> Keys:
        return Keys(self._vault, self._names[logical])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
