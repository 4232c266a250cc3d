"""The arrows between rooms, read from the imports. A failure names the broken rule and why it exists."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

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
    "providers": ({"kernel", "expressions"}, "a provider sees its task's context, never an execution"),
    "workers": ({"kernel", "providers", "stores"}, "a worker does tasks; it knows no runs and decides nothing"),
    "triggers": (
        {"engine", "kernel", "dialects", "stores", "expressions", "wiring"},
        "what starts runs is a client of the engine; how requests are decided is the language's business",
    ),
    "testing": ({"kernel", "engine", "stores", "wiring", "workers"}, "what users test with stands outside the engine"),
    "cli": (
        {"engine", "kernel", "wiring", "providers", "stores", "testing", "dialects", "documents", "triggers"},
        "the command line is a client of the engine",
    ),
}

WORLD_OF_TESTS = {"wiring.py": "the drill is spoken like any language", "cli": "virtual time in conformance runs"}


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module, node.lineno


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0]


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_follow_the_arrows(path: Path) -> None:
    room = _room(path)
    here = path.relative_to(SOURCE)
    for module, line in _imports(path):
        if room in PURE and module.partition(".")[0] in IMPURE_MODULES:
            reason = IMPURE_MODULES[module.partition(".")[0]]
            raise AssertionError(f"{here}:{line} imports {module}: {room} is a pure room ({reason})")
        if not module.startswith("perdure.") or room not in ARROWS:
            continue
        target = module.split(".")[1]
        allowed, reason = ARROWS[room]
        assert target == room or target in allowed, f"{here}:{line} imports {module}: {reason}"


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_engine_knows_only_the_protocol_of_stores(path: Path) -> None:
    if _room(path) != "engine":
        return
    for module, line in _imports(path):
        if module.startswith("perdure.stores"):
            assert module.removeprefix("perdure.stores.") in ("protocol", "errors", "caring", "clocks", "records"), (
                f"{path.relative_to(SOURCE)}:{line} imports {module}: a database special case belongs into its store"
            )


def test_dialects_never_import_each_other() -> None:
    for path in _modules():
        parts = path.relative_to(SOURCE).parts
        if parts[0] != "dialects" or len(parts) < 3:
            continue
        for module, line in _imports(path):
            names = module.split(".")
            if names[:2] == ["perdure", "dialects"] and len(names) > 2:
                assert names[2] == parts[1], (
                    f"{'/'.join(parts)}:{line} imports {module}: dialects share the kernel, not each other"
                )


def test_only_wiring_and_virtual_time_reach_into_testing() -> None:
    for path in _modules():
        room = _room(path)
        if room == "testing":
            continue
        for module, line in _imports(path):
            if module.startswith("perdure.testing"):
                assert room in WORLD_OF_TESTS, (
                    f"{path.relative_to(SOURCE)}:{line} imports {module}: production does not stand on test tools"
                )


def test_sql_stays_in_stores() -> None:
    for path in _modules():
        if _room(path) in ("stores", "dialects", "providers", "expressions"):
            continue
        text = path.read_text(encoding="utf-8")
        for word in ("SELECT ", "INSERT INTO", "DELETE FROM"):
            assert word not in text, f"{path.relative_to(SOURCE)}: SQL belongs into stores/, behind a verb"


def test_names_say_what_a_module_is() -> None:
    vague = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc"}
    for path in _modules():
        assert path.stem not in vague, f"{path.relative_to(SOURCE)}: name it for the thing a stranger would search"
