"""What published documents need to run, and what of it can be offered on this machine, for `tools.upstream_runs`.

Nothing but servers on this machine is ever reached, and no program is started that could change it: a document whose
tasks name other hosts, programs, packages or clouds is not run.
"""

import ast
import contextlib
import http.server
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# What a document needs.

HARMLESS = frozenset(
    re.findall(
        r"\S+",
        """[ [[ : awk basename break case cat continue cut date declare dirname do done echo elif else esac exit export
        expr false fi for function grep head hostname if local ls printf pwd read return sed seq set shift sleep sort
        tail test then tr true uname uniq unset wc which while whoami { }""",
    )
)
_WORD = re.compile(r"[\w./-]+$")
_CLUSTER = re.compile(r"[\w-]+(?:\.[\w-]+)*\.svc\.cluster\.local")
_URL = re.compile(r"\b(?:https?|nats|gs|s3)://([^\s/:\"'?}]+)")
_CLOUDS = {
    "secrets": "a secret manager of a cloud",
    "container": "a container runtime",
}


def why_not(document: Any, offered: Mapping[str, str]) -> str | None:
    """What the document needs and is not here."""
    needs = sorted(set(_needs(document, offered)))
    return "needs " + ", ".join(needs) if needs else None


def _needs(document: Any, offered: Mapping[str, str]) -> Iterator[str]:
    for entry in document.get("keychain") or ():
        if entry.get("kind") in ("oauth2", "http", "secret_manager", "secrets"):
            yield from _hosts(entry, offered)
    workload = document.get("workload") or {}
    yield from _hosts(workload, offered)
    for task in _tasks(document):
        kind = task.get("kind")
        if kind in _CLOUDS:
            yield _CLOUDS[kind]
        elif kind == "shell":
            yield from _programs(task.get("cmds"))
        elif kind == "duckdb" and re.search(r"\b(INSTALL|gs://|s3://)", json.dumps(task)):
            yield "an extension of DuckDB, which is downloaded"
        elif kind == "python":
            yield from _imports(str(task.get("code", "")))
            yield from _hosts(task, offered)
        elif kind != "python":
            yield from _hosts({name: value for name, value in task.items() if name != "desc"}, offered)


def _tasks(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("kind"), str) and "step" not in value and "metadata" not in value:
            yield value
        for inner in value.values():
            yield from _tasks(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _tasks(inner)


def _hosts(value: Any, offered: Mapping[str, str]) -> Iterator[str]:
    text = json.dumps(value)
    for host in (*_URL.findall(text), *_CLUSTER.findall(text)):
        name = host.split("@")[-1].strip("\\")
        if (
            name not in offered
            and not name.startswith(("{", "127.0.0.1"))
            and not name.endswith((".invalid", "noetl.io"))
        ):
            yield f"the host {name}"


def _programs(commands: Any) -> Iterator[str]:
    texts = commands if isinstance(commands, list) else [commands]
    for text in texts:
        without = re.sub(r"\{\{.*?\}\}", "$x", str(text).replace("\\\n", " "), flags=re.DOTALL)
        without = re.sub(r"<<-?\s*['\"]?(\w+)['\"]?.*?\n\s*\1\b", "", without, flags=re.DOTALL)
        without = re.sub(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|#[^\n]*", "$x", without)
        for part in re.split(r"[\n;|&()`]+|\b(?:then|do|else|if|while|!)\b", without):
            words = [word for word in part.split() if "=" not in word.split("$")[0]]
            if words and words[0].startswith("$"):
                yield "programs that variables name"
            elif words and _WORD.match(words[0]) and words[0] not in HARMLESS:
                yield f"the program {words[0]}"


def _imports(code: str) -> Iterator[str]:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            root = name.partition(".")[0]
            if root == "subprocess":
                yield "programs that its code starts"
            elif importlib.util.find_spec(root) is None:
                yield f"the Python package {root}"


# What is offered here.


class _Echo(http.server.BaseHTTPRequestHandler):
    """Answers with what was asked, as httpbin does: `/get`, `/post`, `/status/N`, `/delay/N` and any other path."""

    def _answer(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode(errors="replace")
        match = re.fullmatch(r"/(status|delay)/(\d+)", parts.path)
        if match and match[1] == "delay":
            time.sleep(min(int(match[2]), 5))
        try:
            sent = json.loads(body) if body else None
        except ValueError:
            sent = None
        query = dict(urllib.parse.parse_qsl(parts.query))
        answer = {
            "args": query, "headers": dict(self.headers), "url": self.path, "method": self.command, "data": body,
            "json": sent, "form": {}, "origin": "127.0.0.1", "uuid": "0", "slideshow": {"title": "Sample"},
        }  # fmt: skip
        text = json.dumps(answer).encode()
        self.send_response(int(match[2]) if match and match[1] == "status" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _answer  # noqa: N815 - names of the library

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def echo_service() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


@contextlib.contextmanager
def test_service(folder: Path) -> Iterator[str | None]:
    """The project's own service for its tests, from the copy."""
    if not (folder / "paginated_api.py").is_file() or importlib.util.find_spec("uvicorn") is None:
        yield None
        return
    port = _free_port()
    command = [sys.executable, "-m", "uvicorn", "paginated_api:app", "--host", "127.0.0.1", "--port", str(port)]
    fast = {"PATIENT_RECORDS_MIN_DELAY": "0", "PATIENT_RECORDS_MAX_DELAY": "0.01", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command, cwd=folder, env={**os.environ, **fast}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
