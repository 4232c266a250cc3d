"""The modules of `perdure` and what they import, read once from the source."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "perdure"


@dataclass(frozen=True)
class Import:
    importer: str
    target: str
    line: int
    is_deferred: bool
    """Inside a function or under TYPE_CHECKING: not executed when the module is imported."""


class Module:
    def __init__(self, path: Path) -> None:
        self.path = path.relative_to(SOURCE)
        self.text = path.read_text(encoding="utf-8")
        self.name = ".".join(("perdure", *self.path.with_suffix("").parts)).removesuffix(".__init__")
        tree = self.parse()
        self.lines = len(self.text.splitlines())
        self.classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        self.imports = list(_imports(tree, is_deferred=False))
        self.strings = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 100
        }

    def parse(self) -> ast.Module:
        """Not kept: the trees of all modules are millions of objects, which every later test would carry along."""
        return ast.parse(self.text)

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def package(self) -> str:
        """The folder directly below `perdure`, or the file name of a module that lies there."""
        return self.path.parts[0]


def _imports(node: ast.AST, *, is_deferred: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, is_deferred
        is_typing = isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _imports(child, is_deferred=is_deferred or is_typing or is_function)


@cache
def modules() -> dict[str, Module]:
    return {module.name: module for module in map(Module, sorted(SOURCE.rglob("*.py")))}


@cache
def all_imports() -> tuple[Import, ...]:
    """Of any module, ours or not. `from package import module` counts as an import of the module."""
    result: list[Import] = []
    for module in modules().values():
        for node, is_deferred in module.imports:
            targets: set[str] = set()
            if isinstance(node, ast.Import):
                targets = {alias.name for alias in node.names}
            elif node.module and node.level == 0:
                names = (f"{node.module}.{alias.name}" for alias in node.names)
                targets = {name if name in modules() else node.module for name in names}
            result += [Import(module.name, target, node.lineno, is_deferred) for target in sorted(targets)]
    return tuple(result)


@cache
def importers() -> dict[str, set[str]]:
    """The modules that import a module, at any place."""
    result: dict[str, set[str]] = defaultdict(set)
    for imported in all_imports():
        if imported.target in modules() and imported.target != imported.importer:
            result[imported.target].add(imported.importer)
    return dict(result)


def longest_chain() -> list[str]:
    """The longest row of modules of which each imports the next one when it is itself imported.

    Imports inside functions and under TYPE_CHECKING are not followed, nor is the `__init__` of a package that a module
    is imported from: `from a.b.c import x` leads to `a.b.c` only.
    """
    needs: dict[str, set[str]] = defaultdict(set)
    for imported in all_imports():
        if not imported.is_deferred and imported.target in modules() and imported.target != imported.importer:
            needs[imported.importer].add(imported.target)

    @cache
    def chain(name: str) -> tuple[str, ...]:
        return (name, *_longest([chain(target) for target in sorted(needs[name])]))

    return list(_longest([chain(name) for name in sorted(modules())]))


def _longest(chains: list[tuple[str, ...]]) -> tuple[str, ...]:
    return max(chains, key=lambda chain: len(chain), default=())
