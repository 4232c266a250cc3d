"""YAML documents as plain data, each value with its place in the text, each mistake with a hint.

    document = read_document(b"name: demo\nsteps: [one, two]\n")
    document.data                      # {"name": "demo", "steps": ["one", "two"]}
    document.place_of(("steps", 1))    # (2, 14): line and column, from 1

YAML 1.2 core schema: `yes`, `on` and dates are text, `010` is ten, JSON is YAML.
What a document means is for the language it is written in.
"""

from perdure.documents.document import Document
from perdure.documents.errors import DEFAULT_LIMITS, Limits, UnreadableText
from perdure.documents.paths import Path, Step, spell
from perdure.documents.reader import read_document, read_documents
from perdure.documents.writer import write_document

__all__ = [
    "DEFAULT_LIMITS",
    "Document",
    "Limits",
    "Path",
    "Step",
    "UnreadableText",
    "read_document",
    "read_documents",
    "spell",
    "write_document",
]
