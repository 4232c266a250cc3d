"""A new tool kind is one module and one line in `KINDS`: validated, run, recorded and masked like the built-in ones."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.dialects.playbook import Playbook, tools
from perdure.kernel.documents.problems import Severity
from tests.dialects.playbook import kinds

MODULE = '''
"""`greet`: a greeting, made by a worker."""

from perdure.dialects.playbook.tools.kind import UNCHANGED, ToolKind, ToolResult, failure
from perdure.kernel.outcomes import Succeeded


def _check(cursor):
    if cursor.value.get("name_of_guest") == "":
        cursor.at("name_of_guest").problem("GREET", "a guest has a name")


def _start(call):
    call.perform("echo", {"value": {"greeting": f"Hello, {call.fields['name_of_guest']}!"}})


def _on_result(outcome, text):
    if isinstance(outcome, Succeeded):
        return UNCHANGED
    return ToolResult(failure(outcome, "unknown", None, source="greet"))


KIND = ToolKind(
    _start,
    _on_result,
    required=(("name_of_guest",),),
    fields=frozenset({"name_of_guest", "tone", "args"}),
    choices={"tone": ("formal", "friendly")},
    provider="echo",
    check=_check,
)
'''


@pytest.fixture
def greet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The module in a package of its own, and its line in the registry."""
    package = tmp_path / "further_tools"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "greet.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("further_tools.greet")
    monkeypatch.setitem(tools.KINDS, "greet", module.KIND)
    yield
    for name in ("further_tools.greet", "further_tools"):
        sys.modules.pop(name, None)


def problems(text: str) -> list[str]:
    """Errors only: the document of these tests also has warnings."""
    validated = Playbook().parse(text.encode())
    return [problem.message for problem in validated.problems if problem.severity is Severity.ERROR]


@pytest.mark.usefixtures("greet")
async def test_a_task_of_a_new_kind_runs(tmp_path: Path) -> None:
    outcome = await kinds.outcome(tmp_path, "greet", {"guest": "Ada"}, name_of_guest="{{ workload.guest }}")

    assert outcome["status"] == "ok"
    assert outcome["result"] == {"greeting": "Hello, Ada!"}


@pytest.mark.usefixtures("greet")
def test_its_fields_are_validated() -> None:
    assert problems(kinds.task("greet", name_of_guest="Ada", tone="formal")) == []
    assert problems(kinds.task("greet")) == ["step 'a': a greet task needs 'name_of_guest'"]
    assert problems(kinds.task("greet", name_of_guest="")) == ["step 'a': a guest has a name"]
