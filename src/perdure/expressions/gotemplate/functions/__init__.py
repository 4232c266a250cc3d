"""The functions that templates may call, one file per family, combined into two libraries (STY-201 to STY-203).

`and`, `or` and other syntax are in the planner.
"""

from perdure.expressions.gotemplate.functions import (
    ambient,
    builtins,
    dates,
    defaults,
    encodings,
    filenames,
    lists,
    maps,
    numbers,
    releases,
    story,
    strings,
    types,
    word_case,
)
from perdure.expressions.gotemplate.functions.library import SHORT_CIRCUIT, Library

_FAMILIES = (
    word_case,
    dates,
    defaults,
    encodings,
    filenames,
    lists,
    maps,
    numbers,
    releases,
    strings,
    types,
    builtins,  # after `lists`: `slice` also handles texts
    story,  # last: `len` handles nil and stored values
)
_REPEATABLE = {name: function for family in _FAMILIES for name, function in family.FUNCTIONS.items()}

# A template that is one action over these keeps a type (STY-198 b).
GO_BUILTINS = SHORT_CIRCUIT | {*builtins.FUNCTIONS, "len"}

_DISALLOWED = {
    name: f"template expression uses disallowed function {name!r}" for name in ("env", "expandenv", "getHostByName")
}
_NOT_REPEATABLE = {name: f"function {name!r} is not available in deterministic templates" for name in ambient.FUNCTIONS}

DETERMINISTIC = Library(_REPEATABLE, {**_DISALLOWED, **_NOT_REPEATABLE})
RUNTIME = Library({**_REPEATABLE, **ambient.FUNCTIONS}, _DISALLOWED)

__all__ = ["DETERMINISTIC", "GO_BUILTINS", "RUNTIME", "Library"]
