"""Names and keys that follow from what they name: the same facts give the same name, in every process, for ever.

Pure text in, text out. Every function here is a promise: a changed answer would start a second run for an old token.
"""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha1, sha256
from typing import Any

from perdure.expressions.gotemplate.floats import format_json_float
from perdure.expressions.gotemplate.json_text import quote
from perdure.kernel.lazy_regex import lazy_regex

LONGEST_NAME = 253
LONGEST_LABEL = 63
LONGEST_KEY = 256

_OTHER = lazy_regex(r"[^a-z0-9]+")
_KEPT, _HASHED = 50, 12  # of a composed name that is too long
_DIGITS = 16  # of SHA-1 in derived names


def compose(*parts: str) -> str:
    """The name of what belongs to its parts: StepRun, branch, sub-run (STY-014)."""
    name = "-".join(filter(None, map(_plain, parts)))
    if not name:
        return "resource"
    if len(name) <= LONGEST_LABEL:
        return name
    digest = sha256(b"".join(part.encode() + b"\0" for part in parts)).hexdigest()
    return f"{name[:_KEPT].removesuffix('-')}-{digest[:_HASHED]}"


def names_before(name: str) -> list[str]:
    """Names to which parts may have been added to give this one, the longest first."""
    return [name[:at] for at in range(len(name) - 1, 0, -1) if name[at] == "-"]


def default_key(namespace: str, run: str, step: str) -> str:
    """The idempotency key of a step that names none (STY-016)."""
    key = f"ns/{namespace}/storyrun/{run}/step/{step}"
    return key if len(key) <= LONGEST_KEY else f"sha256:{sha256(key.encode()).hexdigest()}"


def business_key(rendered: str) -> str | None:
    """What `idempotencyKeyTemplate` gave, as it is used; None when there is nothing left of it (STY-016)."""
    return rendered.strip()[:LONGEST_KEY] or None


def run_name(namespace: str, story: str, token: str) -> str:
    """The StoryRun of a token: started once, found again ever after (STY-144)."""
    plain, digest = _plain(token), _digest(namespace, story, token)
    if not plain:
        plain = digest
    elif plain != token or namespace:
        plain = f"{plain}-{digest}"
    name = f"{story}-{plain}"
    return name if len(name) <= LONGEST_NAME else _cut(story, digest)


def trigger_name(namespace: str, story: str, identity: str) -> str:
    """The StoryTrigger of a delivery; `identity` is its key if it has one, else its submissionId (STY-147)."""
    return _cut(f"{story}-trigger", _digest(namespace, story, identity))


def claim_name(namespace: str, step_run: str, effect: str) -> str:
    """The EffectClaim of one effect of a StepRun (STY-166)."""
    return _cut(f"{step_run}-effect", _digest(namespace, step_run, effect))


def input_hash(inputs: Mapping[str, Any] | None) -> str:
    """What tells inputs apart: SHA-256 of their canonical JSON; none are `{}` (STY-145)."""
    return sha256(canonical(inputs or {}).encode()).hexdigest()


def canonical(value: Any) -> str:
    """JSON with members in order of their bytes, no spaces, and every number a double (STY-145)."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _number(value)
        case str():
            return quote(value)
        case list() | tuple():
            return f"[{','.join(map(canonical, value))}]"
        case dict():
            return "{" + ",".join(f"{quote(name)}:{canonical(value[name])}" for name in sorted(value)) + "}"
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _number(value: int | float) -> str:
    try:
        return format_json_float(float(value))
    except OverflowError:
        return str(value)  # beyond every double: its own digits tell it from others


@lru_cache(maxsize=4096)
def _plain(text: str) -> str:
    return _OTHER.sub("-", text.lower()).strip("-")


def _digest(*parts: str) -> str:
    return sha1("/".join(parts).encode(), usedforsecurity=False).hexdigest()[:_DIGITS]


def _cut(prefix: str, digest: str) -> str:
    """The prefix and the digest, the prefix shortened until both fit."""
    room = LONGEST_NAME - 1 - len(digest)
    if len(prefix) > room:
        prefix = prefix[:room].strip("-") or "s"
    return f"{prefix}-{digest}"
