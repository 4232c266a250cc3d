"""`python`: call an importable function by its name.

A plain function runs off the event loop, a coroutine function on it, and with `isolated` either runs in a subprocess;
there the same code below is executed, so that a name means the same everywhere.
"""

import importlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from perdure.providers.context import BlockingContext
from perdure.providers.failure import ProviderFailure
from perdure.providers.function import Function
from perdure.providers.registry import Mode, Provider
from perdure.providers.task_outcomes import describe

UNKNOWN = "Provider.Call.Python.UnknownFunction"
IMPORT_FAILED = "Provider.Call.Python.ImportFailed"


def python(
    function: str,
    input: Any,
    context: BlockingContext,
    arguments: dict[str, Any] | None = None,
    args: list[Any] | None = None,
    isolated: bool = False,
) -> Any:
    """Call `package.module:name` with arguments by name (`arguments`) or by position (`args`)."""
    target = _resolve(function)
    if not (target.wants_context or target.is_coroutine):
        context.mark_unheeded()
    within = context.for_coroutines if target.is_coroutine else context
    return target.invoke(arguments or {}, input, within, args or ())


@lru_cache(maxsize=1024)
def _resolve(path: str) -> Function:
    module_name, separator, name = path.partition(":")
    if not (module_name and separator and name):
        raise ProviderFailure(UNKNOWN, f"{path!r} is not of the form 'package.module:name'", retryable=False)
    target: Any = _import(module_name)
    for part in name.split("."):
        if not hasattr(target, part):
            raise ProviderFailure(UNKNOWN, f"module {module_name!r} has no {name!r}", retryable=False)
        target = getattr(target, part)
    if not callable(target):
        raise ProviderFailure(UNKNOWN, f"{path!r} is a {type(target).__name__}, not a function", retryable=False)
    return Function(target)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise ProviderFailure(UNKNOWN, f"there is no module {name!r}", retryable=False) from None
        raise _import_failure(name, error) from None
    except Exception as error:
        raise _import_failure(name, error) from None


def _import_failure(name: str, error: Exception) -> ProviderFailure:
    import msgspec

    details = msgspec.Raw(describe(error, "Python").details or b"null")
    problem = f"importing {name!r} failed: {type(error).__name__}: {error}"
    return ProviderFailure(IMPORT_FAILED, problem, retryable=False, details=details)


def _mode(arguments: Mapping[str, Any]) -> Mode:
    return Mode.ISOLATED if arguments.get("isolated") is True else Mode.THREAD


PROVIDER = Provider.of("python", python, mode_for=_mode)
