"""Documents: read, judged as a whole, and every problem named with its place and its remedy."""

from perdure.dialects.playbook.document.reader import load, read

__all__ = ["load", "read"]
