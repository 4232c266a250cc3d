"""Connections to NATS servers: which addresses, as whom, and what their failures mean.

A document that names a server causes the connection, so its address is checked (SRV-024). A lost connection is made
anew by who uses it and not by the library: it would also connect to servers that another server names. The library
encrypts if the server says so, in clear; with `tls://` nothing is said to one that does not.
"""

import asyncio
import importlib
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from perdure.kernel.json_values import jsontext
from perdure.providers.addresses import AddressRefused, resolve
from perdure.providers.failure import ProviderFailure
from perdure.providers.policy import policy_in_force

CONNECT_TIMEOUT = 5  # seconds
LONGEST_LINE = 64 * 1024  # bytes of a line of the protocol
LARGEST_MESSAGE = 128 * 1024 * 1024  # bytes: twice what a server can be set to
MOST_IN_AN_ANSWER = 20_000  # values
DEFAULT_PORT = 4222

_API, _VALUES = "$JS.API.", "$JS.API.DIRECT.GET."


TRANSPORT = "Transport.Nats"


class NatsFailure(ProviderFailure):
    """What stands between us and a NATS server; `retryable` if it may pass by itself."""

    def __init__(self, name: str, message: str, hint: str, *, retryable: bool = False, prefix: str = TRANSPORT) -> None:
        super().__init__(f"{prefix}.{name}", f"{message} ({hint})", retryable, {"hint": hint})


def nats_library(prefix: str = TRANSPORT) -> Any:
    try:
        return importlib.import_module("nats")
    except ModuleNotFoundError as error:
        if error.name != "nats":
            raise
        hint = "pip install 'perdure[nats]'"
        message = "NATS needs nats-py, which is not installed here"
        raise NatsFailure("MissingExtra", message, hint, prefix=prefix) from None


class NatsConnector:
    """Makes connections, to one server after the other."""

    def __init__(
        self,
        servers: Sequence[str],
        login: Mapping[str, str],
        name: str,
        authorities: str | None = None,
        prefix: str = TRANSPORT,
    ) -> None:
        """`login` has `token`, or `user` and `password`; `authorities` are those that a TLS server is checked with."""
        self._servers = servers
        self._library = nats_library(prefix)
        self._login = login
        self._authorities = authorities
        self._name = name
        self._prefix = prefix
        self._turn = 0

    async def connect(self) -> Any:
        """A connection to the first server that answers. Raises `NatsFailure`, or `AddressRefused`."""
        problems = []
        for _ in self._servers:
            server = self._servers[self._turn % len(self._servers)]
            try:
                return await self._connect(server)
            except NatsFailure as problem:
                problems.append(problem)
                self._turn += 1
        raise next((problem for problem in problems if not problem.retryable), problems[-1])

    async def _connect(self, server: str) -> Any:
        parts = urlsplit(server)
        host, port = parts.hostname or "", parts.port or DEFAULT_PORT
        failure: Exception | None = None
        for address in await self._addresses(host, port):
            shown = f"[{address}]" if ":" in address else address
            try:
                return await self._open(f"{parts.scheme}://{shown}:{port}", host)
            except (OSError, TimeoutError, self._library.errors.Error) as error:
                failure = PermissionError() if _is_refusal(error) else error
        if isinstance(failure, PermissionError):
            hint = "its secret needs `token`, or `username` and `password`"
            raise self._failure("NotAuthorized", f"the NATS server {host}:{port} does not accept the login", hint)
        if isinstance(failure, self._library.errors.SecureConnWantedError):
            hint = "it must ask for TLS, or its address begins with nats:// if that is meant"
            raise self._failure("TlsFailed", f"the NATS server {host}:{port} does not encrypt", hint)
        if isinstance(failure, ssl.SSLError):
            hint = "`ca.crt` of its secret must hold the authority that has signed its certificate"
            raise self._failure("TlsFailed", f"no secure connection to {host}:{port}: {failure.reason}", hint)
        reason = str(failure) or type(failure).__name__
        hint = "check that it runs and can be reached from here"
        raise self._failure(
            "Unreachable", f"no connection to the NATS server {host}:{port}: {reason}", hint, retryable=True
        )

    def _failure(self, name: str, message: str, hint: str, *, retryable: bool = False) -> NatsFailure:
        return NatsFailure(name, message, hint, retryable=retryable, prefix=self._prefix)

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        policy = policy_in_force()
        try:
            return await resolve(policy, host, port, self._prefix) if policy.checks_addresses else [host]
        except AddressRefused:
            raise
        except OSError as error:
            hint = "is the name right?"
            message = f"the name of the NATS server {host!r} is not known: {error}"
            raise self._failure("Unreachable", message, hint, retryable=True) from None

    async def _open(self, url: str, host: str) -> Any:
        options: dict[str, Any] = dict(self._login)
        if url.startswith("tls:"):
            options |= {"tls": ssl.create_default_context(cadata=self._authorities), "tls_hostname": host}
        problems: list[Exception] = []

        async def note(error: Exception) -> None:
            problems.append(error)
            del problems[:-1]

        client = _client(self._library, must_encrypt=url.startswith("tls:"))
        try:
            await asyncio.wait_for(
                client.connect(
                    servers=[url],
                    name=self._name,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=CONNECT_TIMEOUT,
                    error_cb=note,
                    **options,
                ),
                2 * CONNECT_TIMEOUT,
            )
        except BaseException as error:
            with suppress(TimeoutError):  # after a failed handshake the library may wait for ever
                await asyncio.wait_for(client.close(), 1)
            if isinstance(error, self._library.errors.NoServersError) and problems:
                raise problems[-1] from None  # why there is none
            raise
        return client


