"""A server that returns items in pages and refuses every second request: `python items_server.py PORT`."""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ITEMS = [{"id": number, "name": f"item {number}", "price": number / 2} for number in range(1, 8)]
PAGE = 3


class Shop(BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self) -> None:
        Shop.asked += 1
        if Shop.asked % 2:
            self._answer(503, {"error": "busy"})
            return
        page = int(parse_qs(urlsplit(self.path).query).get("page", ["1"])[0])
        items = ITEMS[(page - 1) * PAGE : page * PAGE]
        self._answer(200, {"items": items, "has_more": page * PAGE < len(ITEMS)})

    def _answer(self, status: int, body: Any) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *arguments: Any) -> None:
        pass


def serve(port: int) -> HTTPServer:
    return HTTPServer(("127.0.0.1", port), Shop)


if __name__ == "__main__":
    serve(int(sys.argv[1])).serve_forever()
