"""Commands that we tell people to type next. They must work as they stand, from the same folder."""

import argparse
import os
import shlex

from perdure.wiring import DEFAULT_STORE, url_to_type


def resume_command(asked: argparse.Namespace, *runs: str) -> str:
    words = ["perdure", "resume", *runs, *_store(asked)]
    for source in getattr(asked, "load", ()):
        words += ["--load", source]
    return shlex.join(words)


def with_store(asked: argparse.Namespace, command: str) -> str:
    """A command that a view suggests, for the store that was asked about."""
    options = shlex.join(_store(asked))
    return f"{command} {options}" if options else command


def _store(asked: argparse.Namespace) -> list[str]:
    """Never a token: what is printed is copied, logged and shown to others."""
    if asked.choice is not None:
        return ["--server", asked.choice.url] if asked.choice.origin == "--server" else []
    is_default = asked.db == (os.environ.get("PERDURE_DB") or DEFAULT_STORE)
    return [] if is_default else ["--db", url_to_type(asked.db)]
