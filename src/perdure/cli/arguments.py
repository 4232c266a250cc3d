"""Options that several verbs share, and how the words of a command line become values."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from perdure.cli.errors import BadUsage
from perdure.kernel.ids import namespace_problem
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant, set_members
from perdure.views.times import read_instant, read_span

SHORTEST_LEASE = SECOND
MOST_PROCESSES = 64

_T = TypeVar("_T")


def add_shared(parser: argparse.ArgumentParser) -> None:
    """The options of every verb."""
    server = parser.get_default("server")
    add_shared_again(parser)
    db = os.environ.get("PERDURE_DB") or "sqlite:///perdure.db"
    parser.set_defaults(db=db, names_store=False, json=False, quiet=False, verbose=0, no_color=False)
    parser.set_defaults(server=server, access_token=None)


def add_shared_again(parser: argparse.ArgumentParser) -> None:
    """For a verb within a verb: the same options, and what was said before it stands."""
    group = parser.add_argument_group("common options")
    unsaid = argparse.SUPPRESS
    group.add_argument(
        "--db",
        metavar="URL",
        action=_Store,
        default=unsaid,
        help="the store to use (default: $PERDURE_DB, else sqlite:///perdure.db in the working directory)",
    )
    if "--server" not in parser._option_string_actions:
        group.add_argument(
            "--server",
            metavar="URL",
            default=unsaid,
            help="ask this server instead of a store (default: $PERDURE_SERVER, or the context in use)",
        )
    group.add_argument(
        "--access-token",
        metavar="T|@FILE",
        default=unsaid,
        help="the access token for the server (default: $PERDURE_TOKEN, or that of the context)",
    )
    group.add_argument("--json", action="store_true", default=unsaid, help="print exactly one JSON value on stdout")
    group.add_argument("-q", "--quiet", action="store_true", default=unsaid, help="print only errors to stderr")
    group.add_argument(
        "--no-color", action="store_true", default=unsaid, help="print no colours ($NO_COLOR does the same)"
    )
    group.add_argument(
        "-v", "--verbose", action="count", default=unsaid, help="log more on stderr; -vv logs everything"
    )


class _Store(argparse.Action):
    """A store that the command names counts before a server of the environment or of a context."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, value: Any, option: str | None = None) -> None:
        namespace.db, namespace.names_store = value, True


def add_confined(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--confined",
        action="store_true",
        help="for files of strangers: refuse `load`, `use`, and files outside of this folder",
    )


def add_load(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--load",
        metavar="SOURCE",
        action="append",
        default=[],
        help="import this module or file.py first, to register its providers; may be repeated",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="id or name of the run; an unambiguous prefix of the id is enough")


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Runs by id or by a filter; see `cli.control`."""
    parser.add_argument(
        "runs", metavar="RUN", nargs="*", help="ids or names of runs; an unambiguous prefix of an id is enough"
    )
    add_namespace(parser, "only runs of this namespace (default: of all)")
    add_run_filter(parser)


def add_run_filter(parser: argparse.ArgumentParser) -> None:
    from perdure.kernel.outcomes import Status

    group = parser.add_argument_group("instead of RUN: all runs that match")
    group.add_argument(
        "--label",
        metavar="K=V",
        dest="by_label",
        type=pair,
        action="append",
        default=[],
        help="runs with this label; may be repeated",
    )
    group.add_argument(
        "--status",
        metavar="S",
        dest="by_status",
        action="append",
        default=[],
        choices=[status.value for status in Status],
        help="runs in this status; may be repeated (default: those that the verb concerns)",
    )
    group.add_argument("--name", metavar="N", dest="by_name", help="runs of documents with this name")
    group.add_argument("--language", metavar="L", dest="by_language", help="runs of flow, story or playbook")
    group.add_argument("--since", metavar="T", type=instant, help="runs started since T: 2026-05-01T12:30, or 2h")
    group.add_argument("--until", metavar="T", type=instant, help="runs started before T")
    group.add_argument("--all", action="store_true", dest="everything", help="all runs that the verb concerns")
    group.add_argument("--children", action="store_true", help="include runs that were started by other runs")
    group.add_argument("--dry-run", action="store_true", help="only count and list the runs, change nothing")
    group.add_argument("-y", "--yes", action="store_true", help="do not ask; needed without a terminal")


def add_files(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    parser.add_argument(
        "-f",
        "--filename",
        dest="files",
        metavar="PATH",
        action="append",
        required=required,
        default=None if required else [],
        help="file or folder to read, or - for standard input; may be repeated",
    )


def add_namespace(parser: argparse.ArgumentParser, purpose: str) -> "argparse._MutuallyExclusiveGroup":
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "-n", "--namespace", metavar="NS", type=namespace, default=_namespace_of_environment(), help=purpose
    )
    return group


def _namespace_of_environment() -> str | None:
    name = os.environ.get("PERDURE_NAMESPACE")
    if name and (problem := namespace_problem(name)):
        raise BadUsage(f"PERDURE_NAMESPACE: {problem}")
    return name or None


def names_namespace(args: argparse.Namespace) -> bool:
    """Whether the command itself names a namespace, as far as that can be told."""
    return bool(args.namespace) and args.namespace != _namespace_of_environment()


def meant_namespaces(args: argparse.Namespace) -> list[str] | None:
    """Where runs are looked for; None: everywhere."""
    namespace = getattr(args, "namespace", None)
    return [namespace] if namespace else None


def add_selector(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-l",
        "--selector",
        metavar="K=V",
        type=pairs,
        action="extend",
        default=[],
        help="only resources with these labels, e.g. a=b,c=d",
    )


def add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--key", metavar="K", help="idempotency key: repeating the same key has no effect")


def add_labels(parser: argparse.ArgumentParser, purpose: str) -> None:
    parser.add_argument(
        "--label", metavar="K=V", type=pair, action="append", default=[], help=f"{purpose}; may be repeated"
    )


def _checked(parse: Callable[[str], _T]) -> Callable[[str], _T]:
    """As a type for argparse: a ValueError's sentence reaches the user."""

    def convert(text: str) -> _T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _read_pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ValueError(f"{text!r} is not of the form name=value")
    return name, value


