"""Files that go to a server with a command: documents, scenarios, and what those name."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from perdure.cli.document_files import read


class SentFiles:
    """Texts under names without places of this machine: below this folder, or below what all have in common."""

    def __init__(self, paths: Iterable[Path]) -> None:
        listed = list(dict.fromkeys(paths))
        places = {path: path.resolve() for path in listed}
        base = Path.cwd()
        if not all(place.is_relative_to(base) for place in places.values()):
            base = Path(os.path.commonpath([place.parent for place in places.values()]))
        self.names = {str(path): place.relative_to(base).as_posix() for path, place in places.items()}
        self.texts = {self.names[str(path)]: read(str(path))[1].decode() for path in listed}
        self._paths = {name: path for path, name in self.names.items()}

    def path(self, name: str) -> str:
        """As the user wrote it."""
        return self._paths.get(name, name)


def share(covered: Mapping[str, Any], name: str) -> str:
    """Of a coverage that a server, or this process, has told: how much of it."""
    return f"{covered[name]['covered']} of {covered[name]['total']}"
