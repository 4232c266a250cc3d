"""The imports follow the table in ARCHITECTURE.md. A failure names the broken rule and why it exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source_tree import Import, all_imports, modules

LANGUAGES = ("flow", "playbook", "story")

PURE = ("kernel", "documents", "expressions", "streams", "dialects", "analysis", "editor")

_NO_IO = "a pure package does no I/O"
_NO_THREADS = "a pure package has no threads"
_NO_RANDOMNESS = "randomness derives from the run's seed: `turn.draw`"

IMPURE_MODULES = {
    "time": "time is an input: a decision reads `turn.now`",
    "random": _NO_RANDOMNESS,
    "secrets": _NO_RANDOMNESS,
    "uuid": _NO_RANDOMNESS,
    "uuid_utils": _NO_RANDOMNESS,
    "os": "a pure package touches nothing outside itself",
    "pathlib": "a pure package reads no files",
    "tempfile": "a pure package writes no files",
    "shutil": "a pure package touches no files",
    "socket": _NO_IO,
    "ssl": _NO_IO,
    "http": _NO_IO,
    "urllib": _NO_IO,
    "select": _NO_IO,
    "selectors": _NO_IO,
    "subprocess": _NO_IO,
    "signal": "a pure package touches nothing outside itself",
    "threading": _NO_THREADS,
    "concurrent": _NO_THREADS,
    "multiprocessing": _NO_THREADS,
    "queue": _NO_THREADS,
    "asyncio": "a pure package does not wait",
    "logging": "a pure package returns what it found, it does not log",
    "apsw": "stores hold bytes; the kernel knows no database",
    "sqlite3": "stores hold bytes; the kernel knows no database",
    "psycopg": "stores hold bytes; the kernel knows no database",
    "duckdb": "providers do the work, not decisions",
    "httpx": "providers do the work, not decisions",
}

PURE_PARTS = {"urllib.parse": "splits and quotes text, opens nothing"}

CLOCK_READINGS = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}

PAGE = Path(__file__).parents[2] / "ARCHITECTURE.md"


def _table() -> dict[str, tuple[set[str], str]]:
    """What each package may import and why, from the table in ARCHITECTURE.md."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*)\| ([^|]*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {package: (set(re.findall(r"`(\w+)`", allowed)), reason) for package, allowed, reason in rows}


DEPENDENCIES = _table()


def _wrong(imports: Iterator[tuple[Import, str]]) -> list[str]:
    return [
        f"{modules()[imported.importer].path}:{imported.line} imports {imported.target}: {reason}"
        for imported, reason in imports
    ]


def _package(imported: Import) -> str:
    return modules()[imported.importer].package


def test_every_package_is_read() -> None:
    """The rules below are about imports: where none were read, they would hold vacuously."""
    assert {_package(imported) for imported in all_imports()} >= DEPENDENCIES.keys()


def test_every_package_has_its_line_in_the_table() -> None:
    packages = {module.package for module in modules().values() if len(module.path.parts) > 1}

    assert packages == DEPENDENCIES.keys()


def test_imports_follow_the_dependencies() -> None:
    wrong = _wrong(
        (imported, DEPENDENCIES[_package(imported)][1])
        for imported in all_imports()
        if imported.target.startswith("perdure.")
        and _package(imported) in DEPENDENCIES
        and imported.target.split(".")[1] not in {_package(imported), *DEPENDENCIES[_package(imported)][0]}
    )
    assert wrong == []


def test_pure_packages_import_nothing_impure() -> None:
    wrong = _wrong(
        (imported, IMPURE_MODULES[imported.target.partition(".")[0]])
        for imported in all_imports()
        if _package(imported) in PURE
        and imported.target.partition(".")[0] in IMPURE_MODULES
        and imported.target not in PURE_PARTS
    )
    assert wrong == []


def test_pure_packages_read_no_clock() -> None:
    """`datetime` may be imported for calendars; its present moment may not be asked for."""
    wrong = [
        f"{module.path}:{node.lineno} reads a clock: {IMPURE_MODULES['time']}"
        for module in modules().values()
        if module.package in PURE
        for node in ast.walk(module.parse())
        if isinstance(node, ast.Attribute) and _reads_clock(node)
    ]
    assert wrong == []


