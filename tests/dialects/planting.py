"""Random secrets, a server that repeats what it is told in many writings, and the search for what was left of them."""

import base64
import html
import json
import random
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, urlsplit

from tests.cli.commandline import CommandLine, Done

ASCII = "abcXYZ019 \"'\\/+=&%$#<>:!()*,;?@[]^`{|}~"
LETTERS = ASCII + "é߀漢😀"
WINDOW = 8
"""So many characters of a secret in a row are told already."""


def secret_of(seed: int, which: str, letters: str = LETTERS) -> str:
    """One that no other text holds by chance, with 24 characters."""
    draw = random.Random(f"{seed}{which}")
    return which + "".join(draw.choice(letters) for _ in range(22 - len(which))) + "9z"


def writings(secret: str) -> set[str]:
    """How servers, programs and documents write a text."""
    data = secret.encode()
    once = json.dumps(secret)[1:-1]
    spellings = {secret, once, json.dumps(once)[1:-1], json.dumps(json.dumps(once))[1:-1], repr(secret)[1:-1]}
    spellings |= {
        json.dumps(secret, ensure_ascii=False)[1:-1],
        once.replace("/", "\\/"),
        repr(data)[2:-1],
        html.escape(secret),
    }
    spellings |= {quote(secret, safe=safe) for safe in ("", "/", "!'()*", ";,/?:@&=+$#!'()*")} | {quote_plus(secret)}
    spellings |= {quote(quote(secret, safe=""), safe=""), quote(secret, safe="").replace("%2F", "%2f"), data.hex()}
    for shift in range(3):
        inside = base64.b64encode(b"x" * shift + data + b"yy").decode()
        core = inside[(0, 2, 3)[shift] : (shift + len(data)) * 8 // 6]
        spellings |= {core, core.translate(str.maketrans("+/", "-_")), quote(core, safe="")}
    return spellings


def traces(secret: str) -> set[bytes]:
    """What must not be found: every writing, and pieces of the secret as it is."""
    pieces = {secret[at : at + WINDOW] for at in range(len(secret) - WINDOW + 1)}
    return {text.encode() for text in writings(secret) | pieces}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        address = urlsplit(self.path)
        for text in self._told(address.query, body):
            server.echoes.heard.setdefault(text)
        server.echoes.paths.append(address.path)
        kind, _, rest = address.path.strip("/").partition("/")
        texts = [text for heard in server.echoes.heard for text in sorted(writings(heard))]
        whole = "\n".join(texts)
        match kind:
            case "token":
                self._send(200, json.dumps({"access_token": server.echoes.token, "expires_in": 600}))
            case "block" if not server.echoes.may_pass.is_set():
                server.echoes.is_blocked.set()
                server.echoes.may_pass.wait(30)
                self.close_connection = True
            case "redirect":
                where = f"/echo/{rest}?" + "&".join(quote(text, safe="") for text in server.echoes.heard)
                self._send(302, "", Location=where)
            case "fail":  # what is kept of the body ends in the middle of a secret
                first = next(iter(server.echoes.heard))
                self._send(500, "x" * (2000 - len(first) // 2) + first + whole, "text/plain")
            case "refuse":
                first = next(iter(server.echoes.heard))
                self._send(400, "x" * (200 - len(first) // 2) + first + whole, "text/plain")
            case "broken":
                self._send(200, '{"not json": ' + whole)
            case _:
                headers = {f"X-Said-{at}": quote(text, safe="") for at, text in enumerate(server.echoes.heard)}
                self._send(200, json.dumps({"said": texts, "text": json.dumps(texts), "b": _encoded(whole)}), **headers)

    do_POST = do_GET  # noqa: N815 - as the library names it

    def _told(self, query: str, body: str) -> Iterator[str]:
        """Only what is marked as a secret; it may stand in headers, in the query and in the body."""
        kind, _, rest = self.headers.get("Authorization", "").partition(" ")
        pair = base64.b64decode(rest).decode() if kind == "Basic" else rest
        texts = [pair.partition(":")[2] if kind == "Basic" else pair, self.headers.get("X-Key", "")]
        texts += [value for _, value in parse_qsl(query)]
        if "json" in self.headers.get("Content-Type", ""):
            texts += _texts(json.loads(body))
        else:
            texts += [value for _, value in parse_qsl(body)]
        yield from (text for text in texts if text.endswith("9z"))

    def _send(self, status: int, text: str, kind: str = "application/json", **headers: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Echoes:
    """A server on loopback that says everything again that it was ever told, in all writings, to whoever asks."""

    def __init__(self) -> None:
        self.heard: dict[str, None] = {}
        self.paths: list[str] = []
        self.token = ""
        self.is_blocked = threading.Event()
        self.may_pass = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.echoes = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=partial(self._server.serve_forever, poll_interval=0.01))
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self.may_pass.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def everything_said(perdure: CommandLine, *ended: Done, written: frozenset[str]) -> dict[str, bytes]:
    """All files below the folder that no test has written, and all answers that there are about all runs."""
    perdure.here("backup", "copy.db")
    rows = perdure.here("ps", "--json", "--all").json
    texts = {f"out {at}": (done.out + done.err).encode() for at, done in enumerate(ended)}
    views: list[tuple[str, ...]] = [("ps", "--all", "--json"), ("ps", "--all")]
    for run in [row["id"] for row in rows]:
        views += [("show", run, "--json"), ("show", run), ("history", run, "--full"), ("history", run, "--json")]
        views += [("history", run, "--raw", "--json"), ("history", run, "--raw", "--full"), ("effects", run, "--json")]
    for kind in ("stories", "storyruns", "stepruns", "engrams", "effectclaims"):
        views += [("get", kind, "-o", "json"), ("get", kind, "-o", "yaml"), ("describe", kind)]
    for view in views:
        done = perdure.here(*view, code=None)
        texts[" ".join(view)] = (done.out + done.err).encode()
    for path in Path(perdure.folder).rglob("*"):
        is_ours = path.name in written or path.parent.name == "__pycache__"
        if path.is_file() and not is_ours:
            texts[str(path.relative_to(perdure.folder))] = path.read_bytes()
    return texts


def found_in(texts: dict[str, bytes], *secrets: str) -> list[tuple[str, bytes]]:
    looked_for = [trace for secret in secrets for trace in traces(secret)]
    return [(where, trace) for where, text in texts.items() for trace in looked_for if trace in text]
