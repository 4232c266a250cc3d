"""Every rule of the server's contract has a test against a real server process, and a line in the coverage page."""

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
CONTRACT = next(
    (path for folder in REPOSITORY.parents if (path := folder / "shared" / "spec" / "server.md").is_file()),
    REPOSITORY.parent / "shared" / "spec" / "server.md",
)
PAGE = REPOSITORY / "docs" / "reference" / "server-coverage.md"
RULE = re.compile(r"SRV-(\d{3})")
STARTS_A_SERVER = re.compile(r"\bServer\.start\(|\bgetfixturevalue\(\"server\"\)")


def rules_of_contract() -> set[str]:
    """The rules that begin a line of the contract, but for the Kubernetes API and NoETL's clients (sections 8, 9)."""
    rules: set[str] = set()
    for section in re.split(r"^## ", CONTRACT.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        if not section.startswith(("8.", "9.")):
            for line in re.findall(r"^- (\**SRV-.*)$", section, re.MULTILINE):
                named = re.match(r"\**((?:SRV-\d{3}(?:, )?)+)", line)
                assert named is not None, line
                rules |= set(RULE.findall(named[1]))
    return rules


def rules_with_a_server() -> set[str]:
    """The rules that docstrings of tests cite which talk to a server process, by a fixture or by themselves."""
    cited: set[str] = set()
    for path in sorted(HERE.glob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        module = ast.parse(text)
        functions = [node for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        sources = {node.name: ast.get_source_segment(text, node) or "" for node in functions}
        for node in functions:
            if node.name.startswith("test_") and _has_server(node, sources, {"server"}):
                cited |= set(RULE.findall(ast.get_docstring(node) or ""))
    return cited


def _has_server(node: ast.FunctionDef | ast.AsyncFunctionDef, sources: dict[str, str], known: set[str]) -> bool:
    """Whether the test starts a server, or has a fixture or calls a function that has one."""
    names = {argument.arg for argument in node.args.args}
    reached, pending = set[str](), {node.name, *names}
    while pending:
        name = pending.pop()
        reached.add(name)
        source = sources.get(name, "")
        if name in known or STARTS_A_SERVER.search(source):
            return True
        pending |= {other for other in sources if re.search(rf"\b{other}\b", source)} - reached
    return False


@pytest.mark.skipif(not CONTRACT.is_file(), reason="the contract of the server is not here (shared/spec/server.md)")
def test_every_rule_of_the_contract_has_a_test_against_a_server_process() -> None:
    rules = rules_of_contract()
    assert len(rules) > 40, "the contract is read as it is written"
    assert rules - rules_with_a_server() == set()


@pytest.mark.skipif(not CONTRACT.is_file(), reason="the contract of the server is not here (shared/spec/server.md)")
def test_the_coverage_page_has_every_rule_of_the_contract() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| SRV-")]
    assert {number for row in rows for number in RULE.findall(row.split("|")[1])} >= rules_of_contract()


def test_the_tests_that_the_coverage_page_names_are_there() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| SRV-")]
    names = {name.strip() for row in rows for name in row.rstrip(" |").rpartition("|")[2].split(",")}
    folders = {"tests": REPOSITORY, "perdure": REPOSITORY / "src"}
    assert len(names) > 20
    assert [name for name in sorted(names) if not (folders.get(name.partition("/")[0], HERE) / name).exists()] == []
