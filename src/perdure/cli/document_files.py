"""Documents on the command line: a file, a folder of files, or standard input."""

import sys
from collections.abc import Iterable
from pathlib import Path

from perdure.cli.errors import BadUsage
from perdure.kernel.documents.validation import AppliedDocument
from perdure.services import SCENARIO_SUFFIXES

APPLIED_SUFFIXES = (".yaml", ".yml", ".json")
LARGEST_FILE = 64 * 1024 * 1024  # bytes; a link in a folder of strangers may lead to anything


def read(name: str) -> tuple[str, bytes]:
    """Where a document comes from, and its text; `-` is standard input."""
    if name == "-":
        return "<stdin>", sys.stdin.buffer.read()
    if Path(name).is_dir():
        raise BadUsage(f"{name} is a folder; name one document of it")
    return name, _bytes_of(name)


def _bytes_of(name: str) -> bytes:
    with Path(name).open("rb") as file:
        text = file.read(LARGEST_FILE + 1)
    if len(text) > LARGEST_FILE:
        raise BadUsage(f"{name} has more than {LARGEST_FILE >> 20} MiB: too large for a document")
    return text


def files_of(name: str) -> list[str]:
    """The file itself, or what a folder holds that may be a document, in order of name."""
    folder = Path(name)
    if name == "-" or not folder.is_dir():
        return [name]
    paths = (path for path in sorted(folder.rglob("*")) if path.suffix in APPLIED_SUFFIXES and path.is_file())
    return [str(path) for path in paths if not path.name.endswith(SCENARIO_SUFFIXES)]


def read_applied(places: Iterable[str]) -> list[AppliedDocument]:
    """The files named with --apply, folders in order of name: what a language may find beside the document."""
    documents = []
    for name in places:
        if name == "-":
            documents.append(AppliedDocument("<stdin>", sys.stdin.buffer.read().decode(errors="replace")))
            continue
        for file in files_of(name):
            documents.append(AppliedDocument(file, _bytes_of(file).decode(errors="replace")))
    return documents
