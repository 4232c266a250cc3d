"""Which variables of the environment a document may read: those that somebody has named for it, and no others.

What is allowed is recorded with the start, so that the run reads the same whoever takes it up later. Secrets do not
belong there: they are a matter of keychains and providers.
"""

from collections.abc import Mapping, Sequence

from perdure.cli.errors import BadUsage

PREFIX = "PERDURE_ENV_"


def readable(named: Sequence[str], environment: Mapping[str, str], texts: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` and `NAME` as given with --env, and `PERDURE_ENV_NAME`; only what a text mentions beside `env`."""
    allowed = {name.removeprefix(PREFIX): value for name, value in environment.items() if name.startswith(PREFIX)}
    for one in named:
        name, equals, value = one.partition("=")
        if not name.isidentifier():
            raise BadUsage(f"--env {one}: {name!r} is no name of a variable")
        if not equals and name not in environment:
            raise BadUsage(f"--env {name}: there is no such variable", hint="Set it, or write --env NAME=VALUE.")
        allowed[name] = value if equals else environment[name]
    reading = [text for text in texts if "env" in text]
    return {name: value for name, value in sorted(allowed.items()) if any(name in text for text in reading)}
