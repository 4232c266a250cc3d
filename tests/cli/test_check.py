"""`check` and `providers`: what can be known without running anything."""

import json

import pytest
from tests.cli.commandline import CommandLine


def test_every_problem_of_every_file_is_listed_with_its_place(perdure: CommandLine) -> None:
    good = perdure.drill({"return": 1}, name="good")
    (perdure.folder / "bad.json").write_text('{"drill": 2,\n "nam": "x",\n "steps": []}\n')
    done = perdure("check", good, "bad.json", code=7)

    assert done.out.splitlines()[:2] == [
        "bad.json:2:2: error: unknown member 'nam'; did you mean 'name'? (nam) [DRILL-DOCUMENT]",
        "bad.json:1:2: error: the version must be 1 (drill) [DRILL-DOCUMENT]",
    ]
    assert "2 documents checked: 2 errors, 0 warnings" in done.err
    problems = perdure("check", good, "bad.json", "--json", code=7).json["problems"]
    assert [
        (problem["file"], problem["line"], problem["column"], problem["code"], problem["path"]) for problem in problems
    ] == [
        ("bad.json", 2, 2, "DRILL-DOCUMENT", "nam"),
        ("bad.json", 1, 2, "DRILL-DOCUMENT", "drill"),
    ]
    assert not (perdure.folder / "perdure.db").exists()


@pytest.mark.parametrize(
    ("text", "code", "line", "words"),
    [
        (b"", "DOC-LANGUAGE", 1, "empty"),
        (b"# nothing but this\n", "DOC-LANGUAGE", 1, "empty"),
        (b"a: 1\nb: ]\nc: 2\n", "DOC-SYNTAX", 2, ""),
        (b"a: caf\xe9\n", "DOC-ENCODING", 1, "UTF-8"),
        (b"apiVersion: v1\nkind: Pod\n", "DOC-LANGUAGE", 1, "not in a language known here"),
    ],
)
def test_a_file_that_nobody_can_read_is_told_what_is_wrong_with_it(
    perdure: CommandLine, text: bytes, code: str, line: int, words: str
) -> None:
    (perdure.folder / "odd.yaml").write_bytes(text)
    (problem,) = perdure.here("check", "odd.yaml", "--json", code=7).json["problems"]

    assert (problem["code"], problem["line"]) == (code, line)
    assert words in problem["message"] + problem["hint"]
    (again,) = perdure.here("run", "odd.yaml", "--json", code=7).error["problems"]
    assert again == problem


UNSOUND = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: unsound}
spec: {steps: [{name: g, type: gate}, {name: w, type: wait, needs: [g], with: {until: "{{ %s }}"}}]}
"""


def test_findings_have_their_form_and_decide_the_exit_code(perdure: CommandLine) -> None:
    """ANA-005, ANA-006: a *will* ends with 7, a *may* is a warning; each entry has its file."""
    (perdure.folder / "may.yaml").write_text(UNSOUND % "inputs.x")
    (perdure.folder / "will.yaml").write_text(
        UNSOUND.replace("{name: g, type: gate}, ", "").replace("needs: [g], ", "") % "false"
    )
    both = perdure.here("check", "may.yaml", "will.yaml", "--json", code=7).json
    assert set(both) == {"problems", "findings"}
    members = {"file", "kind", "certainty", "step", "path", "line", "message", "hint", "trace"}
    assert all(set(finding) == members for finding in both["findings"])
    rows = {(item["file"], item["kind"], item["certainty"], item["step"], item["line"]) for item in both["findings"]}
    assert rows == {
        ("may.yaml", "no-sender", "may", "g", 5),
        ("may.yaml", "deadlock", "may", "w", 5),
        ("will.yaml", "deadlock", "will", "w", 5),
    }
    waiting = next(item for item in both["findings"] if item["file"] == "may.yaml" and item["step"] == "w")
    assert [set(part) for part in waiting["trace"]] == [{"step", "choice"}] * len(waiting["trace"])
    assert waiting["trace"][0]["step"] == "g" and waiting["trace"][-1]["step"] == "w"
    assert "warning: " in perdure.here("check", "may.yaml", code=0).out
    assert "error: " in perdure.here("check", "will.yaml", code=7).out


TASKS = """
import perdure

@perdure.provider("charge-LANGUAGE", side_effects=True)
def charge(amount: int = 0) -> int:
    return amount

@perdure.provider("note-LANGUAGE")
def note(amount: int = 0) -> int:
    return amount
"""
RETRIED = {
    "flow": json.dumps(
        {
            "$schema": "https://mwl.dev/v0.1/flow/schema.json",
            "entrypoint": "pay",
            "steps": {
                "pay": {
                    "action": "Call",
                    "call": {"provider": "mwl:provider.call/perdure/charge-flow/v1"},
                    "middleware": [
                        {
                            "provider": "mwl:provider.middleware/mwl/retry/v1",
                            "onEntry": {"with": {"policies": [{"match": {"codes": ["*"]}, "attempts": 2}]}},
                        }
                    ],
                    "next": "done",
                },
                "done": {"action": "Return"},
            },
        }
    ),
    "playbook": """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: pay, path: pay}
workflow:
  - step: pay
    tool:
      kind: charge-playbook
      spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 2}}]}}
