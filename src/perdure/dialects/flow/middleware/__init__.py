"""Middleware: one file each. A new one is a file here and a line in this list."""

from perdure.dialects.flow.middleware.finally_ import Finally
from perdure.dialects.flow.middleware.hold_effects import HoldEffects
from perdure.dialects.flow.middleware.loop import Loop
from perdure.dialects.flow.middleware.protocol import Middleware
from perdure.dialects.flow.middleware.retry import Retry
from perdure.dialects.flow.middleware.timeout import Timeout

_OURS = (Retry(), Timeout(), Loop(), Finally(), HoldEffects())

KNOWN: dict[str, Middleware] = {middleware.uri: middleware for middleware in _OURS}
"""By URI. `register` adds custom ones."""


def register(middleware: Middleware) -> Middleware:
    """Register a custom middleware for every Flow of this process."""
    registered = KNOWN.get(middleware.uri)
    if not middleware.uri.startswith("mwl:provider.middleware/") or "/mwl/" in middleware.uri:
        expected = "mwl:provider.middleware/NAMESPACE/NAME/v1"
        raise ValueError(f"{middleware.uri!r} is not a URI for a custom middleware (expected e.g. {expected})")
    if registered is not None and type(registered) is not type(middleware):
        raise ValueError(f"{middleware.uri!r} is already registered, by {type(registered).__qualname__}")
    KNOWN[middleware.uri] = middleware
    return middleware


__all__ = ["KNOWN", "Finally", "HoldEffects", "Loop", "Middleware", "Retry", "Timeout", "register"]
