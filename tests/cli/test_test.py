"""`test`: scenarios beside documents."""

from xml.etree import ElementTree

from tests.cli.commandline import CommandLine

STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: two}
spec:
  steps:
    - {name: first, ref: {name: work}}
    - {name: second, needs: [first], if: "{{ inputs.more }}", ref: {name: work}}
"""
TESTS = """
mocks: {work: {answer: {}}}
scenarios:
  - {name: good, input: {more: false}, expect: {status: succeeded, steps: {second: skipped}}}
  - {name: bad <&, input: {more: false}, expect: {status: failed, calls: {work: 2}}}
"""


def test_failures_coverage_and_the_report_for_ci(perdure: CommandLine) -> None:
    (perdure.folder / "two.yaml").write_text(STORY)
    (perdure.folder / "two.test.yaml").write_text(TESTS)
    done = perdure.here("test", ".", "--junit", "report.xml", code=3)

    assert "two.test.yaml:5: bad <&: failed" in done.out and "1 passed, 1 failed" in done.out
    assert "    status is 'succeeded', expected 'failed'\n    calls.work is 1, expected 2\n" in done.out
    assert "not covered: step second" in done.out
    (suite,) = ElementTree.parse(perdure.folder / "report.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.get("name") for case in suite] == ["good", "bad <&"]
    assert "calls.work" in (suite[1][0].text or "")

    facts = perdure.here("test", "two.yaml", "--only", "good", "--coverage", "dot", "--json").json
    assert (facts["passed"], facts["failed"]) == (1, 0)
    (coverage,) = facts["coverage"]
    assert (coverage["steps"]["covered"], coverage["steps"]["total"]) == (1, 2)
    assert coverage["text"].startswith("digraph {") and "not covered" in coverage["text"]
    assert "passed over" not in perdure.here("check", ".").err, "scenarios are no documents"
    assert not (perdure.folder / "perdure.db").exists()


def test_a_typo_is_told_with_its_line_and_nothing_runs(perdure: CommandLine) -> None:
    (perdure.folder / "two.yaml").write_text(STORY)
    (perdure.folder / "two.test.yaml").write_text(TESTS.replace("calls:", "cals:"))
    done = perdure.here("test", "two.yaml", code=7)

    assert "two.test.yaml:5:" in done.err and "'cals' is not known here; did you mean 'calls'?" in done.err
    assert "scenarios[1].expect.cals" in done.err and done.out == ""
    assert "no: there is no such file or folder" in perdure.here("test", "no", code=8).err
    (perdure.folder / "two.test.yaml").unlink()
    assert perdure.here("test", "two.yaml", "--json", code=2).json["error"]["code"] == "NO-SCENARIOS"


def test_what_functions_print_does_not_mix_with_the_answer(perdure: CommandLine) -> None:
    (perdure.folder / "two.yaml").write_text(STORY)
    (perdure.folder / "tasks.py").write_text(
        "import perdure\nprint('loading')\n\n\n"
        "@perdure.engram('work')\ndef work(inputs):\n    print('at work')\n    return {}\n"
    )
    (perdure.folder / "two.test.yaml").write_text("load: tasks.py\ninput: {more: true}\nexpect: {status: succeeded}\n")

    done = perdure("test", "two.yaml", "--json")
    assert done.json["passed"] == 1 and "loading" in done.err and done.err.count("at work") == 2
    finished = perdure("test", "two.yaml")
    assert "passed" in finished.out and "at work" not in finished.out
