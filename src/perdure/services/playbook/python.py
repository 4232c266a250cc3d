"""`playbook.python`: run the text of a small program, in a subprocess.

Values come in as variables. The result is the top-level variable `result`, or what a function `main` returns, whose
parameters are bound by name. Code that returns a value at its top level is such a function.
"""

import ast
import importlib
import inspect
import json
from collections.abc import Mapping
from keyword import iskeyword
from types import CodeType
from typing import Any

import msgspec

from perdure.providers.external_texts import Script, read_text
from perdure.providers.failure import ProviderFailure
from perdure.providers.registry import Mode, Provider

FILE = "<code>"


class Library(msgspec.Struct, forbid_unknown_fields=True):
    """Something to import: `from` names a module, `import` what is wanted of it."""

    from_: str | None = msgspec.field(default=None, name="from")
    import_: str | None = msgspec.field(default=None, name="import")


def run(
    code: str | None = None,
    script: Script | str | None = None,
    names: dict[str, Any] | None = None,
    libs: dict[str, str | Library] | list[str] | None = None,
    token_args: dict[str, Any] | None = None,
    snapshot: dict[str, Any] | None = None,
    returns: list[str] | None = None,
) -> Any:
    """Run `script`, or else `code`, with `names` as variables; `libs` maps further variables to modules.

    A list of `libs` names packages that must be installed. The result must have the members `returns`.
    """
    if isinstance(libs, list):
        _require_packages(libs)
        libs = None
    source = code if script is None else read_text(script)
    if source is None:
        raise ProviderFailure("schema", "there is nothing to run: script or code is required", retryable=False)
    values = dict(names or {})
    context = dict(snapshot or {})
    variables: dict[str, Any] = {"__name__": "__playbook__", "args": token_args or {}, "context": context}
    variables |= {alias: _import_library(library) for alias, library in (libs or {}).items()}
    variables |= {"input_data": dict(values), **values}
    exec(_compiled(source, values), variables)  # noqa: S102 - running the document's own code is what this provider is for
    result = _ProgramResult(variables, values, context).value()
    absent = [name for name in returns or () if not isinstance(result, dict) or name not in result]
    if absent:
        raise ProviderFailure("schema", f"the result lacks {', '.join(absent)}", retryable=False)
    return result


def _require_packages(packages: list[str]) -> None:
    from importlib.metadata import PackageNotFoundError, distribution

    for package in packages:
        try:
            distribution(package.partition("=")[0].strip(" <>~!"))
        except PackageNotFoundError:
            message = f"the package {package} is not installed where the code runs"
            raise ProviderFailure("client_error", message, retryable=False) from None


def _import_library(library: str | Library) -> Any:
    """A module, or what it has under a name: `from datetime import timedelta`, `from os import path`."""
    if isinstance(library, str):
        return importlib.import_module(library)
    if library.from_ is None or library.import_ is None:
        module = library.from_ or library.import_
        if module is None:
            raise ProviderFailure(
                "schema", "a library is {from: module, import: name}, or one of them", retryable=False
            )
        return importlib.import_module(module)
    imported = importlib.import_module(library.from_)
    try:
        return getattr(imported, library.import_)
    except AttributeError:
        return importlib.import_module(f"{library.from_}.{library.import_}")


def _compiled(code: str, values: Mapping[str, Any]) -> CodeType:
    try:
        return compile(code, FILE, "exec", dont_inherit=True)
    except SyntaxError as problem:
        tree = _as_function(code, values) if "outside function" in str(problem.msg) else None
        if tree is None:
            raise
        return compile(tree, FILE, "exec", dont_inherit=True)


def _as_function(code: str, values: Mapping[str, Any]) -> ast.Module | None:
    """Code with `return` or `await` at its top level is the body of `main`; none if it defines one itself."""
    tree = ast.parse(code, FILE)
    if any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "main" for node in tree.body):
        return None
    parameters = [name for name in ("context", "input_data", *values) if name.isidentifier() and not iskeyword(name)]
    kind = "async def" if any(isinstance(node, ast.Await) for node in ast.walk(tree)) else "def"
    function = ast.parse(f"{kind} main({', '.join(dict.fromkeys(parameters))}): pass", FILE)
    assert isinstance(function.body[0], ast.FunctionDef | ast.AsyncFunctionDef)
    function.body[0].body = tree.body
    return function


class _ProgramResult:
    def __init__(self, variables: dict[str, Any], values: Mapping[str, Any], context: Mapping[str, Any]) -> None:
        self.variables = variables
        self.values = values
        self.context = context

    def value(self) -> Any:
        main = self.variables.get("main")
        result = self._call(main) if callable(main) else self.variables.get("result")
        return self._checked(_await_result(result) if inspect.isawaitable(result) else result)

    def _call(self, main: Any) -> Any:
        named = {"context": self.context, "input_data": dict(self.values), **self.values}
        bound: dict[str, Any] = {}
        for parameter in inspect.signature(main).parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                bound |= {name: value for name, value in self.values.items() if name not in bound}
            elif parameter.name in named:
                bound[parameter.name] = named[parameter.name]
        return main(**bound)

    def _checked(self, value: Any) -> Any:
        """A set or a date has no JSON form, though our own encoder would find one: data must not change silently."""
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as problem:
            raise ProviderFailure("serialization", f"the result has no JSON form: {problem}", retryable=False) from None
        return value


def _await_result(result: Any) -> Any:
    import asyncio

    async def wait() -> Any:
        return await result

    return asyncio.run(wait())


PROVIDER = Provider.of("playbook.python", run, mode=Mode.ISOLATED)