""",
}


@pytest.mark.parametrize("language", RETRIED)
def test_a_retry_of_declared_side_effects_is_a_warning(perdure: CommandLine, language: str) -> None:
    """ANA-009: only where the provider declares them."""
    (perdure.folder / "tasks.py").write_text(TASKS.replace("LANGUAGE", language))
    for name, kinds in (("charge", ["effect-unkeyed"]), ("note", [])):
        (perdure.folder / name).write_text(RETRIED[language].replace("charge", name))
        checked = perdure.here("check", name, "--load", "./tasks.py", "--json", code=0).json
        assert [finding["kind"] for finding in checked["findings"]] == kinds


def test_soundness_can_be_asked_for_and_left_out(perdure: CommandLine) -> None:
    """ANA-001: `--sound` is the default."""
    steps = {"a": {"action": "Return"}, "b": {"action": "Return"}}
    flow = {"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a", "steps": steps}
    (perdure.folder / "flow.json").write_text(json.dumps(flow))

    for words in ((), ("--sound",)):
        answer = perdure.here("check", "flow.json", *words, "--json", code=7).json
        assert [finding["kind"] for finding in answer["findings"]] == ["dead-step"]
    assert perdure.here("check", "flow.json", "--no-sound", "--json").json["findings"] == []


def test_good_documents_have_no_problems(perdure: CommandLine) -> None:
    good = perdure.drill({"return": 1}, name="good")

    assert perdure.here("check", good, "--json").json == {"problems": [], "findings": []}
    assert "nowhere.json: No such file" in perdure("check", good, "nowhere.json", code=8).err


def test_providers_are_listed_with_their_parameters(perdure: CommandLine) -> None:
    (perdure.folder / "tasks.py").write_text(
        'import perdure\n\n@perdure.provider("twice")\ndef twice(text: str, times: int = 2) -> str:\n'
        '    """Say it twice.\n\n    Or more often."""\n    return text * times\n'
    )
    listed = perdure("providers", "--load", "tasks.py", "--json").json
    shown = perdure("providers", "twice", "--load", "tasks.py")

    assert {"echo", "http", "python", "shell", "twice"} <= {provider["name"] for provider in listed}
    assert "Say it twice." in shown.out and "Or more often." in shown.out
    assert "text       string   required" in shown.out
    assert "times      integer  2" in shown.out
    assert "Say it twice." in perdure("providers", "--load", "tasks.py").out
    parameters = perdure("providers", "twice", "--load", "tasks.py", "--json").json["parameters"]
    assert parameters["required"] == ["text"]
    assert "did you mean 'shell'?" in perdure.here("providers", "shel", code=8).err


FLOW = """{"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a",
"steps": {"a": %s, "b": {"action": "Return"}}}"""
ENGRAM = """apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: s}
spec: {steps: [{name: a, ref: echo, with: {x: '%s'}}]}
"""


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (FLOW % '{"action": "Return",}', "not JSON: ", "JSON allows no comma before } or ]."),
        (
            FLOW % '{"action": "Call", "call": {"provider": "mwl:provider.call/perdure/disk_usage/v1"}, "next": "b"}',
            "there is no provider 'mwl:provider.call/perdure/disk_usage/v1'",
            "Load your own providers with --load.",
        ),
        (
            FLOW % '{"action": "Call", "call": {"provider": "mwl:provider.call/mwl/htpp/v1"}, "next": "b"}',
            "; did you mean 'mwl:provider.call/perdure/http/v1'?",
            "Load your own providers with --load.",
        ),
        (
            FLOW % '{"action": "Return", "value": "{{ call.result }}"}',
            "`call` is not in scope, at 1:2 of the expression",
            "`output`, `assign` and `catch` of the Step read `step.result`",
        ),
        (FLOW % '{"action": "Return", "value": "{{ strng(1) }}"}', "of the expression; did you mean `string`?", ""),
        (
            "apiVersion: noetl.io/v10\nkind: Playbook\nmetadata: {name: x}\n",
            "metadata lacks 'path'",
            "path: team/nightly",
        ),
        (ENGRAM % "{{ input.x }}", "unknown context 'input' is not allowed", "Allowed are: inputs, steps."),
        (ENGRAM % "{{ inputs.x | upperr }}", "function 'upperr' is not defined; did you mean 'upper'?", ""),
        ("{}", "not in a language known here", '"$schema": "https://mwl.dev/v0.1/flow/schema.json"'),
    ],
)
def test_a_beginners_mistake_is_met_with_advice(perdure: CommandLine, text: str, message: str, hint: str) -> None:
    (perdure.folder / "mistake.yaml").write_text(text)
    problems = perdure.here("check", "mistake.yaml", "--json", "--strict", code=7).json["problems"]
    assert any(message in problem["message"] and hint in problem["hint"] for problem in problems), problems
    assert all(problem["message"].count("did you mean") <= 1 for problem in problems)
    if "disk_usage" in text:
        assert not any("did you mean" in problem["message"] for problem in problems), "nothing is near"


def test_a_folder_without_documents_is_refused_with_the_help_of_the_verb(perdure: CommandLine) -> None:
    (perdure.folder / "empty").mkdir()
    done = perdure.here("check", "empty", code=2)
    assert "the folder contains no documents" in done.err and "hint: See `perdure check --help`." in done.err
