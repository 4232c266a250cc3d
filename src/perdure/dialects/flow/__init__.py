"""Flow: the Metolia Workflow Language, v0.1. One JSON document, one Result."""

from perdure.dialects.flow.language import Flow

__all__ = ["Flow"]
