"""Which server a command is for: by flag, environment or context; and how it gets there.

A context is an address with a token, kept under a name in a file that only its owner can read.
"""

import argparse
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from perdure.cli.errors import BadUsage
from perdure.engine.private_files import write_private

if TYPE_CHECKING:
    from perdure.server.api_client.server_access import ServerAccess

PLAIN_HOSTS = ("127.0.0.1", "localhost", "::1")
STORE_VERBS = (
    "serve",
    "worker",
    "ca",
    "kubeconfig",
    "completion",
    "conformance",
    "context",
    "config",
    "open",
    "schema",
    "init",
    "convert",
)
"""Verbs that take no notice of a context: they work here, or are told their server themselves."""


class Context(msgspec.Struct, omit_defaults=True):
    server: str
    token: str = ""
    token_file: str = ""
    ca: str = ""
    namespace: str = ""


class Contexts(msgspec.Struct, omit_defaults=True):
    current: str = ""
    contexts: dict[str, Context] = {}


class ServerChoice(msgspec.Struct, frozen=True):
    """`url` and where it comes from; the token as it was given, not read yet."""

    url: str
    origin: str
    context: Context | None = None


def contexts_path() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "perdure" / "contexts.json"


def read_contexts() -> Contexts:
    path = contexts_path()
    try:
        about = path.stat()
        text = path.read_bytes()
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise BadUsage(f"the contexts cannot be read: {path}: {error.strerror}", hint="") from None
    if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077:
        raise BadUsage(
            f"{path} contains access tokens, and other users can read or change it", hint=f"chmod 600 {path}"
        )
    try:
        return msgspec.json.decode(text, type=Contexts)
    except msgspec.DecodeError as error:
        raise BadUsage(
            f"{path} is not a file of contexts: {error}", hint="Remove it and add your contexts again."
        ) from None


def write_contexts(contexts: Contexts) -> None:
    """All or nothing, and never readable by others."""
    path = contexts_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, msgspec.json.format(msgspec.json.encode(contexts), indent=2) + b"\n")


def chosen_server(args: argparse.Namespace) -> ServerChoice | None:
    """None: the command is for a store. A flag counts before the environment, and that before a context."""
    if args.verb in STORE_VERBS:
        return None
    if args.server:
        if args.names_store:
            raise BadUsage("name a store with --db or a server with --server, not both")
        return ServerChoice(check_url(args.server), "--server")
    if args.names_store:
        return None
    if url := os.environ.get("PERDURE_SERVER"):
        return ServerChoice(check_url(url), "PERDURE_SERVER")
    if os.environ.get("PERDURE_DB") or not contexts_path().exists():
        return None
    contexts = read_contexts()
    if not contexts.current:
        return None
    context = contexts.contexts[contexts.current]
    if context.namespace and getattr(args, "namespace", "") is None:
        args.namespace = context.namespace
    return ServerChoice(check_url(context.server), f"context {contexts.current}", context)


def check_url(url: str) -> str:
    """The address of a server. A token in it would be in every process list and log."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadUsage("the server's address must be http://HOST:PORT or https://HOST[:PORT]", hint="")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadUsage(
            "the server's address must not contain a user, a password or a query",
            hint="Give the token with --access-token @FILE, PERDURE_TOKEN or a context.",
        )
    return url.rstrip("/")


def token_of(args: argparse.Namespace, choice: ServerChoice) -> str | None:
    """By flag, environment or context; a context's token goes to the context's own server only."""
    context = choice.context or context_of(choice.url)
    for text in (args.access_token, os.environ.get("PERDURE_TOKEN")):
        if text:
            return read_token(text)
    if context is None:
        return None
    return context.token or (read_token(f"@{context.token_file}") if context.token_file else None)


def context_of(url: str) -> Context | None:
    """The context of a server that was named by its address, if exactly that one is known."""
    if not contexts_path().exists():
        return None
    same = [context for context in read_contexts().contexts.values() if context.server == url]
    return same[0] if len(same) == 1 else None


def read_token(text: str) -> str:
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            what = getattr(error, "strerror", None) or "it is not text"
            raise BadUsage(f"the access token cannot be read: {text[1:]}: {what}", hint="") from None
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadUsage("the access token is empty or malformed", hint="`perdure token create` makes one.")
    return token


def leave_context(choice: ServerChoice | None) -> str:
    """How to get back to a store, for somebody who has forgotten that a context is in use."""
    if choice is None or choice.context is None:
        return ""
    name = choice.origin.removeprefix("context ")
    return f"The context '{name}' is in use; `perdure context use --none` leaves it and works on a store here."


def refuse_load(args: argparse.Namespace) -> None:
    """What a server does, it does with the code that it has loaded itself."""
    if args.load:
        message = f"--load: the server {args.choice.url} works with the code that it has loaded itself"
        hint = "Start it with `perdure serve --load FILE`."
        raise BadUsage(message, hint=f"{hint} {leave_context(args.choice)}".rstrip())


def refuse_server(args: argparse.Namespace) -> None:
    """For what works on a store only."""
    choice = args.choice
    if choice is None:
        return
    hint = "Name the store with --db, on a machine that reaches it; `perdure context use --none` leaves a context."
    if args.verb == "resume":
        hint = "A server resumes runs by itself; `perdure wait RUN` waits for one."
    raise BadUsage(
        f"`perdure {args.verb}` works on a store, not through a server ({choice.origin}: {choice.url})", hint=hint
    )


def server_access(args: argparse.Namespace, say: Callable[[str], None]) -> "ServerAccess":
    """Imported here: nobody pays for HTTP who asks a store."""
    from perdure.server.api_client.server_access import ServerAccess

    choice: ServerChoice = args.choice
    context = choice.context or context_of(choice.url)
    ca = os.environ.get("PERDURE_CA") or (context.ca if context else "") or None
    token = token_of(args, choice)
    parts = urlsplit(choice.url)
    if token and parts.scheme == "http" and parts.hostname not in PLAIN_HOSTS:
        say(f"{choice.url}: the access token is sent unencrypted; `perdure serve --tls` offers https")
    return ServerAccess(choice.url, token, ca=ca, say=say)


def plain_json(contexts: Contexts) -> list[dict[str, Any]]:
    """Without tokens."""
    return [
        {
            "name": name,
            "server": context.server,
            "current": name == contexts.current,
            "namespace": context.namespace or None,
            "ca": context.ca or None,
            "token": "file" if context.token_file else "kept" if context.token else None,
        }
        for name, context in sorted(contexts.contexts.items())
    ]