def _reads_clock(node: ast.Attribute) -> bool:
    owner = node.value
    name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    return (name, node.attr) in CLOCK_READINGS


def test_the_engine_knows_only_the_protocol_of_stores() -> None:
    known = {
        f"perdure.stores.{name}"
        for name in (
            "protocol",
            "access",
            "commit_types",
            "errors",
            "admin",
            "clocks",
            "records",
            "pool_tasks",
            "run_removal",
        )
    }
    wrong = _wrong(
        (imported, "a database special case belongs into its store")
        for imported in all_imports()
        if _package(imported) == "engine"
        and imported.target.startswith("perdure.stores")
        and imported.target not in known
    )
    assert wrong == []


def test_providers_and_the_command_line_import_the_list_of_services_only() -> None:
    wrong = _wrong(
        (imported, "what a language brings is passed in by wiring, or imported when it is used")
        for imported in all_imports()
        if _package(imported) in ("providers", "cli") and imported.target.startswith("perdure.services.")
    )
    assert wrong == []


def test_no_package_is_allowed_an_import_that_it_does_not_make() -> None:
    """So that the table says what is true, not only what would be tolerated."""
    made = {
        (_package(imported), imported.target.split(".")[1]) for imported in all_imports() if imported.target.count(".")
    }
    unused = {
        f"{package}: {target}"
        for package, (allowed, _) in DEPENDENCIES.items()
        for target in allowed
        if (package, target) not in made
    }
    assert sorted(unused) == []


def test_dialects_never_import_each_other() -> None:
    wrong = _wrong(
        (imported, "dialects share the kernel, not each other")
        for imported in all_imports()
        if _package(imported) == "dialects"
        and len(modules()[imported.importer].path.parts) > 2
        and imported.target.startswith("perdure.dialects.")
        and imported.target.split(".")[2] != modules()[imported.importer].path.parts[1]
    )
    assert wrong == []


def test_production_does_not_use_testing() -> None:
    wrong = _wrong(
        (imported, "production does not depend on test tools")
        for imported in all_imports()
        if _package(imported) != "testing" and imported.target.startswith("perdure.testing")
    )
    assert wrong == []


SHARED = (
    *("kernel", "documents", "expressions", "streams", "stores", "engine", "workers", "providers", "views", "cli"),
    "editor",
)

LANGUAGE_WORDS = {
    "perdure.cli.verbs.trigger": "asks for runs of a Story: its argument is called so",
    "perdure.documents.yaml_errors": "YAML's own word for braces and brackets",
    "perdure.expressions.gotemplate.template": "a root of the templates",
}
"""Modules of shared packages in which a text is spelled like the name of a language, each with what it means there."""

_LANGUAGE_NAME = re.compile(rf"(?:^|[.:/])(?:{'|'.join(LANGUAGES)})(?:[.:/]|$)")


def test_shared_packages_know_no_language() -> None:
    """A language is added without touching them: what it brings is passed in by wiring or named in a list."""
    languages = tuple(f"perdure.{part}.{name}" for part in ("dialects", "services") for name in LANGUAGES)
    knows = {
        f"{imported.importer}:{imported.line} imports {imported.target}"
        for imported in all_imports()
        if _package(imported) in SHARED
        and any(imported.target == language or imported.target.startswith(f"{language}.") for language in languages)
    }

    assert sorted(knows) == []


def test_shared_packages_name_no_language_in_texts() -> None:
    """Neither a module of a language that is imported by its name, nor the name of a language alone."""
    names = {
        f"{module.name} names {text!r}"
        for module in modules().values()
        if module.package in SHARED and module.name not in LANGUAGE_WORDS
        for text in module.strings
        if _LANGUAGE_NAME.search(text)
    }

    assert sorted(names) == []
    assert {name for name in LANGUAGE_WORDS if not any(map(_LANGUAGE_NAME.search, modules()[name].strings))} == set()


def test_sql_stays_in_stores() -> None:
    for module in modules().values():
        if module.package in ("stores", "dialects", "providers", "expressions"):
            continue
        for word in ("SELECT ", "INSERT INTO", "DELETE FROM"):
            assert word not in module.text, f"{module.path}: SQL belongs into stores/, behind a verb"
