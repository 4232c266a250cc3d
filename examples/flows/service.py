"""A small shop service for the examples: `python examples/flows/service.py [PORT]`.

It keeps its data in memory. Every second charge is answered with 503, so that there is something to retry.
A repeated `Idempotency-Key` gets the same answer as before, so retrying a charge is safe.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ITEMS = [f"item-{number}" for number in range(1, 8)]
PAGE = 3


class Shop(ThreadingHTTPServer):
    """The state of the shop."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.reservations: dict[str, list[str]] = {}
        self.charges: dict[str, str] = {}
        self.charge_requests = 0
        self.polls: dict[str, int] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Shop

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        if place.path == "/items":
            cursor = int(float(parse_qs(place.query).get("cursor", ["0"])[0]))
            following = cursor + PAGE if cursor + PAGE < len(ITEMS) else None
            self._answer(200, {"items": ITEMS[cursor : cursor + PAGE], "next": following})
        elif place.path.startswith("/jobs/"):
            polls = self.server.polls[place.path] = self.server.polls.get(place.path, 0) + 1
            is_finished = polls >= 3
            self._answer(200, {"state": "finished", "result": 42} if is_finished else {"state": "running"})
        else:
            self._answer(404, {})

    def do_POST(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if self.path.startswith("/reservations/"):
            if given["sku"] == "sold-out":
                self._answer(409, {"error": "sold out"})
            else:
                self.server.reservations.setdefault(self.path.rsplit("/", 1)[1], []).append(given["sku"])
                self._answer(201, {})
        elif self.path == "/charges":
            self._charge(given)
        elif self.path == "/shipments":
            self._answer(201, {"shipment": f"parcel for {given['order']}"})
        else:
            self._answer(404, {})

    def _charge(self, given: dict[str, Any]) -> None:
        self.server.charge_requests += 1
        if self.server.charge_requests % 2 == 1:
            self._answer(503, {"error": "busy"})
            return
        key = self.headers.get("idempotency-key", "")
        charge = self.server.charges.setdefault(key, f"charge-{len(self.server.charges) + 1}")
        self._answer(201, {"charge": charge})

    def do_DELETE(self) -> None:
        self.server.reservations.pop(self.path.rsplit("/", 1)[1], None)
        self._answer(200, {})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words: object) -> None:
        """Say nothing; the Flow's history tells more."""


if __name__ == "__main__":
    with Shop(int(sys.argv[1]) if len(sys.argv) > 1 else 8642) as shop:
        print(f"the shop is open at {shop.url}")
        shop.serve_forever()
