"""Every test can fail: it asserts something itself, expects an error, or hands that to a helper which does."""

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests", "src")
Function = ast.FunctionDef | ast.AsyncFunctionDef

EXPECTS = frozenset({"raises", "warns", "fail"})
"""Of pytest."""


class Module:
    """One file with tests or with what they are made of."""

    def __init__(self, path: Path, others: "Mapping[Path, Module]") -> None:
        self.path = path
        self.others = others
        self.tree = ast.parse(path.read_text("utf-8"))

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Those at its top, by name."""
        return {node.name: node for node in self.tree.body if isinstance(node, Function)}

    @property
    def tests(self) -> Iterator[Function]:
        for node in ast.walk(self.tree):
            if isinstance(node, Function) and node.name.startswith("test_"):
                yield node

    @cached_property
    def imported(self) -> dict[str, Path]:
        """The file of each name that comes from another file of ours."""
        paths: dict[str, Path] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                way = f"{node.module.replace('.', '/')}.py"
                for path in (ROOT / folder / way for folder in (".", *FOLDERS)):
                    if path.exists():
                        paths.update({alias.asname or alias.name: path for alias in node.names})
        return paths


def read_modules() -> "dict[Path, Module]":
    modules: dict[Path, Module] = {}
    for pattern in ("tests/**/*.py", "src/perdure/testing/**/*.py"):
        modules.update({path: Module(path, modules) for path in ROOT.glob(pattern)})
    return modules


def can_fail(node: ast.AST, module: Module, seen: frozenset[str] = frozenset()) -> bool:
    return any(_expects(part) or _calls_helper(part, module, seen) for part in ast.walk(node))


def _expects(node: ast.AST) -> bool:
    match node:
        case ast.Assert(test):
            return not isinstance(test, ast.Constant)
        case ast.Call(ast.Attribute(ast.Name("pytest"), name)):
            return name in EXPECTS
        case ast.Raise(ast.Call(ast.Name("AssertionError"))):
            return True
    return False


def _calls_helper(node: ast.AST, module: Module, seen: frozenset[str]) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)) or node.func.id in seen:
        return False
    name = node.func.id
    home = module if name in module.functions else module.others.get(module.imported.get(name, Path()))
    helper = home.functions.get(name) if home is not None else None
    return home is not None and helper is not None and can_fail(helper, home, seen | {name})


def test_every_test_can_fail() -> None:
    """A test that only runs something passes whatever that does, unless it raises: say what must come of it."""
    tests = [(module, test) for module in read_modules().values() for test in module.tests]
    idle = [
        f"{module.path.relative_to(ROOT)}:{test.lineno} {test.name}"
        for module, test in tests
        if not can_fail(test, module)
    ]

    assert len(tests) > 2_000
    assert idle == []


def test_what_cannot_fail_is_recognised(tmp_path: Path) -> None:
    text = """
import pytest
def helper(): assert x
def nothing(): return 1
def test_a(): assert True
def test_b(): nothing(); run()
def test_c(): helper()
def test_d():
    with pytest.raises(ValueError): run()
async def test_e(): assert await run() == 1
def test_f(): raise AssertionError("no")
"""
    (tmp_path / "test_x.py").write_text(text)
    module = Module(tmp_path / "test_x.py", {})

    assert [test.name for test in module.tests if not can_fail(test, module)] == ["test_a", "test_b"]
