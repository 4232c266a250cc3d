"""The second name of a step: anything but letters, digits and underscores is written as `_` (STY-196)."""

from collections.abc import Mapping
from typing import Any

from perdure.kernel.lazy_regex import lazy_regex

_OTHER = lazy_regex(r"[^A-Za-z0-9_]")


def alias_of(name: str) -> str:
    return _OTHER.sub("_", name)


def find_aliased(names: Mapping[str, Any], name_in_template: str) -> str | None:
    """The name that is meant: itself if it exists, else the first in order with this alias."""
    if name_in_template in names:
        return name_in_template
    return min((name for name in names if alias_of(name) == name_in_template), default=None)
