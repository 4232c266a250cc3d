"""Middleware: one file each. A new one is a file here and a line in this list."""

from perdure.dialects.flow.middleware.finally_ import Finally
from perdure.dialects.flow.middleware.loop import Loop
from perdure.dialects.flow.middleware.protocol import Middleware
from perdure.dialects.flow.middleware.retry import Retry
from perdure.dialects.flow.middleware.timeout import Timeout

SPEC_DEFINED: tuple[Middleware, ...] = (Retry(), Timeout(), Loop(), Finally())

__all__ = ["SPEC_DEFINED", "Finally", "Loop", "Middleware", "Retry", "Timeout"]
