"""The providers that a Flow may use: the form of their URIs, and their contracts."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from perdure.dialects.flow.middleware import KNOWN
from perdure.dialects.flow.middleware.protocol import Middleware
from perdure.dialects.flow.plan.program import CallProvider
from perdure.dialects.flow.plan.schemas import Parameters
from perdure.dialects.flow.run import mock, subrun
from perdure.kernel.lazy_regex import lazy_regex

MOCK = "mwl:provider.call/mwl/mock/v1"
OURS = lazy_regex(r"mwl:provider\.call/perdure/(?P<name>.+)/v1")

_URI = lazy_regex(r"mwl:(?P<type>provider\.(?:call|middleware))/(?P<rest>[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+)")


def uri_type(uri: str) -> str | None:
    """`provider.call` or `provider.middleware`; None if it is not a valid `mwl` URI (MWL-060, MWL-061)."""
    match = _URI.fullmatch(uri)
    if match is None or any(part in (".", "..") for part in match["rest"].split("/")):
        return None
    return match["type"]


class ProviderDescription(Protocol):
    """A provider of the engine's registry, as far as a Flow is concerned."""

    @property
    def parameters(self) -> Mapping[str, Any]: ...


class ProviderCatalog(msgspec.Struct):
    """All providers that a document can use. `find` asks the registry, which may get new providers over time."""

    find: Callable[[str], ProviderDescription | None] = lambda name: None
    names: Callable[[], Iterable[str]] = lambda: ()
    refusal: Callable[[str], str | None] = lambda name: None  # why the operator does not allow a provider
    middleware: dict[str, Middleware] = msgspec.field(default_factory=lambda: KNOWN)
    _calls: dict[str, CallProvider] = msgspec.field(default_factory=dict)

    def call(self, uri: str) -> CallProvider | None:
        provider = self._calls.get(uri)
        if provider is None and (provider := self._look_up(uri)) is not None:
            self._calls[uri] = provider
        return provider

    def _look_up(self, uri: str) -> CallProvider | None:
        if uri == MOCK:
            return CallProvider(uri, "", mock.PARAMETERS)
        ours = OURS.fullmatch(uri)
        if ours is None:
            return None
        if ours["name"] == subrun.NAME:
            return CallProvider(uri, subrun.NAME, subrun.PARAMETERS)
        described = self.find(ours["name"])
        return None if described is None else CallProvider(uri, ours["name"], Parameters(described.parameters))

    def call_uris(self) -> list[str]:
        return [MOCK, *(f"mwl:provider.call/perdure/{name}/v1" for name in ("run", *self.names()))]
