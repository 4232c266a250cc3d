"""What a task may call. A provider sees its task's context, never an execution."""

from perdure.providers.failure import ProviderFailure
from perdure.providers.registry import DuplicateProvider, Mode, Provider, Registry, provider, shared
from perdure.providers.source_loading import LoadError, load

__all__ = [
    "DuplicateProvider",
    "LoadError",
    "Mode",
    "Provider",
    "ProviderFailure",
    "Registry",
    "load",
    "provider",
    "shared",
]