def _client(library: Any, *, must_encrypt: bool) -> Any:
    """A client that sends no login in clear where TLS is meant, and keeps no more of a message than one may have."""
    parsing = importlib.import_module("nats.protocol.parser")

    class BoundedParser(parsing.Parser):  # type: ignore[misc, name-defined]
        async def parse(self, data: bytes = b"") -> None:
            await super().parse(data)
            is_line = self.state == parsing.AWAITING_CONTROL_LINE
            if self.needed > LARGEST_MESSAGE or (is_line and len(self.buf) > LONGEST_LINE):
                self.reset()
                raise library.errors.ProtocolError("the server sends more than a message may have")

    class Client(library.NATS):  # type: ignore[misc]
        def _connect_command(self) -> bytes:  # the first that is sent, and it contains the login
            if must_encrypt and not self._server_info.get("tls_required"):
                raise library.errors.SecureConnWantedError
            command: bytes = super()._connect_command()
            return command

        async def _process_headers(self, headers: bytes | None) -> Any:
            if headers and len(headers) > LONGEST_LINE:
                raise library.errors.ProtocolError("the server sends more headers than a message may have")
            return await super()._process_headers(headers)

        async def request(self, subject: str, *arguments: Any, **options: Any) -> Any:
            """What the server says about itself is read by the library in one call; values of others are not."""
            answer = await super().request(subject, *arguments, **options)
            if subject.startswith(_API) and not subject.startswith(_VALUES) and _is_too_long(answer.data):
                raise library.errors.ProtocolError("the answer of the server is too long")
            return answer

        async def _flush_pending(self, *arguments: Any, **options: Any) -> Any:
            """The library would keep a cancellation for itself; it is meant for its caller."""
            task = asyncio.current_task()
            before = 0 if task is None else task.cancelling()
            result = await super()._flush_pending(*arguments, **options)
            if task is not None and task.cancelling() > before:
                raise asyncio.CancelledError
            return result

    client = Client()
    client._ps = BoundedParser(client)
    return client


def _is_too_long(answer: bytes) -> bool:
    return len(answer) > MOST_IN_AN_ANSWER and jsontext.count_values(answer, MOST_IN_AN_ANSWER) > MOST_IN_AN_ANSWER


def _is_refusal(error: Exception) -> bool:
    return "authorization" in str(error).lower() or "authentication" in str(error).lower()
