"""The arrows between rooms, read from the imports. A failure names the broken rule and why it exists."""

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "perdure"

PURE = ("kernel", "documents", "expressions", "dialects")

IMPURE_MODULES = {
    "time": "time is an input: a decision reads `turn.now`",
    "random": "randomness derives from the run's seed: `turn.draw`",
    "secrets": "randomness derives from the run's seed: `turn.draw`",
    "os": "a pure room touches nothing outside itself",
    "pathlib": "a pure room reads no files",
    "socket": "a pure room does no I/O",
    "subprocess": "a pure room does no I/O",
    "threading": "a pure room has no threads",
    "asyncio": "a pure room does not wait",
    "logging": "a pure room answers, it does not log",
    "apsw": "stores hold bytes; the kernel knows no database",
    "httpx": "providers do the work, not decisions",
}

ARROWS: dict[str, tuple[set[str], str]] = {
    "kernel": (set(), "the kernel is the ground: it knows no language, store, engine or provider"),
    "documents": ({"kernel"}, "reading text knows no language that is written in it"),
    "expressions": ({"kernel"}, "an expression language stands on its own and is usable alone"),
    "dialects": (
        {"kernel", "documents", "expressions"},
        "a dialect decides; how it is run, stored or served is none of its business",
    ),
    "stores": ({"kernel"}, "stores hold bytes and know no engine, so that each passes the same suite"),
    "engine": (
        {"kernel", "stores"},
        "the engine meets dialects, stores and workers as protocols, handed in by wiring",
    ),
    "providers": ({"kernel", "expressions", "services"}, "a provider sees its task's context, never an execution"),
    "workers": (
        {"kernel", "providers", "services", "stores"},
        "a worker does tasks; it knows no runs and decides nothing",
    ),
    "services": (
        {"engine", "kernel", "dialects", "documents", "stores", "expressions", "providers", "wiring"},
        "what a language brings beside its pure part: what starts its runs, and what its tasks may call",
    ),
    "views": (
        {"cli", "engine", "kernel", "stores"},
        "what is shown of runs is the same for the command line and an API",
    ),
    "testing": ({"kernel", "engine", "stores", "wiring", "workers"}, "what users test with stands outside the engine"),
    "cli": (
        {
            "engine",
            "kernel",
            "wiring",
            "providers",
            "stores",
            "testing",
            "dialects",
            "documents",
            "services",
            "views",
            "workers",
        },
        "the command line is a client of the engine",
    ),
}

WORLD_OF_TESTS = {"wiring.py": "the drill is spoken like any language", "cli": "virtual time in conformance runs"}


Import = tuple[Path, str, int]  # the importing file below the source, the imported module, the line


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def _imports() -> tuple[Import, ...]:
    """Of all modules: each file is parsed once."""
    found: list[Import] = []
    for path in _modules():
        here = path.relative_to(SOURCE)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found += [(here, alias.name, node.lineno) for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                found.append((here, node.module, node.lineno))
    return tuple(found)


def _room(path: Path) -> str:
    return path.parts[0]


def test_every_room_is_looked_at() -> None:
    """The rules below are about imports: where none were read, they would hold of nothing."""
    assert {_room(here) for here, _, _ in _imports()} >= ARROWS.keys()


def test_imports_follow_the_arrows() -> None:
    wrong = [
        f"{here}:{line} imports {module}: {ARROWS[_room(here)][1]}"
        for here, module, line in _imports()
        if module.startswith("perdure.")
        and _room(here) in ARROWS
        and module.split(".")[1] not in {_room(here), *ARROWS[_room(here)][0]}
    ]
    assert wrong == []


def test_pure_rooms_import_nothing_impure() -> None:
    wrong = [
        f"{here}:{line} imports {module}: {IMPURE_MODULES[module.partition('.')[0]]}"
        for here, module, line in _imports()
        if _room(here) in PURE and module.partition(".")[0] in IMPURE_MODULES
    ]
    assert wrong == []


def test_the_engine_knows_only_the_protocol_of_stores() -> None:
    known = {f"perdure.stores.{name}" for name in ("protocol", "errors", "admin", "clocks", "records")}
    wrong = [
        f"{here}:{line} imports {module}: a database special case belongs into its store"
        for here, module, line in _imports()
        if _room(here) == "engine" and module.startswith("perdure.stores") and module not in known
    ]
    assert wrong == []


def test_dialects_never_import_each_other() -> None:
    wrong = [
        f"{here}:{line} imports {module}: dialects share the kernel, not each other"
        for here, module, line in _imports()
        if _room(here) == "dialects"
        and len(here.parts) > 2
        and module.startswith("perdure.dialects.")
        and module.split(".")[2] != here.parts[1]
    ]
    assert wrong == []


def test_only_wiring_and_virtual_time_reach_into_testing() -> None:
    wrong = [
        f"{here}:{line} imports {module}: production does not stand on test tools"
        for here, module, line in _imports()
        if _room(here) not in {"testing", *WORLD_OF_TESTS} and module.startswith("perdure.testing")
    ]
    assert wrong == []


def test_sql_stays_in_stores() -> None:
    for path in _modules():
        here = path.relative_to(SOURCE)
        if _room(here) in ("stores", "dialects", "providers", "expressions"):
            continue
        text = path.read_text(encoding="utf-8")
        for word in ("SELECT ", "INSERT INTO", "DELETE FROM"):
            assert word not in text, f"{here}: SQL belongs into stores/, behind a verb"


def test_names_say_what_a_module_is() -> None:
    vague = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"}
    for path in _modules():
        assert path.stem not in vague, f"{path.relative_to(SOURCE)}: name it for the thing a stranger would search"
