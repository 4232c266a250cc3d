"""A file system that forgets what was not synced, as a power cut makes a real one do.

Writes go to the real file, so that SQLite reads what it wrote; beside it we keep what would survive:
the content as of the last sync of each file. `power_cut` writes the survivors into another folder.
"""

from pathlib import Path
from typing import Any

import apsw


class ForgetfulVFS(apsw.VFS):
    def __init__(self, name: str, *, only_counts: bool = False) -> None:
        self.only_counts = only_counts
        self.durable: dict[str, bytes] = {}
        self.syncs = 0
        super().__init__(name, base="")

    def xOpen(self, name: Any, flags: Any) -> "ForgetfulFile":  # noqa: N802
        return ForgetfulFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self.durable.pop(filename, None)
        super().xDelete(filename, syncdir)

    def power_cut(self, source: Path, target: Path) -> None:
        """What a new machine would find of `source`'s folder."""
        for name, content in self.durable.items():
            if Path(name).name.startswith(source.name):
                (target / Path(name).name).write_bytes(content)


class ForgetfulFile(apsw.VFSFile):
    def __init__(self, vfs: ForgetfulVFS, name: Any, flags: Any) -> None:
        self._vfs = vfs
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else name
        super().__init__("", name, flags)
        if self._name:
            vfs.durable.setdefault(self._name, b"")

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._vfs.syncs += 1
        if self._name and not self._vfs.only_counts:
            self._vfs.durable[self._name] = Path(self._name).read_bytes()
