"""Write the pages of the reference that repeat what the code says: `python -m tools.reference`.

`tests/docs/test_reference.py` compares the pages with the code, and names what has no description.
"""

import argparse
import importlib
import inspect
import json
import os
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import perdure
import perdure.testing
from perdure.cli import main
from perdure.engine.client import Client
from perdure.engine.clock import Clock
from perdure.engine.handle import Handle
from perdure.engine.tasks.executor import Executor
from perdure.engine.virtual_clock import VirtualClock
from perdure.kernel.errors import PerdureError
from perdure.providers.context import TaskContext
from perdure.server.api_client.remote_engine import RemoteEngine, RemoteHandle
from perdure.server.api_client.server_connection import ServerConnection
from perdure.server.api_client.sync_engine import SyncEngine
from perdure.stores.protocol import Store
from perdure.views.resources.document_check import schema_of_language
from perdure.wiring import languages

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "<!-- Written by tools/reference.py from the code: do not edit. -->"
COLUMNS = "100"

OFFERED = (
    *(
        "start",
        "handle",
        "resolve",
        "check",
        "show",
        "history",
        "follow",
        "wait",
        "cancel",
        "signal",
        "redrive",
        "fork",
    ),
    *("resume", "apply", "trigger", "publish", "prune"),
)
"""What of an embedded engine programs may rely on; its other members serve the command line and the server."""
CONTRACTS = (Handle, RemoteHandle, Client, RemoteEngine, TaskContext, Executor, Clock, Store, VirtualClock)
BELOW = (ServerConnection,)
INTERNAL_PARAMETERS = {
    *(
        "self",
        "cls",
        "checked",
        "seen",
        "request",
        "from_api",
        "system_labels",
        "started_by",
        "spoken",
        "hands",
        "clock",
    ),
}

Schema = dict[str, Any]


def pages() -> dict[str, str]:
    """The text of each page, by file name."""
    bodies: dict[str, Callable[[], Iterator[str]]] = {
        "cli.md": _commands,
        "python.md": _names,
        "errors.md": _errors,
        "flow-fields.md": lambda: _fields("flow", "Fields of a Flow"),
        "playbook-fields.md": lambda: _fields("playbook", "Fields of a Playbook"),
        "story-fields.md": lambda: _fields("story", "Fields of Stories and other resources"),
    }
    return {name: "\n".join([NOTE, "", *body()]).rstrip() + "\n" for name, body in bodies.items()}


def _commands() -> Iterator[str]:
    os.environ["COLUMNS"] = COLUMNS
    parser = main.full_parser()
    verbs = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    yield from ("# Commands", "")
    yield "What `perdure VERB --help` prints. Results go to stdout, everything else to stderr. With `--json` there is"
    yield "one JSON value on stdout."
    yield from ("", "```text", main.EXIT_CODES.rstrip(), "```")
    for name, verb in verbs.choices.items():
        yield from ("", f"## {name}", "", "```text")
        yield verb.format_help().replace(main.EXIT_CODES, "").rstrip()
        yield "```"


def _names() -> Iterator[str]:
    yield from ("# The Python API", "")
    yield "Everything that `perdure` and `perdure.testing` offer. Other modules are internal and may change."
    for module in (perdure, perdure.testing):
        yield from ("", f"## {module.__name__}", "", inspect.cleandoc(module.__doc__ or ""))
        for name in module.__all__:
            if name != "__version__":
                yield from _name(f"{module.__name__}.{name}", getattr(module, name))
    for name, kind in (("connect", RemoteEngine), ("connect_sync", SyncEngine)):
        yield from ("", f"## What perdure.{name} returns", "", inspect.cleandoc(kind.__doc__ or ""))
        yield from _members(kind)


def _name(path: str, value: Any) -> Iterator[str]:
    yield from ("", f"### {path}", "", "```python", f"{path.rpartition('.')[2]}{_signature(value)}", "```")
    yield from ("", inspect.cleandoc(value.__doc__ or ""))
    if inspect.isclass(value):
        yield from _members(value)


def _members(kind: type) -> Iterator[str]:
    if issubclass(kind, Client) and kind is not perdure.Engine:
        names = (f"`{name}`" for name, _ in public_members(kind))
        yield from ("", f"It offers {', '.join(names)}, as `Engine` does.")
        return
    for name, member in public_members(kind):
        shown = name if isinstance(member, property) else f"{name}{_signature(member)}"
        text = text_of(name, member).replace("\n", "\n  ").replace("\n  \n", "\n\n")
        yield from ("", f"- `{_one_line(shown)}`", f"  {text}")


def text_of(name: str, member: Any) -> str:
    """Its docstring, or that of the class whose contract it fulfils."""
    homes = (member, *(getattr(home, name, None) for home in CONTRACTS))
    return next((inspect.cleandoc(home.__doc__) for home in homes if home is not None and home.__doc__), "")


