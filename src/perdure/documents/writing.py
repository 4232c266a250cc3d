"""Plain data as YAML text that this room reads back as the same data."""

from typing import Any

from yaml import SafeDumper, dump
from yaml.nodes import ScalarNode

from perdure.documents.scalars import NoValue, resolve_plain

_BREAKS = frozenset("\r\x85\u2028\u2029\ufeff")  # only an escape keeps these as they are


def write_document(data: Any) -> str:
    """One document, members in the order they have."""
    return str(dump(data, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=100))


class _Writer(SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True  # the same part twice is written twice: people copy pieces out of what they see

    def represent_text(self, text: str) -> ScalarNode:
        if not _BREAKS.isdisjoint(text) or _means_something_else(text):
            style: str | None = '"'
        else:
            style = "|" if "\n" in text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


_Writer.add_representer(str, _Writer.represent_text)


def _means_something_else(text: str) -> bool:
    """The writer knows YAML 1.1, where `1e3` and `0o10` are text; in 1.2 they are numbers."""
    try:
        return not isinstance(resolve_plain(text), str)
    except NoValue:
        return True
