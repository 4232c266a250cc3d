"""A real server process on loopback, and requests to it without a library that is clever."""

import http.client
import json
import signal
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cli.commandline import CommandLine, Running, strict_json

WAITS = {"drill": 1, "name": "waits", "steps": [{"signal": "go", "save": "x"}, {"return": "$x"}]}
PATIENCE = 300.0  # seconds: one server is for many tests
RETURNS = {"drill": 1, "name": "returns", "steps": [{"return": 17}]}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    text: bytes

    @property
    def json(self) -> Any:
        return strict_json(self.text.decode())

    @property
    def problem(self) -> tuple[int, str]:
        """Status and code of a refusal, which has every member that each must have."""
        assert self.headers["content-type"] == "application/problem+json", self.text
        body = self.json
        assert {"type", "title", "status", "detail", "code", "hint"} <= body.keys()
        assert body["status"] == self.status and body["type"] == f"/errors/{body['code']}"
        return self.status, body["code"]


@dataclass
class Api:
    """One who calls a server, with a token or without."""

    url: str
    token: str | None = None
    ca: str | None = None

    def __call__(
        self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, timeout: float = 90, **headers: Any
    ) -> Reply:
        connection = self.connect(timeout)
        text = raw if raw is not None else None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if text is not None else {}
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, text, sent)
            response = connection.getresponse()
            return Reply(
                response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
            )
        finally:
            connection.close()

    def connect(self, timeout: float = 90) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self.ca)
            return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=context)
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)

    def start(self, document: Any, **more: Any) -> str:
        reply = self("POST", "/api/v1/runs", {"document": document, **more})
        assert reply.status == 202, reply.text
        return str(reply.json["id"])

    def result(self, run: str) -> Any:
        reply = self("GET", f"/api/v1/runs/{run}/result?wait=60")
        assert reply.status == 200, reply.text
        return reply.json

    def follow(self, path: str, **headers: str) -> "Stream":
        connection = self.connect()
        defaults = {"Authorization": f"Bearer {self.token}", "Accept": "text/event-stream"}
        connection.request(
            "GET", path, headers=defaults | {name.replace("_", "-"): text for name, text in headers.items()}
        )
        response = connection.getresponse()
        return Stream(connection, response)


@dataclass
class Stream:
    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse

    def events(self) -> Iterator[dict[str, str]]:
        """Events as a browser reads them, until the stream ends."""
        event: dict[str, str] = {}
        for line in self.response:
            text = line.decode().rstrip("\n")
            if not text and event:
                yield event
                event = {}
            elif text and not text.startswith(":"):
                name, _, value = text.partition(": ")
                event[name] = value
        self.close()

    def close(self) -> None:
        self.response.close()
        self.connection.close()


@dataclass
class Server:
    """A process that runs `perdure serve`."""

    commands: CommandLine
    process: Running
    url: str
    roles: dict[str, Api] = field(default_factory=dict)

    @classmethod
    def start(cls, folder: Path, *words: str, **env: str) -> "Server":
        return cls.start_for(PATIENCE, folder, *words, **env)

    @classmethod
    def start_for(cls, timeout: float, folder: Path, *words: str, **env: str) -> "Server":
        """One that is ended after so many seconds."""
        commands = CommandLine(folder, timeout=timeout)
        process = commands.start("serve", "--listen", "127.0.0.1:0", *words, **env)
        url = process.hear("listening on ").split()[-1].rstrip('"}')
        return cls(commands, process, url)

    @property
    def admin(self) -> Api:
        return Api(self.url, (self.commands.folder / "perdure.db-server" / "admin-token").read_text().strip())

    @property
    def nobody(self) -> Api:
        return Api(self.url)

    def role(self, role: str, **more: Any) -> Api:
        """One with a token of this role, which an admin has made through the API."""
        if role not in self.roles:
            pools = {"pools": ["gpu"]} if role == "worker" else {}
            made = self.admin("POST", "/api/v1/tokens", {"name": f"the-{role}", "role": role, **pools, **more})
            assert made.status == 201, made.text
            self.roles[role] = Api(self.url, made.json["token"])
        return self.roles[role]

    def stop(self) -> None:
        self.process.send(signal.SIGTERM)
        done = self.process.end()
        assert done.code == 0, done
        assert "Traceback" not in done.err, done.err
