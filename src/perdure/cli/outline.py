"""JSON data as an indented outline for people: long lists are counted, long texts are cut."""

from collections.abc import Iterator
from typing import Any

from perdure.cli.console import cut
from perdure.kernel.json_values import jsontext

ITEMS_SHOWN = 20


def outline(value: Any, width: int | None) -> list[str]:
    return [cut(line, width) for line in _lines(value, "")]


def _lines(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        pairs = [(str(name), member) for name, member in value.items()]
    else:
        pairs = [("-", member) for member in value]
    for name, member in pairs[:ITEMS_SHOWN]:
        label = name if name == "-" else f"{name}:"
        if isinstance(member, dict | list) and member:
            yield f"{indent}{label}"
            yield from _lines(member, indent + "  ")
        else:
            yield f"{indent}{label} {_leaf(member)}"
    if len(pairs) > ITEMS_SHOWN:
        yield f"{indent}… and {len(pairs) - ITEMS_SHOWN} more (see --json)"


def _leaf(value: Any) -> str:
    return value if isinstance(value, str) and value else jsontext.encode(value).decode()
