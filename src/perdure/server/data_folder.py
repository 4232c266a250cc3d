"""The data folder of a server: its first token, its certificates. Nobody else may read it."""

import os
import stat
from hashlib import sha256
from pathlib import Path

from perdure.kernel.errors import PerdureError
from perdure.wiring import url_without_password


class DataFolderUnsafe(PerdureError):
    """The data folder belongs to somebody else, or others may read it."""

    code = "DATA-FOLDER-UNSAFE"
    hint = "Give it to the user of the server with mode 700 (its files 600), or choose another one: --data DIR."


def data_folder(path: str | None, store: str) -> Path:
    """The folder, made if it is not there: beside the file of a store, or where the user's state is."""
    folder = Path(path) if path else _default(store)
    for missing in reversed([parent for parent in (folder, *folder.parents) if not parent.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    _check(folder, 0o077)
    return folder


def _default(store: str) -> Path:
    if store.startswith("sqlite:"):
        from perdure.stores.sqlite.database import path_of

        file = path_of(store)
        return file.with_name(f"{file.name}-server")
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "perdure" / sha256(url_without_password(store).encode()).hexdigest()[:16]


def _check(path: Path, forbidden: int) -> None:
    status = path.stat()
    if status.st_uid != os.geteuid():
        raise DataFolderUnsafe(f"{path} belongs to another user")
    if path.lstat().st_uid != os.geteuid():  # who could choose another folder of ours, and change that later
        raise DataFolderUnsafe(f"{path} is a link of another user")
    if stat.S_IMODE(status.st_mode) & forbidden:
        raise DataFolderUnsafe(f"{path} may be used by others (mode {stat.S_IMODE(status.st_mode):o})")
