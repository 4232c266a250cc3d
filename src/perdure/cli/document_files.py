"""Documents on the command line: a file, a folder of files, or standard input."""

import sys
from collections.abc import Iterable
from pathlib import Path

from perdure.cli.errors import BadUsage
from perdure.kernel.validation import AppliedDocument

APPLIED_SUFFIXES = (".yaml", ".yml", ".json")


def read(name: str) -> tuple[str, bytes]:
    """Where a document comes from, and its text; `-` is standard input."""
    if name == "-":
        return "<stdin>", sys.stdin.buffer.read()
    if Path(name).is_dir():
        raise BadUsage(f"{name} is a folder; name one document of it")
    return name, Path(name).read_bytes()


def files_of(name: str) -> list[str]:
    """The file itself, or what a folder holds that may be a document, in order of name."""
    folder = Path(name)
    if name == "-" or not folder.is_dir():
        return [name]
    return [str(path) for path in sorted(folder.rglob("*")) if path.suffix in APPLIED_SUFFIXES and path.is_file()]


def read_applied(places: Iterable[str]) -> list[AppliedDocument]:
    """The files named with --apply, folders in order of name: what a language may find beside the document."""
    documents = []
    for name in places:
        if name == "-":
            documents.append(AppliedDocument("<stdin>", sys.stdin.buffer.read().decode(errors="replace")))
            continue
        for file in files_of(name):
            documents.append(AppliedDocument(file, Path(file).read_text(encoding="utf-8", errors="replace")))
    return documents
