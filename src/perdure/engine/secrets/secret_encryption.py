"""Values that are kept encrypted, with keys that the operator gives: the first one writes, all of them read.

A value is bound to its place: copied to another entry it cannot be decrypted. AES-256-GCM, with a random nonce for each
value. The text names its key by the beginning of the key's digest, so that values of an earlier key are recognized.
"""

import base64
import binascii
import os
import stat
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.kernel.errors import PerdureError, UnfitInput

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
FORMAT = "v1"


class SecretsKeyMissing(UnfitInput):
    """A secret value was to be kept, and the operator has given no key to encrypt it with."""

    code = "SECRETS-KEY-MISSING"
    hint = "Have the operator set [secrets] key_file, or write references: env:NAME, file:NAME."


class SecretsKeyUnusable(PerdureError):
    """A key of `[secrets] key_file` cannot be used, or no key decrypts a value."""

    code = "SECRETS-KEY-UNUSABLE"
    hint = "A key file holds 32 random bytes as Base64 (openssl rand -base64 32), and only its owner may read it."


class SecretKeys:
    """The keys of this process; without any, nothing is encrypted or decrypted."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._ciphers = {_key_id(key): _cipher(key) for key in keys}
        self.first = next(iter(self._ciphers), "")

    def encrypt(self, value: bytes, place: str) -> str:
        if not self.first:
            raise SecretsKeyMissing("a secret value cannot be stored: this server has no key to encrypt it")
        nonce = os.urandom(NONCE_BYTES)
        encrypted = self._ciphers[self.first].encrypt(nonce, value, place.encode())
        return f"{FORMAT}.{self.first}.{base64.b64encode(nonce + encrypted).decode()}"

    def decrypt(self, text: str, place: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        _, key, encoded = text.split(".")
        cipher = self._ciphers.get(key)
        if cipher is None:
            raise SecretsKeyUnusable(f"the key {key} that {place} is encrypted with is not among [secrets] key_file")
        data = base64.b64decode(encoded)
        try:
            return cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], place.encode())
        except InvalidTag:
            raise SecretsKeyUnusable(f"{place} was changed or moved: it cannot be decrypted") from None

    def is_current(self, text: str) -> bool:
        """Whether a text was written with the first key."""
        return text.startswith(f"{FORMAT}.{self.first}.")


def read_keys(files: Sequence[str]) -> SecretKeys:
    return SecretKeys([_read_key(Path(file)) for file in files])


def _read_key(path: Path) -> bytes:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_bytes()
    except OSError as error:
        raise SecretsKeyUnusable(f"the key file {path} cannot be read: {error.strerror}") from None
    if mode & 0o007:
        raise SecretsKeyUnusable(
            f"the key file {path} can be read by other users (mode {mode:o})", hint="chmod 600 it."
        )
    try:
        key = base64.b64decode(text.strip().translate(bytes.maketrans(b"-_", b"+/")), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise SecretsKeyUnusable(f"the key file {path} does not hold {KEY_BYTES} bytes as Base64")
    return key


def _key_id(key: bytes) -> str:
    return sha256(b"perdure secrets key " + key).hexdigest()[:12]


def _cipher(key: bytes) -> "AESGCM":
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise SecretsKeyUnusable(
            "[secrets] key_file needs the package cryptography", hint="pip install 'perdure[tls]'"
        ) from None
    return AESGCM(key)
