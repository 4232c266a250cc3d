"""Derived names and keys: the same parts give the same name in every process, forever.

Pure functions on strings. Their results must never change: another result would start a second run for an old
token.
"""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha1, sha256
from typing import Any

from perdure.expressions.gotemplate.floats import format_json_float
from perdure.expressions.gotemplate.json_text import quote
from perdure.kernel.json_values.large_json import sorted_names
from perdure.kernel.lazy_regex import lazy_regex

LONGEST_NAME = 253
LONGEST_LABEL = 63
LONGEST_KEY = 256

_OTHER = lazy_regex(r"[^a-z0-9]+")
_KEPT, _HASHED = 50, 12  # lengths of prefix and digest in a shortened name
_DIGITS = 16  # of SHA-1 in derived names


def compose(*parts: str) -> str:
    """The name of something that belongs to its parts: StepRun, branch, sub-run (STY-014)."""
    name = "-".join(filter(None, map(_plain, parts)))
    if not name:
        return "resource"
    if len(name) <= LONGEST_LABEL:
        return name
    digest = sha256(b"".join(part.encode() + b"\0" for part in parts)).hexdigest()
    return f"{name[:_KEPT].removesuffix('-')}-{digest[:_HASHED]}"


def names_before(name: str) -> list[str]:
    """The possible prefixes of a composed name, longest first."""
    return [name[:position] for position in range(len(name) - 1, 0, -1) if name[position] == "-"]


def default_key(namespace: str, run: str, step: str) -> str:
    """The idempotency key of a step without its own (STY-016)."""
    key = f"ns/{namespace}/storyrun/{run}/step/{step}"
    return key if len(key) <= LONGEST_KEY else f"sha256:{sha256(key.encode()).hexdigest()}"


def business_key(rendered: str) -> str | None:
    """The rendered `idempotencyKeyTemplate` as it is used; None if it is blank (STY-016)."""
    return rendered.strip()[:LONGEST_KEY] or None


def run_name(namespace: str, story: str, token: str) -> str:
    """The name of the StoryRun of a token: the same token always gives the same run (STY-144)."""
    plain, digest = _plain(token), _digest(namespace, story, token)
    if not plain:
        plain = digest
    elif plain != token or namespace:
        plain = f"{plain}-{digest}"
    name = f"{story}-{plain}"
    return name if len(name) <= LONGEST_NAME else _cut(story, digest)


def trigger_name(namespace: str, story: str, identity: str) -> str:
    """The name of the StoryTrigger of a delivery; `identity` is its key, or its submissionId if it has no key
    (STY-147).
    """
    return _cut(f"{story}-trigger", _digest(namespace, story, identity))


def document_trigger_name(namespace: str, language: str, document: str, identity: str) -> str:
    """The name of the StoryTrigger of a delivery to a document of another language (SRV-041)."""
    return _cut(f"{_plain(document) or language}-trigger", _digest(namespace, language, document, identity))


def claim_name(namespace: str, step_run: str, effect: str) -> str:
    """The name of the EffectClaim of one effect of a StepRun (STY-166)."""
    return _cut(f"{step_run}-effect", _digest(namespace, step_run, effect))


def input_hash(inputs: Mapping[str, Any] | None) -> str:
    """SHA-256 of the canonical JSON of inputs; no inputs count as `{}` (STY-145)."""
    return sha256(canonical(inputs or {}).encode()).hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted members, without spaces, and with every number as a double (STY-145)."""
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
            return "{" + ",".join(f"{quote(name)}:{canonical(value[name])}" for name in sorted_names(value)) + "}"
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _number(value: int | float) -> str:
    try:
        return format_json_float(float(value))
    except OverflowError:
        return str(value)  # too large for a double: keep its digits


@lru_cache(maxsize=4096)
def _plain(text: str) -> str:
    return _OTHER.sub("-", text.lower()).strip("-")


def _digest(*parts: str) -> str:
    return sha1("/".join(parts).encode(), usedforsecurity=False).hexdigest()[:_DIGITS]


def _cut(prefix: str, digest: str) -> str:
    """Join prefix and digest, shortening the prefix until both fit."""
    longest_prefix = LONGEST_NAME - 1 - len(digest)
    if len(prefix) > longest_prefix:
        prefix = prefix[:longest_prefix].strip("-") or "s"
    return f"{prefix}-{digest}"
