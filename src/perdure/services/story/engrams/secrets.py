"""The secrets of one Engram step, looked up on demand. The worker masks them in all output.

A secret has a name and keys, as in Kubernetes. The key `token` of the secret `api` is that of a Secret in the catalog,
else the environment variable `PERDURE_SECRET_api_token`, or the file `api/token` in `PERDURE_SECRETS_DIR`.
"""

from collections.abc import Iterator, Mapping

from perdure.providers.context import SecretSource


def secret(source: SecretSource, name: str, key: str) -> str:
    return source[f"{name}/{key}"]


class Keys:
    """One secret by its keys: `context.secrets["api"]["token"]`."""

    def __init__(self, source: SecretSource, name: str) -> None:
        self._source = source
        self.name = name

    def __getitem__(self, key: str) -> str:
        return secret(self._source, self.name, key)


class EngramSecrets(Mapping[str, Keys]):
    """Secrets by logical name, as the Engram or the step maps them."""

    def __init__(self, source: SecretSource, names: Mapping[str, str]) -> None:
        self._source = source
        self._names = names

    def __getitem__(self, logical: str) -> Keys:
        return Keys(self._source, self._names[logical])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