def public_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties that a class of ours offers, in the order in which they are written."""
    classes = [home for home in reversed(kind.__mro__) if home.__module__.startswith("perdure.") and home not in BELOW]
    members = {name: member for home in classes for name, member in vars(home).items() if not name.startswith("_")}
    for name, member in members.items():
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if issubclass(kind, Client) and name not in OFFERED:
            continue
        if inspect.isfunction(function) or isinstance(function, property):
            yield name, function


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [about for name, about in signature.parameters.items() if name not in INTERNAL_PARAMETERS]
    text = str(signature.replace(parameters=parameters))
    text = re.sub(r"(?<![/\w.])(?:[a-z_]+\.)+(?=[A-Za-z_])", "", text)  # modules say nothing to a reader
    return re.sub(r"'([A-Z][\w.\[\], |]*)'", r"\1", text)  # a type that is imported for the type checker only


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def _errors() -> Iterator[str]:
    for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
        if "__main__" not in module.name and "isolation.child" not in module.name:
            importlib.import_module(module.name)
    yield from ("# Errors", "")
    yield "Every message names its code, and every code has a page: what it means, why it happens, what to do. With"
    yield '`--json` an error is `{"error": {"code", "message", "hint"}}`.'
    yield from ("", "| code | meaning | what to do |", "|---|---|---|")
    for code, kind in sorted(_by_code(PerdureError).items()):
        yield f"| [{code}](../errors/{code}.md) | {_first_sentence(kind)} | {_one_line(kind.hint or '')} |"


def _by_code(base: type[PerdureError]) -> dict[str, type[PerdureError]]:
    """The most general class of each code."""
    codes: dict[str, type[PerdureError]] = {}
    pending = [base]
    while pending:
        kind = pending.pop(0)
        if kind.__module__.startswith("perdure."):
            codes.setdefault(kind.code, kind)
        pending += kind.__subclasses__()
    return codes


def _first_sentence(value: Any) -> str:
    text = _one_line(inspect.cleandoc(value.__doc__ or ""))
    return re.split(r"(?<=[.]) ", text, maxsplit=1)[0]


def _fields(language: str, title: str) -> Iterator[str]:
    schema = schema_of_language(languages(), language)
    shared = schema.get("$defs", {})
    yield from (f"# {title}", "")
    yield f"Made from the schema that `perdure schema {language}` prints, with which editors complete and check."
    yield "`[]` is an element of a list, `*` a member of any name. **Bold**: required."
    table = _Table(shared)
    yield from table.section(schema["title"], schema, "")
    for name, part in shared.items():
        yield from table.section(f"Part: {name}", part, "")
    yield ""


class _Table:
    """Rows for the members of objects; an object that stands in several places is written once."""

    def __init__(self, shared: dict[str, Schema]) -> None:
        self._shared = shared
        self._first_places: dict[str, str] = {}

    def section(self, title: str, schema: Schema, path: str) -> Iterator[str]:
        own = list(self._rows(schema, path))
        kind = f"{self._kind(schema).capitalize()}."
        table = ("| field | type | meaning |", "|---|---|---|", *own) if own else (kind,)
        yield from ("", f"## {title}", "", *table)
        for alternative in schema.get("allOf", ()):
            kinds = [about["const"] for about in alternative.get("if", {}).get("properties", {}).values()]
            if kinds and "then" in alternative:
                rows = list(self._rows(alternative["then"], path))
                yield from ("", f"### {kinds[0]}", "", "| field | type | meaning |", "|---|---|---|", *rows)

    def _rows(self, schema: Schema, path: str) -> Iterator[str]:
        required = schema.get("required", ())
        for name, member in schema.get("properties", {}).items():
            if "const" in member and "description" in member and member["const"] == name:
                continue
            place = f"{path}.{name}" if path else name
            shown = f"**`{place}`**" if name in required else f"`{place}`"
            below = list(self._below(member, place))
            first = self._first_place(member, place) if below else place
            text = member.get("description", "")
            kind = self._kind(member)
            if first == place:
                yield f"| {shown} | {kind} | {_cell(text)} |"
                for inner, inner_place in below:
                    yield from self._rows(inner, inner_place)
            else:
                yield f"| {shown} | {kind}, as `{first}` | {_cell(text)} |"

    def _below(self, member: Schema, place: str) -> Iterator[tuple[Schema, str]]:
        if "properties" in member:
            yield member, place
        if isinstance(member.get("items"), dict):
            yield from self._below(member["items"], f"{place}[]")
        if isinstance(member.get("additionalProperties"), dict):
            yield from self._below(member["additionalProperties"], f"{place}.*")
        for alternative in member.get("anyOf", ()):
            yield from self._below(alternative, place)

    def _first_place(self, member: Schema, place: str) -> str:
        without_text = {name: value for name, value in member.items() if name != "description"}
        key = re.sub(r'"description": "[^"]*"(, )?', "", json.dumps(without_text, sort_keys=True))
        return self._first_places.setdefault(key, place)

    def _kind(self, schema: Schema) -> str:
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return f"[{name}](#part-{name.lower()})"
        if "enum" in schema:
            return ", ".join(f"`{word}`" for word in schema["enum"])
        if "const" in schema:
            return f"`{schema['const']}`"
        if "anyOf" in schema:
            return " or ".join(dict.fromkeys(self._kind(alternative) for alternative in schema["anyOf"]))
        kinds = schema.get("type", "anything")
        kind = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
        if kind == "array" and schema.get("items"):
            return f"list of {self._kind(schema['items'])}"
        if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            return f"map of {self._kind(schema['additionalProperties'])}"
        if kind == "string" and schema.get("pattern", "").startswith(r"\{"):
            return "template"
        return kind


def _cell(text: str) -> str:
    return _one_line(text).replace("|", "\\|").replace("<", "&lt;")


def write() -> None:
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(f"{name}: {len(text.splitlines())} lines")


if __name__ == "__main__":
    write()
