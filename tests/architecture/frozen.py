"""Names that are frozen because stored data, other programs or users rely on them, as they are in the code now.

`python -m tests.architecture.frozen` adds new names to frozen.json. It removes none: a name that was released stays.
"""

import ast
import importlib
import json
import pkgutil
import re
from functools import cache
from pathlib import Path
from typing import Any

import perdure
import perdure.testing
from perdure.cli.verbs import UNLISTED, VERBS
from perdure.kernel import events as kernel_events
from perdure.kernel import inputs as kernel_inputs
from perdure.kernel.errors import PerdureError
from perdure.wiring import languages
from tests.architecture.source_tree import modules

LIST = Path(__file__).with_name("frozen.json")

Names = dict[str, list[str]]


@cache
def current() -> Names:
    texts = [module.text for module in modules().values()]
    return {
        name: sorted(set(values))
        for name, values in {
            "events and their tags": _events(),
            "inputs and their tags": _tagged(kernel_inputs.AnyInput.__args__),
            "tables": _tables(),
            "error codes": [kind.code for kind in _errors()],
            "environment variables": [
                text
                for module in modules().values()
                for text in module.strings
                if re.fullmatch("PERDURE_[A-Z_]+", text)
            ],
            "loggers": [name for text in texts for name in re.findall(r'getLogger\("([\w.]+)"\)', text)],
            "entry-point groups": [name for text in texts for name in re.findall(r'ENTRY_POINTS = "([\w.]+)"', text)],
            "commands": [*VERBS, *UNLISTED],
            "command options": _options(),
            "keys of JSON output": _json_keys(),
            "perdure": perdure.__all__,
            "perdure.testing": perdure.testing.__all__,
        }.items()
    }


def _events() -> list[str]:
    own = {name: language for name, language in languages().items() if not getattr(language, "is_for_tests", False)}
    result = [f"kernel {line}" for line in _tagged(kernel_events.KERNEL_EVENTS)]
    return result + [f"{name} {line}" for name, language in own.items() for line in _tagged(language.events)]


def _tagged(kinds: Any) -> list[str]:
    return [f"{kind.__struct_config__.tag} {kind.__name__}" for kind in kinds]


def _tables() -> list[str]:
    migrations = (Path(perdure.__path__[0]) / "stores").rglob("migrations/*.sql")
    return [
        f"{path.parent.parent.name} {table}"
        for path in migrations
        for table in re.findall(r"CREATE TABLE (\w+)", path.read_text(encoding="utf-8"))
    ]


def _errors() -> set[type[PerdureError]]:
    for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
        if "__main__" not in module.name and "isolation.child" not in module.name:
            importlib.import_module(module.name)
    kinds: set[type[PerdureError]] = {PerdureError}
    pending = [PerdureError]
    while pending:
        for kind in pending.pop().__subclasses__():
            kinds.add(kind)
            pending.append(kind)
    return {kind for kind in kinds if kind.__module__.startswith("perdure.")}


def _options() -> list[str]:
    """All that is given to `add_argument` and begins with a dash."""
    return [
        argument.value
        for module in modules().values()
        if module.package in ("cli", "services")
        for node in ast.walk(module.parse())
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str) and argument.value.startswith("-")
    ]


def _json_keys() -> list[str]:
    """The keys of dictionaries that are written out in functions, where output may be made."""
    return [
        key.value
        for name, module in modules().items()
        if module.package in ("cli", "views", "engine", "services") or name == "perdure.server.model_tools"
        for function in ast.walk(module.parse())
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.isidentifier()
    ]


def read() -> Names:
    result: Names = json.loads(LIST.read_text(encoding="utf-8"))
    return result


def write() -> None:
    before = read() if LIST.exists() else {}
    names = {name: sorted({*values, *before.get(name, ())}) for name, values in current().items()}
    LIST.write_text(json.dumps(names, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
