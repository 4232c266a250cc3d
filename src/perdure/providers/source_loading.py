"""Load a user's file or module, whose decorators register providers when it is imported."""

import importlib
import importlib.util
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

from perdure.providers.registry import Registry, shared


class LoadError(Exception):
    """A source could not be imported; the message names file and line of the fault."""

    def __init__(self, source: str, problem: str, at: str | None = None) -> None:
        super().__init__(f"cannot load {source!r}: {problem}" + (f" (at {at})" if at else ""))
        self.source = source
        self.at = at


def load(source: str, registry: Registry = shared) -> None:
    """Import `file.py` or `package.module` once.

    A file's folder is appended to the import path, so that it finds modules beside it; subprocesses load the same
    sources again. What it prints goes to stderr: stdout is for the answer of a command.
    """
    if source in registry.sources:
        return
    is_file = source.endswith(".py") or "/" in source
    name = str(Path(source).resolve()) if is_file else source
    if name in registry.sources:
        return
    try:
        with redirect_stdout(sys.stderr):
            if is_file:
                _import_file(Path(name))
            else:
                importlib.import_module(source)
    except (Exception, SystemExit) as error:
        raise LoadError(source, f"{type(error).__name__}: {_problem(error)}", _position(error)) from error
    registry.sources.append(name)


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError("there is no such file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    name = _module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("this is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before execution: dataclasses and msgspec look up their module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module_name(path: Path) -> str:
    """The file's own name if that is free, so that `python` tasks can use `file:function`."""
    try:
        spec = importlib.util.find_spec(path.stem)
    except (ImportError, ValueError):
        spec = None
    if path.stem.isidentifier() and (spec is None or spec.origin == str(path)):
        return path.stem
    return "perdure_loaded_" + "".join(c if c.isalnum() else "_" for c in path.stem)


def _problem(error: BaseException) -> str:
    return (error.msg if isinstance(error, SyntaxError) else str(error)) or "no message"


def _position(error: BaseException) -> str | None:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
    frames = [f for f in frames if f.filename not in (__file__, importlib.__file__)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
