"""Outputs cached across runs (section 14): a step with the same key reuses the output of an earlier run."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from perdure.dialects.story.plan.program import Program, Step
from perdure.dialects.story.resources.names import canonical
from perdure.dialects.story.resources.resource import spec_of
from perdure.dialects.story.resources.step_run_names import step_run_name
from perdure.dialects.story.resources.timestamps import timestamp
from perdure.dialects.story.run.engram_lookup import ResolvedEngram
from perdure.dialects.story.run.step_end import error_text
from perdure.dialects.story.state import events as s
from perdure.dialects.story.state.body import Body, StepState
from perdure.dialects.story.values.schema_fit import misfits
from perdure.dialects.story.values.template_roots import CACHE_KEY, under
from perdure.expressions.gotemplate import ExpressionError, compile_template
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.turn import Turn

HIT = "Cache hit; reused output."
MODES = ("read", "write", "readWrite")


class OutputCacheLookup(msgspec.Struct, frozen=True):
    """The cache entry of a step; `found` is its content, if it may be used."""

    entry: str
    mode: str
    ttl: int
    found: dict[str, Any] | None = None

    @property
    def status(self) -> str:
        return "hit" if self.found is not None else "miss"


class BadCacheKey(Exception):
    """The cache key cannot be computed; the message says why. Nothing is cached or reused then (STY-280)."""


def look_up(
    turn: Turn, step: Step, engram: ResolvedEngram, policy: Mapping[str, Any] | None, inputs: dict[str, Any]
) -> OutputCacheLookup | None:
    """Look up a step's cache entry; None if nothing is cached. Raises `BadCacheKey`, which never fails the step
    (STY-224).

    Entries are only shared within a run's namespace, wherever its Engram is, because authors choose the keys.
    """
    if policy is None or step.has_side_effects:
        return None
    mode = policy.get("mode") or "readWrite"
    if mode not in MODES:
        return None
    key = _material(turn, step, engram, policy, inputs)
    name, version = engram.reference.name, engram.version or "latest"
    entry = f"cache/{turn.body.namespace}/{name}/{version}/{sha256(key.encode()).hexdigest()}.json"
    ttl = policy.get("ttlSeconds")
    seconds = ttl if isinstance(ttl, int) and not isinstance(ttl, bool) and ttl > 0 else 0
    output = None if mode == "write" else _read_entry(turn, entry, engram)
    return OutputCacheLookup(entry, mode, seconds, output)


def _material(turn: Turn, step: Step, engram: ResolvedEngram, policy: Mapping[str, Any], inputs: dict[str, Any]) -> str:
    """The text whose hash names the entry (STY-225)."""
    body: Body = turn.body
    program: Program = turn.program
    head = f"engram:{engram.reference.name}|version:{engram.version or 'latest'}"
    template = policy.get("key")
    if isinstance(template, str) and template:
        roots = {
            "inputs": inputs,
            "step": {"id": step.name, "run": step_run_name(body, step.name), "story": program.name},
            "engram": {"name": engram.reference.name, "version": engram.version or "latest"},
        }
        try:
            rendered = compile_template(template, under(CACHE_KEY, program.settings)).render(roots)
        except ExpressionError as problem:
            raise BadCacheKey(error_text(problem)) from None
        key = rendered if isinstance(rendered, str) else canonical(rendered)
        if not key.strip():
            raise BadCacheKey("the key is empty")
        head += f"|key:{key}"
    else:
        head += f"|step:{step.name}|input:{canonical(inputs)}"
    salt = policy.get("salt")
    return f"{head}|salt:{salt}" if isinstance(salt, str) and salt else head


def _read_entry(turn: Turn, entry: str, engram: ResolvedEngram) -> dict[str, Any] | None:
    """The output in a valid entry: not expired, not empty, and fitting the template's current schema (STY-227)."""
    memory = turn.cached(entry)
    if memory is None:
        return None
    output = jsontext.decode(memory.value).get("output")
    if not isinstance(output, dict) or not output:
        return None
    return None if misfits(spec_of(engram.template).get("outputSchema"), output) else output


def keep(turn: Turn, step: Step, state: StepState, output: dict[str, Any]) -> None:
    """Cache the output of a successful step (STY-228)."""
    cached = state.run.cached if state.run is not None else None
    if cached is None or cached.mode == "read" or not output:
        return
    entry: dict[str, Any] = {"createdAt": timestamp(turn.now), "output": output}
    if cached.ttl:
        entry["ttlSeconds"] = cached.ttl
    turn.remember(cached.entry, jsontext.encode(entry), cached.ttl * SECOND if cached.ttl else None)
    turn.emit(s.CacheNoted(step.name, cached.entry, cached.mode, cached.ttl, "stored"))
