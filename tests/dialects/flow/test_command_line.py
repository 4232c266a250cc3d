"""The commands for Flows."""

import json
from pathlib import Path

import pytest

from tests.cli.commandline import CommandLine
from tests.dialects.flow.documents import call, flow, mock, returns
from tests.dialects.flow.suite import OWN

HELLO = flow({"c": call(mock(value="hi")), "done": returns()})


def case(folder: Path, name: str, document: object, expected: object) -> None:
    place = folder / name / "scenarios" / "base"
    place.mkdir(parents=True)
    profile = "https://mwl.dev/v0.1/conformance/core"
    (folder / name / "case.json").write_text(json.dumps({"profiles": [profile], "scenarios": {"base": {}}}))
    (folder / name / "definition.json").write_text(json.dumps(document))
    (place / "input.json").write_text("null")
    (place / "expected-result.json").write_text(json.dumps(expected))


def test_conformance_closes_with_its_count_and_shows_differences(tmp_path: Path) -> None:
    """MWL-601 MWL-602"""
    case(tmp_path / "suite", "good", HELLO, {"type": "success", "value": "hi"})
    case(tmp_path / "suite", "bad", HELLO, {"type": "success", "value": {"a": 1}})
    case(tmp_path / "suite", "broken", {**HELLO, "entrypoint": "nope"}, {"type": "success", "value": 1})

    done = CommandLine(tmp_path)("conformance", "suite", code=7)

    assert done.out.splitlines()[-1] == "1 passed, 2 failed"
    assert "value: expected {'a': 1}, got 'hi'" in done.out
    assert "MWL-023" in done.out
    assert not (tmp_path / "perdure.db").exists()


def test_conformance_in_virtual_time_waits_for_nobody(tmp_path: Path) -> None:
    slow = flow({"s": {"action": "Sleep", "for": "P30D", "next": "r"}, "r": returns("late")})
    case(tmp_path, "slow", slow, {"type": "success", "value": "late"})

    done = CommandLine(tmp_path)("conformance", "slow", "--virtual-time", "--json")

    assert done.json == {"passed": 1, "failed": 0, "failures": {}}


def test_a_case_of_another_profile_is_not_in_scope(tmp_path: Path) -> None:
    """MWL-600 MWL-604"""
    case(tmp_path, "other", HELLO, {"type": "success", "value": "hi"})
    (tmp_path / "other" / "case.json").write_text(json.dumps({"profiles": ["https://example.org/other"]}))

    assert CommandLine(tmp_path)("conformance", "other").out == "0 passed, 0 failed\n"


def test_results_decide_the_exit_code(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    for kind, code in (("error", 3), ("cancellation", 4), ("timeout", 5), ("Odd", 3)):
        document = flow({"r": {"action": "Raise", "result": {"code": "C", "type": kind}}})
        (tmp_path / "flow.json").write_text(json.dumps(document))

        assert line("run", "flow.json", "--json", code=code).json == {"type": kind, "code": "C"}


def test_bad_root_arguments_are_a_failure_result_and_no_usage_error(tmp_path: Path) -> None:
    """MWL-075"""
    (tmp_path / "flow.json").write_text(json.dumps(HELLO))

    done = CommandLine(tmp_path)("run", "flow.json", "--args", '{"a": 1}', "--json", code=3)

    assert done.json["code"] == "System.ParameterValidationFailed"


@pytest.mark.sampled(4)
def test_check_finds_nothing_in_our_own_cases_that_would_refuse_them(tmp_path: Path) -> None:
    documents = sorted(str(path) for path in OWN.glob("*/definition.json"))

    done = CommandLine(tmp_path)("check", *documents, "--json", code=7)  # Steps behind literal mocks never run

    assert len(documents) > 100
    assert [item for item in done.json["problems"] if item["severity"] == "error"] == []


def test_graph_writes_three_forms(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    (tmp_path / "flow.json").write_text(json.dumps(HELLO))

    assert line("graph", "flow.json").out.startswith("flowchart TD")
    assert line("graph", "flow.json", "--dot").out.startswith("digraph {")
    assert line("graph", "flow.json", "--svg").out.startswith("<svg ")
