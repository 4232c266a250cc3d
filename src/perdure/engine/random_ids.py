"""Ids of root runs and of catalog entries. The only place of the engine that draws randomness."""

import os
import secrets
import uuid
from collections import deque
from hashlib import sha256

from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.lazy_regex import lazy_regex

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: ids are read aloud and typed
_PAIRS = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
_SLUG = lazy_regex(r"[^a-z0-9]+")


_DRAWN_AT_ONCE = 256
_drawn: deque[bytes] = deque()  # 16 random bytes each, for one id; several threads may take from it
os.register_at_fork(after_in_child=_drawn.clear)


def random_bytes() -> bytes:
    """16 random bytes for an id that need not be secret. They are drawn many at a time, because each draw is a system
    call. For what must stay secret, use `secrets`.
    """
    try:
        return _drawn.pop()
    except IndexError:
        block = os.urandom(16 * _DRAWN_AT_ONCE)
        _drawn.extend(block[at : at + 16] for at in range(16, len(block), 16))
        return block[:16]


def new_request_id() -> str:
    return random_bytes()[:8].hex()


def new_run_id(now: Instant) -> RunId:
    """Sorts by time of birth (milliseconds), then 80 random bits."""
    number = ((now // 1_000) << 80) | int.from_bytes(random_bytes()[:10])
    return RunId("".join([_PAIRS[(number >> shift) & 1023] for shift in range(120, -10, -10)]))


def run_id_for_token(
    language: str, name: str, token: str, namespace: str = DEFAULT_NAMESPACE, *, words: str | None = None
) -> RunId:
    """The same token in the same namespace names the same run, in every process: a start is idempotent."""
    identity = f"{language}\x1f{name}\x1f{token}"
    if "\x1f" in name:  # else another name, with the rest of this one before its token, would have the same identity
        identity = f"\x1f{language}\x1f{len(name)}\x1f{name}\x1f{token}"
    if namespace != DEFAULT_NAMESPACE:  # ids of the default one are as they were before runs had namespaces
        identity = f"\x1f\x1f{namespace}\x1f{identity}"
    mark = sha256(identity.encode()).hexdigest()[:16]
    words = _SLUG.sub("-", (f"{name}-{token}" if words is None else words).lower()).strip("-")[:48].strip("-")
    return RunId(f"{words}-{mark}" if words else mark)


def run_id_for_name(language: str, namespace: str, name: str) -> RunId:
    """The same name in the same namespace is the same run, in every process."""
    return run_id_for_token(language, namespace, name, words=name)


def new_seed() -> int:
    return int.from_bytes(random_bytes()[:8]) >> 1


def new_uid() -> str:
    """Of an entry of the catalog: one that was removed and made anew has another."""
    return str(uuid.UUID(int=secrets.randbits(128), version=4))


def new_key() -> str:
    return secrets.token_hex(8)
