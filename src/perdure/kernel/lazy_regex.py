"""Regular expressions that are compiled when they are first used: most processes use few of those they could."""

import re
from typing import Any, cast


class _LazyRegex:
    def __init__(self, pattern: str, flags: int) -> None:
        self._written = pattern, flags

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(re.compile(*self._written), name)
        self.__dict__[name] = attribute  # from now on the attribute is found directly
        return attribute


def lazy_regex(pattern: str, flags: int = 0) -> "re.Pattern[str]":
    """Like `re.compile`, for a variable of a module."""
    return cast("re.Pattern[str]", _LazyRegex(pattern, flags))
