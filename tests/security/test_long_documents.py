"""Documents of many steps and many mistakes are checked in a time that grows with their length."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.cli import document_files
from perdure.cli.errors import BadUsage
from perdure.dialects.playbook.document.conversion import _in_templates
from perdure.dialects.story.plan import step_graph
from perdure.dialects.story.plan.step_graph import StepGraph
from perdure.editor.document_tree import DocumentTree
from perdure.editor.nodes import NodeKind
from perdure.engine.resources.document_validation import _parse
from perdure.kernel.documents import problems
from perdure.kernel.documents.validation import ValidationContext
from perdure.wiring import languages


def chain(count: int) -> dict[str, Any]:
    return {
        "finally": [
            {"name": f"s{number}", "type": "sleep", "needs": [f"s{number - 1}"] if number else []}
            for number in range(count)
        ]
    }


def test_what_is_upstream_is_found_by_visiting_each_dependency_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step was asked for everything before it: 3,000 steps took ten seconds, a megabyte of them hours."""
    visits = 0
    components = step_graph.components

    def count(edges: Any) -> Any:
        nonlocal visits
        visits += sum(map(len, edges.values()))
        return components(edges)

    monkeypatch.setattr(step_graph, "components", count)
    graph = StepGraph(chain(2000))

    assert all(graph.is_needed(f"s{number}", "s0") for number in range(1, 2000))
    assert not any(graph.is_upstream("s0", f"s{number}") for number in range(2000))
    assert graph.cycle() == ()
    assert visits == 3 * 1999


def test_steps_in_cycles_are_found() -> None:
    needs = {"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": [], "e": ["a"], "f": ["g"], "g": ["f"]}
    graph = StepGraph({"steps": [{"name": name, "needs": others} for name, others in needs.items()]})

    assert graph.cycle() == ("a", "b", "c", "f", "g")
    assert graph.is_upstream("a", "a") and graph.is_upstream("e", "d") and not graph.is_upstream("e", "e")


@pytest.mark.parametrize("language", ["story", "playbook"])
def test_suggestions_are_made_for_the_first_mistakes(monkeypatch: pytest.MonkeyPatch, language: str) -> None:
    """Comparing 3,000 wrong names with 3,000 right ones took minutes."""
    monkeypatch.setattr(problems, "MOST_COMPARED", 1000)
    if language == "story":
        steps = [{"name": f"step-{n}", "type": "sleep", "needs": [f"stepp-{n}"]} for n in range(100)]
        document: Any = {
            "apiVersion": "bubustack.io/v1alpha1",
            "kind": "Story",
            "metadata": {"name": "x"},
            "spec": {"steps": steps},
        }
    else:
        workflow = [
            {"step": f"step-{n}", "tool": {"kind": "noop"}, "next": {"arcs": [{"step": f"stepp-{n}"}]}}
            for n in range(100)
        ]
        document = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "p"}, "workflow": workflow}
    reported = _parse(languages()[language], json.dumps(document).encode(), ValidationContext(())).problems

    guessed = [problem for problem in reported if "did you mean" in problem.message]
    assert 0 < len(guessed) <= 10 < len(reported)
    assert problems.guess("stepp", ["step"]) == "; did you mean 'step'?"


def test_a_file_without_end_is_no_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link in a folder of strangers may lead to a device, or to a file of gigabytes."""
    monkeypatch.setattr(document_files, "LARGEST_FILE", 1 << 20)
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    with pytest.raises(BadUsage, match="too large for a document"):
        document_files.read(str(tmp_path / "zero.json"))
    (tmp_path / "large.json").write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(BadUsage, match="too large for a document"):
        document_files.read_applied([str(tmp_path)])


@pytest.mark.parametrize("text", ["{{" * 500_000, "x" + "{{ " * 300_000])
def test_braces_that_are_never_closed_are_searched_for_once(text: str) -> None:
    """A pattern searched from each of them: a Flow of 40 KB stopped the process for six seconds, 1 MB for an hour."""
    flow = {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": "a",
        "steps": {"a": {"action": "Return", "value": [text]}},
    }
    validated = _parse(languages()["flow"], json.dumps(flow).encode(), ValidationContext())
    assert [problem.message for problem in validated.problems] == []


def test_long_names_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes the product of their lengths: five names of 20,000 characters took nine seconds."""
    compared: list[str] = []

    def compare(name: str, others: list[str], n: int) -> list[str]:
        compared.extend([name, *others])
        return others[:n]

    monkeypatch.setattr("difflib.get_close_matches", compare)
    long = "x" * 101
    assert problems.guess(f"{long}a", [f"{long}b"]) == problems.guess("a", [f"{long}b"]) == ""
    assert problems.guess("a", ["ab", long]) == "; did you mean 'ab'?"
    assert max(map(len, compared)) <= 100


OLD_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)


@given(st.text("{}% a", max_size=40))
def test_templates_of_a_legacy_document_are_found_as_a_pattern_finds_them(text: str) -> None:
    assert _in_templates(text, lambda source: f"<{source}>") == OLD_TEMPLATE.sub(lambda match: f"<{match[0]}>", text)


def test_templates_that_are_not_closed_are_looked_for_in_a_time_that_grows_with_the_text() -> None:
    """A legacy Playbook of 120 KB kept `perdure convert` busy for more than a minute."""

    def took(count: int) -> float:
        texts = "{{ " * count
        times = []
        for _ in range(5):
            before = time.thread_time()
            _in_templates(texts, str)
            times.append(time.thread_time() - before)
        return min(times)

    assert took(16_000) < 16 * took(2_000)  # 8 times as much; 64 times as much when each looked at all behind it


def test_what_stands_beside_a_member_is_collected_once() -> None:
    """Each of 80,000 members collected all others: the language server was busy for minutes."""
    tree = DocumentTree("a: 1\nb: 2\n")
    node = next(node for node in tree.roots[0].walk() if node.kind is NodeKind.MAPPING)

    assert node.values() == {"a": "1", "b": "2"}
    assert node.values() is node.values()
