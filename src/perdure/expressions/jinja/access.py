"""Access to data: members, elements and the few methods that data have.

A closed world: anything not named here does not exist for a template, so it can neither reach Python's internals nor
change data. A dot reads the member of a mapping, whatever its name (PBK-147); a method exists only where it is called.
"""

from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Undefined
from jinja2.runtime import LoopContext, Macro
from jinja2.utils import Cycler, Joiner, Namespace

from perdure.expressions import bounded_calls
from perdure.expressions.jinja.budget import Budget, describe, width_of
from perdure.expressions.jinja.errors import EvaluationFault, Forbidden
from perdure.expressions.jinja.undefined import fail

Missing = Callable[[Any, Any], Undefined]

_VISIBLE: dict[type, frozenset[str]] = {
    LoopContext: frozenset(
        "index index0 revindex revindex0 first last length depth depth0 previtem nextitem cycle changed".split()  # noqa: SIM905
    ),
    Cycler: frozenset({"next", "reset", "current"}),
    Macro: frozenset({"name", "arguments"}),
}
_GROUP = frozenset({"grouper", "list"})  # of one item of `groupby`

_OF_MAPPINGS = frozenset({"get", "items", "keys", "values"})
_OF_LISTS = frozenset({"count", "index"})
_OF_TEXTS = frozenset(
    """capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit islower isnumeric isspace
    istitle isupper lower lstrip partition removeprefix removesuffix rfind rindex rpartition rsplit rstrip split
    splitlines startswith strip swapcase title upper""".split()  # noqa: SIM905
)
_MAKING_TEXT = frozenset({"center", "join", "ljust", "replace", "rjust", "zfill"})  # paid by what they create
METHODS = _OF_MAPPINGS | _OF_LISTS | _OF_TEXTS | _MAKING_TEXT

_CUTTING = frozenset({"split", "rsplit", "splitlines", "partition", "rpartition"})
_STRIPPING = frozenset({"strip", "lstrip", "rstrip"})
_FROM_THE_END = frozenset({"rfind", "rindex", "rpartition", "rsplit"})

_CHANGING = frozenset(
    "append extend insert remove pop popitem clear sort reverse update setdefault add discard".split()  # noqa: SIM905
)
_CALLABLE = (Macro, LoopContext, Cycler, Joiner)


def member(value: Any, name: Any, missing: Missing) -> Any:
    """`value.name` and `value[name]`."""
    if isinstance(value, Mapping):
        try:
            return value[name] if name in value else _absent(value, name, missing)
        except TypeError:  # a list or mapping cannot be a key
            return missing(value, name)
    if isinstance(value, list | tuple | str | range) and isinstance(name, int):
        return value[name] if -len(value) <= name < len(value) else missing(value, name)
    if isinstance(value, Undefined):
        return value
    if isinstance(name, str) and not name.startswith("_"):
        if isinstance(value, Namespace) or name in _VISIBLE.get(type(value), ()):
            return getattr(value, name, missing(value, name))
        if name in _GROUP and hasattr(value, "_fields"):
            return getattr(value, name)
    return _absent(value, name, missing)


def _absent(value: Any, name: Any, missing: Missing) -> Undefined:
    if isinstance(name, str) and name.startswith("__"):
        raise Forbidden(f"`{name}` is not data")
    return missing(value, name)


def call_method(budget: Budget, missing: Missing, value: Any, name: str, args: Any, kwargs: Any) -> Any:
    """`value.name(…)`."""
    if isinstance(value, str):
        return _call_on_text(budget, value, name, args, kwargs)
    if isinstance(value, Mapping) and name in _OF_MAPPINGS:
        if name == "get":
            return value.get(*args, **kwargs)
        budget.charge_elements(len(value), 80)
        return list(getattr(value, name)(*args, **kwargs))
    if isinstance(value, list | tuple) and name in _OF_LISTS:
        budget.weigh(value)
        return bounded_calls.count(value, *args) if name == "count" else bounded_calls.index(value, *args)
    method = member(value, name, missing)
    if isinstance(method, Undefined) and not isinstance(value, Undefined):
        _refuse_method(value, name)
    return call(budget, method, args, kwargs)


def call(budget: Budget, callee: Any, args: Any, kwargs: Any) -> Any:
    """Call what a template itself created: macros, loops, cyclers, joiners and their parts."""
    if isinstance(callee, Undefined):
        fail(callee)
    owner = getattr(callee, "__self__", None)
    if not isinstance(callee, _CALLABLE) and not (isinstance(owner, _CALLABLE) and callable(callee)):
        raise EvaluationFault(f"{describe(callee)} cannot be called")
    budget.charge(8)
    if getattr(callee, "__name__", "") == "changed":
        budget.weigh(list(args))
    return callee(*args, **kwargs)


