"""What the machine offers: variables, files and stored credentials, and which of them a document may ask for.

Always readable is what the operator has put aside for workflows: `PERDURE_SECRET_…`, the folder `PERDURE_SECRETS_DIR`,
and stored credentials. Anything else only if it is listed: variables in `PERDURE_KEYCHAIN_ENV`, files and folders in
`PERDURE_KEYCHAIN_FILES`, or both under `[keychain]` in the settings file.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from perdure.kernel.json_values import jsontext
from perdure.kernel.secrets.credentials import is_reference
from perdure.kernel.secrets.sealed_arguments import EnvelopeError
from perdure.providers.policy import Keychain, read_keychain

SECRETS_FOLDER = "PERDURE_SECRETS_DIR"
CREDENTIAL = "PERDURE_CREDENTIAL_"
CREDENTIALS_FOLDER = "PERDURE_CREDENTIALS_DIR"
LARGEST_FILE = 1 << 20


@dataclass(frozen=True)
class HostSecrets:
    """`secret` finds what is put aside under a name; `variables` are those of the process."""

    secret: Callable[[str], str | None]
    variables: Mapping[str, str] = field(default_factory=lambda: os.environ)
    kept: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # credentials that were found elsewhere

    @cached_property
    def allowed(self) -> Keychain:
        return read_keychain(self.variables)

    def variable(self, name: str) -> str:
        secret = self.secret(name)
        if secret is not None:
            return secret
        if name.startswith("PERDURE_") or not any(fnmatchcase(name, pattern) for pattern in self.allowed.env):
            raise missing(
                f"the variable {name!r} may not be read: set PERDURE_SECRET_{name}, or ask the operator to allow it:"
                f" PERDURE_KEYCHAIN_ENV={name}"
            )
        if name not in self.variables:
            raise missing(f"the variable {name!r} is not set, nor is PERDURE_SECRET_{name}")
        return self.variables[name]

    def file(self, name: str) -> str:
        """A file in the folder of secrets, by its name there; or one that is listed, by its whole path."""
        try:
            path, folder = Path(name), self.variables.get(SECRETS_FOLDER)
            if path.is_absolute():
                path = path.resolve()
                places = [Path(place).resolve() for place in (*self.allowed.files, folder) if place]
                if not any(path.is_relative_to(place) for place in places):
                    raise missing(
                        f"the file {name!r} may not be read: put it into {SECRETS_FOLDER}, or ask the operator to"
                        f" allow it: PERDURE_KEYCHAIN_FILES={name}"
                    )
                return _read(path)
            if not folder:
                raise missing(f"the file {name!r} cannot be read: {SECRETS_FOLDER} is not set")
            path = Path(folder, name).resolve()
        except (OSError, RuntimeError, ValueError) as problem:
            raise missing(f"the file {name!r} cannot be read: {problem}") from None
        if not path.is_relative_to(Path(folder).resolve()):
            raise missing(f"the file {name!r} is not in {SECRETS_FOLDER}")
        return _read(path)

    def credential(self, name: str) -> dict[str, Any] | None:
        """A stored credential: `PERDURE_CREDENTIAL_<NAME>` as JSON, or `<name>.json` in `PERDURE_CREDENTIALS_DIR`."""
        if name in self.kept:
            return self.kept[name]
        for spelled in (name, re.sub(r"\W", "_", name).upper()):
            text = self.variables.get(CREDENTIAL + spelled)
            if text is not None:
                return _credential(name, text)
        folder = self.variables.get(CREDENTIALS_FOLDER)
        if folder and name and Path(name).name == name:
            path = Path(folder, f"{name}.json")
            if path.is_file():
                return _credential(name, _read(path))
        return None

    def dereference(self, value: Any) -> Any:
        """The value with its references (`env:NAME`, `file:NAME`) replaced by what they name."""
        match value:
            case str() if is_reference(value):
                source, _, name = value.partition(":")
                return self.variable(name) if source == "env" else self.file(name)
            case dict():
                return {name: self.dereference(member) for name, member in value.items()}
            case list():
                return [self.dereference(item) for item in value]
            case _:
                return value


def missing(message: str, code: str = "SECRET_MISSING") -> EnvelopeError:
    return EnvelopeError("auth", message, code)


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise missing(f"the file {str(path)!r} is too large for a secret")
        return path.read_text("utf-8").removesuffix("\n")
    except UnicodeDecodeError:
        raise missing(f"the file {str(path)!r} is not text") from None
    except OSError as problem:
        raise missing(f"the file {str(path)!r} cannot be read: {problem.strerror}") from None


def _credential(name: str, text: str) -> dict[str, Any]:
    """`{type, data: {…}}` or a flat map; a text that is not a map is a token."""
    try:
        value = jsontext.read_strict(text)
    except jsontext.NotJson:
        if text.lstrip().startswith("{"):
            raise missing(f"the stored credential {name!r} is not JSON") from None
        value = text
    if isinstance(value, dict):
        data = value.get("data")
        return {"type": value.get("type"), **data} if isinstance(data, dict) else value
    return {"type": "bearer", "token": str(value)}
