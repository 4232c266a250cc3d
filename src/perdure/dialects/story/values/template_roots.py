"""What templates may read and call in each place of a Story (STY-036, 155, 202, 225).

The names of the scopes appear in messages.
"""

from functools import lru_cache

from msgspec.structs import replace

from perdure.dialects.story.plan.settings import Settings
from perdure.expressions.gotemplate import DETERMINISTIC, RUNTIME, Environment

BATCH = Environment(frozenset({"inputs", "steps"}), "batch-runtime", RUNTIME)
OUTPUT = Environment(frozenset({"inputs", "steps"}), "story-output", RUNTIME)
STREAMING_STATIC = Environment(frozenset({"inputs"}), "realtime-static", DETERMINISTIC)
STREAMING_RUNTIME = Environment(frozenset({"inputs", "steps", "packet"}), "realtime-runtime", RUNTIME)
CACHE_KEY = Environment(frozenset({"inputs", "step", "engram"}), "cache-key", DETERMINISTIC, refuses_absent=True)
TRIGGER_KEY = Environment(frozenset({"inputs", "story", "impulse"}), "trigger-key", DETERMINISTIC, refuses_absent=True)
MAPPING = Environment(frozenset({"context"}), "impulse-mapping", RUNTIME)


def under(scope: Environment, settings: Settings) -> Environment:
    """A scope with the operator's settings applied."""
    return _under(scope, settings.is_deterministic, settings.max_output_bytes, settings.has_typed_functions)


@lru_cache(maxsize=64)
def _under(scope: Environment, is_deterministic: bool, output: int, typed_functions: bool) -> Environment:
    return replace(
        scope,
        library=DETERMINISTIC if is_deterministic else scope.library,
        limits=replace(scope.limits, output=output),
        typed_functions=typed_functions,
    )
