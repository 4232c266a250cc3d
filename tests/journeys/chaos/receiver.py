"""The outside of the chaos test: a real HTTP server that honours idempotency keys and writes down every call."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from perdure.kernel.json_values.values import Instant
from perdure.stores.clocks import sources

FAILURES = 2  # how often a flaky thing refuses
SLOWLY = 0.05  # seconds between doing what is charged for and saying so: whoever dies in between leaves it in doubt


@dataclass
class Call:
    """One request as it arrived."""

    path: str
    said: dict[str, Any]
    at: float  # seconds of the wall, by which it is known what was done to processes
    recorded_at: Instant  # by the store's clock, as events have it


@dataclass
class Receiver:
    """`calls` holds every request; `performed` what was really done, by key: a repeated key gets the first answer.

    `store_clock` is set before anybody calls.
    """

    calls: list[Call] = field(default_factory=list)
    performed: dict[str, list[Call]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    address: str = ""
    store_clock: Callable[[], Instant] = sources.boot
    killer: tuple[str, str] | None = None  # the task that ends its process when it begins: its run and path
    deaths: int = 0  # how often it still does so; who begins next is the killer, if there is none yet
    doomed: list[int] = field(default_factory=list)  # processes that were told to die

    def __enter__(self) -> "Receiver":
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exit: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        with self.lock:
            call = Call(path, body, time.time(), self.store_clock())
            self.calls.append(call)
            if path == "/began" and self._kills(body):
                self.deaths -= 1
                self.doomed.append(body["process"])
                return 200, {"die": True}
            if path == "/charge":
                done = self.performed.setdefault(body["key"], [])
                if not done:
                    done.append(call)
                return 200, {"receipt": f"receipt for {body['what']}"}
            if path == "/flaky":
                self.refused[body["what"]] += 1
                return (503, {}) if self.refused[body["what"]] <= FAILURES else (200, {})
            return 200, {}

    def let_a_task_kill(self, times: int) -> None:
        """Of the task that begins next, so many begins end the process in which it begins."""
        with self.lock:
            self.killer, self.deaths = None, times

    def _kills(self, body: dict[str, Any]) -> bool:
        place = (body["run"], body["path"])
        if self.deaths and self.killer is None:
            self.killer = place
        return self.deaths > 0 and self.killer == place

    def began(self) -> list[Call]:
        return [call for call in self.calls if call.path == "/began"]

    def charges(self) -> list[Call]:
        return [call for call in self.calls if call.path == "/charge"]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512  # everyone calls at once after an outage

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Callers are killed in the middle of their calls; that is what this is for."""


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answer = receiver.take(self.path, body)
            if self.path == "/charge":
                time.sleep(SLOWLY)
            text = json.dumps(answer).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            except OSError:
                pass  # the caller was killed meanwhile

        def log_message(self, format: str, *args: Any) -> None:
            """Everything is in `calls`."""

    return Handler