def _read_pairs(text: str) -> list[tuple[str, str]]:
    return [_read_pair(item.replace("==", "=", 1)) for item in text.split(",") if item]


def _read_json(text: str) -> Any:
    if not text.startswith("@"):
        try:
            return jsontext.read_strict(text)
        except ValueError as error:
            raise ValueError(f"this is not JSON: {error}") from None  # not quoted: it may contain a secret
    try:
        text_of_file = sys.stdin.buffer.read() if text == "@-" else Path(text[1:]).read_bytes()
    except OSError as error:
        raise ValueError(f"{text[1:]}: {error.strerror or error}") from None
    try:
        return jsontext.read_strict(text_of_file)
    except ValueError as error:
        raise ValueError(f"{text[1:]} is not JSON: {error}") from None


def _read_namespace(text: str) -> str:
    if problem := namespace_problem(text):
        raise ValueError(problem)
    return text


def _read_past(text: str) -> Instant:
    import time

    return read_instant(text, time.time_ns() // 1_000)


def _read_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65_536):
        raise ValueError(f"{text!r} is not a port (expected 1 to 65535)")
    return int(text)


def _read_processes(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_PROCESSES):
        raise ValueError(f"{text!r} is not a number of processes (expected 1 to {MOST_PROCESSES})")
    return int(text)


def _read_route(text: str) -> tuple[str, str]:
    provider, _, pool = text.rpartition("=")
    if not provider or not pool:
        raise ValueError(f"{text!r} is not a route (expected PROVIDER=POOL)")
    return provider, pool


def _read_address(text: str) -> tuple[str, int]:
    host, separator, number = text.rpartition(":")
    if text == "off":
        return text, 0
    if not (separator and host and number.isascii() and number.isdigit() and int(number) < 65_536):
        raise ValueError(f"{text!r} is not an address (expected e.g. 127.0.0.1:8420; port 0 picks a free one)")
    return host, int(number)


def _read_lease(text: str) -> Instant:
    lease = read_span(text)
    if lease < SHORTEST_LEASE:
        raise ValueError(f"{text!r} is too short: a lease lasts a second or more, and a busy machine needs 3")
    return lease


pair = _checked(_read_pair)
pairs = _checked(_read_pairs)
namespace = _checked(_read_namespace)
duration = _checked(read_span)
port = _checked(_read_port)
processes = _checked(_read_processes)
route = _checked(_read_route)
address = _checked(_read_address)
lease = _checked(_read_lease)
instant = _checked(_read_past)
json_or_file = _checked(_read_json)


checked = _checked


def with_members(value: Any, members: Iterable[tuple[str, str]], *, as_text: bool = False) -> Any:
    """`--set a.b=3` over an input: each text is JSON if it can be read as such, otherwise a string."""
    read = ((path, text if as_text else _json_or_text(text)) for path, text in members)
    try:
        return set_members(value, read)
    except ValueError as problem:
        raise BadUsage(f"--set {problem}") from None


def _json_or_text(text: str) -> Any:
    try:
        return jsontext.read_strict(text)
    except ValueError:
        return text
