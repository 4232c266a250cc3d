"""Flow: the Metolia Workflow Language, v0.1. One JSON document, one Result.

The language only: CEL is in `expressions`, the providers that a Flow calls in `providers`.
"""

from perdure.dialects.flow.language import Flow

__all__ = ["Flow"]
