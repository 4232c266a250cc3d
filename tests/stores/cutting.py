"""A proxy before a database server that cuts connections at a chosen moment."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Literal

Moment = Literal["before it arrives", "before it is answered"]


class Proxy:
    """Passes bytes on. Once told, it watches for a request that holds a word, and cuts its connection."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._word: bytes | None = None
        self._moment: Moment = "before it arrives"
        self.cuts = 0
        self.is_refusing = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def cut(self, word: bytes, moment: Moment) -> None:
        """The next request that holds the word is lost, or its answer is."""
        self._word, self._moment = word, moment

    def cut_all(self) -> None:
        for end in list(self._open):
            _shut(end)

    def close(self) -> None:
        _shut(self._listening)
        self.cut_all()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self.is_refusing:
                    _shut(client)
                    continue
                server = socket.create_connection(self._target)
                self._open += [client, server]
                doomed = threading.Event()
                threading.Thread(target=self._ask, args=(client, server, doomed), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client, doomed), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, doomed: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if self._word is not None and self._word in data:
                    self._word = None
                    self.cuts += 1
                    if self._moment == "before it arrives":
                        break
                    doomed.set()
                server.sendall(data)
        _shut(client)
        _shut(server)

    def _answer(self, server: socket.socket, client: socket.socket, doomed: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if doomed.is_set():  # it was done, and nobody hears of it
                    break
                client.sendall(data)
        _shut(client)
        _shut(server)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextlib.contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    cutting = Proxy(("127.0.0.1", port))
    try:
        yield cutting
    finally:
        cutting.close()
