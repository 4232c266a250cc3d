"""Commands that we tell people to type next. They must work as they stand, from the same folder."""

import argparse
import os
import shlex

from perdure.stores.store_urls import to_be_typed
from perdure.wiring import DEFAULT_STORE


def resume_command(asked: argparse.Namespace, *runs: str) -> str:
    words = ["perdure", "resume", *runs]
    if asked.db != (os.environ.get("PERDURE_DB") or DEFAULT_STORE):
        words += ["--db", to_be_typed(asked.db)]
    for source in getattr(asked, "load", ()):
        words += ["--load", source]
    return shlex.join(words)
