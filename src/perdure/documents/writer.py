"""Plain data as YAML text that `read_document` reads back as the same data."""

from functools import cache
from typing import Any

from perdure.documents.scalars import InvalidScalar, resolve_plain

_BREAKS = frozenset("\r\x85\u2028\u2029\ufeff")  # only an escape preserves these


def write_document(data: Any) -> str:
    """One document, with its members in their order."""
    from yaml import dump

    return str(dump(data, Dumper=_writer(), sort_keys=False, allow_unicode=True, width=100))


@cache
def _writer() -> Any:
    """Made when the first document is written: reading JSON needs no YAML."""
    from yaml import SafeDumper

    class Writer(SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True  # no aliases: people copy parts of the output

        def represent_text(self, text: str) -> Any:
            if not _BREAKS.isdisjoint(text) or _means_something_else(text):
                style: str | None = '"'
            else:
                style = "|" if "\n" in text else None
            return self.represent_scalar("tag:yaml.org,2002:str", text, style)

    Writer.add_representer(str, Writer.represent_text)
    return Writer


def _means_something_else(text: str) -> bool:
    """The writer knows YAML 1.1, where `1e3` and `0o10` are text; in 1.2 they are numbers."""
    try:
        return not isinstance(resolve_plain(text), str)
    except InvalidScalar:
        return True
