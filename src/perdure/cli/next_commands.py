"""Commands that we tell people to type next. They must work as they stand, from the same folder."""

import argparse
import os
import shlex

from perdure.wiring import DEFAULT_STORE, url_to_type


def resume_command(args: argparse.Namespace, *runs: str) -> str:
    words = ["perdure", "resume", *runs, *_store(args)]
    for source in getattr(args, "load", ()):
        words += ["--load", source]
    return shlex.join(words)


def with_store(args: argparse.Namespace, command: str) -> str:
    """A command that a view suggests, for the store that was asked about."""
    options = shlex.join(_store(args))
    return f"{command} {options}" if options else command


def _store(args: argparse.Namespace) -> list[str]:
    """Never a token: what is printed is copied, logged and shown to others."""
    if args.choice is not None:
        return ["--server", args.choice.url] if args.choice.origin == "--server" else []
    is_default = args.db == (os.environ.get("PERDURE_DB") or DEFAULT_STORE)
    return [] if is_default else ["--db", url_to_type(args.db)]
