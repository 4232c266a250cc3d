"""Reading a Flow: text to problems or a program."""

from perdure.dialects.flow.document.reading import FLOW_SCHEMA, read

__all__ = ["FLOW_SCHEMA", "read"]
