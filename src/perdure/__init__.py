"""Perdure, a durable workflow engine. These are its public names; each is imported when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.engine.handle import Handle, RunFailed
    from perdure.kernel.errors import PerdureError
    from perdure.providers.context import TaskContext
    from perdure.providers.failure import EffectInDoubt, ProviderFailure
    from perdure.providers.registry import provider
    from perdure.server.api_client.remote_engine import connect
    from perdure.server.api_client.sync_engine import connect_sync
    from perdure.services.story.engrams.context import EngramContext
    from perdure.services.story.engrams.failure import EngramError
    from perdure.services.story.engrams.registry import engram, streaming_engram
    from perdure.wiring import Engine, Observer

    __version__: str

__all__ = [
    "EffectInDoubt",
    "Engine",
    "EngramContext",
    "EngramError",
    "Handle",
    "Observer",
    "PerdureError",
    "ProviderFailure",
    "RunFailed",
    "TaskContext",
    "__version__",
    "connect",
    "connect_sync",
    "engram",
    "provider",
    "streaming_engram",
]

_HOMES = {
    "EffectInDoubt": "perdure.providers.failure",
    "Engine": "perdure.wiring",
    "EngramContext": "perdure.services.story.engrams.context",
    "EngramError": "perdure.services.story.engrams.failure",
    "Handle": "perdure.engine.handle",
    "Observer": "perdure.wiring",
    "PerdureError": "perdure.kernel.errors",
    "ProviderFailure": "perdure.providers.failure",
    "RunFailed": "perdure.engine.handle",
    "TaskContext": "perdure.providers.context",
    "connect": "perdure.server.api_client.remote_engine",
    "connect_sync": "perdure.server.api_client.sync_engine",
    "engram": "perdure.services.story.engrams.registry",
    "provider": "perdure.providers.registry",
    "streaming_engram": "perdure.services.story.engrams.registry",
}
"""Public name → the module it lives in."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("perdure")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