def _call_on_text(budget: Budget, value: str, name: str, args: Any, kwargs: Any) -> Any:
    text = str(value)
    if name in _OF_TEXTS:
        budget.charge_text(len(text), 3 * width_of(text))
        budget.weigh([*args, *kwargs.values()])
        if name in _CUTTING:
            budget.charge_parts(text, _parts(text, name, args, kwargs))
        elif name in _STRIPPING and args and isinstance(args[0], str):
            charge_stripping(budget, text, args[0])
            return bounded_calls.strip(text, args[0], left=name != "rstrip", right=name != "lstrip")
        if name in _FROM_THE_END:
            return _search_from_the_end(text, name, args, kwargs)
        return getattr(text, name)(*args, **kwargs)
    if name == "replace" and 2 <= len(args) <= 3 and not kwargs:
        charge_replacing(budget, text, args[0], args[1])
        return text.replace(*args)
    if name == "join" and len(args) == 1:
        parts = list(args[0])
        budget.weigh_emitted(parts)
        width = 4 if not text.isascii() or any(not part.isascii() for part in parts if isinstance(part, str)) else 1
        size = sum(len(part) for part in parts if isinstance(part, str)) + len(text) * len(parts)
        budget.charge_text(size, width)
        budget.spend(8 * len(parts))
        return text.join(parts)
    if name in ("ljust", "rjust", "center", "zfill") and args and isinstance(args[0], int):
        budget.charge_text(max(len(text), args[0]), 4)
        return getattr(text, name)(*args)
    _refuse_method(value, name)


def charge_replacing(budget: Budget, text: str, old: Any, new: Any) -> None:
    """Pay for the longest text that a replacement can produce."""
    if not isinstance(old, str) or not isinstance(new, str):
        raise EvaluationFault("only text can be replaced, and only by text")
    budget.charge_text(len(text) + len(old), width_of(text))
    count = text.count(old) if old else len(text) + 1
    budget.charge(count)
    budget.charge_text(len(text) + len(new) * count, width_of(text, new))


def charge_stripping(budget: Budget, text: str, characters: str) -> None:
    """Each character at the edges is looked up among those to be removed."""
    budget.charge_text(len(text), width_of(text))
    budget.charge(len(text) * len(characters) // 64)


def _parts(text: str, name: str, args: Any, kwargs: Any) -> int:
    """How many parts a text can be split into, at most."""
    if name in ("partition", "rpartition"):
        return 3
    separator = args[0] if args else kwargs.get("sep")
    limit = args[1] if len(args) > 1 else kwargs.get("maxsplit", -1)
    most = len(text) + 1
    if name != "splitlines":
        most = text.count(separator) + 1 if isinstance(separator, str) and separator else len(text) // 2 + 1
        most = min(most, limit + 1) if isinstance(limit, int) and limit >= 0 else most
    return most


def _search_from_the_end(text: str, name: str, args: Any, kwargs: Any) -> Any:
    """The same as the method; only a long part is searched for in another way."""
    part, *others = args or (kwargs.get("sep"),)
    limits = others or [value for key, value in kwargs.items() if key == "maxsplit"]
    is_fit = len(limits) <= 2 and all(limit is None or isinstance(limit, int) for limit in limits)
    if not isinstance(part, str) or len(part) <= bounded_calls.SHORT or not is_fit:
        return getattr(text, name)(*args, **kwargs)
    if name == "rsplit":
        return bounded_calls.rsplit(text, part, *(limits or [-1]))
    start, end, _ = slice(*(*limits, None, None)[:2]).indices(len(text))
    at = bounded_calls.rfind(text, part, start, end)
    if name == "rpartition":
        return ("", "", text) if at < 0 else (text[:at], part, text[at + len(part) :])
    if at < 0 and name == "rindex":
        raise EvaluationFault("the text does not contain this part")
    return at


def _refuse_method(value: Any, name: str) -> Any:
    if name in _CHANGING:
        raise Forbidden(f"`.{name}()` would change data; templates only read")
    if name.startswith("_"):
        raise Forbidden(f"`{name}` is not data")
    if name in ("format", "format_map"):
        raise Forbidden(f"`.{name}()` is not available; join with `~`, or use the filter `format`")
    raise EvaluationFault(f"{describe(value)} has no method `{name}`")
