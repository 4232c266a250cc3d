"""Mistakes of authors, in the three languages: `check` says what is wrong, where, and what to write."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cli.commandline import CommandLine

EXAMPLES = Path(__file__).parents[2] / "examples"
MOCK = "mwl:provider.call/mwl/mock/v1"
RETRY = "mwl:provider.middleware/mwl/retry/v1"
DONE = {"action": "Return"}


class Mistake(NamedTuple):
    name: str
    text: str
    severity: str
    line: int
    path: str
    message: str  # a part of it
    advice: str  # a part of the message or of its hint


def _flow(steps: dict[str, Any], **members: Any) -> str:
    """A Flow whose entrypoint is `a`, one line per Step, the first one on line 4."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(step)}" for name, step in {**steps, "done": DONE}.items())
    head = json.dumps({"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "a", **members})
    return f'{head[:-1]},\n\n"steps": {{\n{lines}\n}}}}\n'


def _call(call: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"action": "Call", "call": call, "next": "done", **members}


def _mock(**arguments: Any) -> dict[str, Any]:
    return {"provider": MOCK, "with": arguments}


def _pass(**members: Any) -> dict[str, Any]:
    return {"action": "Pass", "next": "done", **members}


FLOWS = [
    Mistake(
        "an expression inside a longer text",
        _flow({"a": _pass(output="Hello {{ frame.input }}!")}),
        *("warning", 4, "steps.a.output", "is used as written", "Write one expression that joins texts"),
    ),
    Mistake(
        "blanks around an expression",
        _flow({"a": _pass(output=" {{ frame.input }}")}),
        *("warning", 4, "steps.a.output", "is used as written", "Remove the blanks"),
    ),
    Mistake(
        "an int added to a number of the data",
        _flow({"a": _pass(assign={"n": 1}, next="b"), "b": _pass(output="{{ vars.n + 1 }}")}),
        *("warning", 5, "steps.b.output", "`vars.n + 1` always fails", "Write 1.0, or int(vars.n)"),
    ),
    Mistake(
        "a remainder of a number of the data",
        _flow({"a": _pass(output="{{ step.input.map(x, x % 2) }}")}),
        *("warning", 4, "steps.a.output", "`%` takes ints", "int(x) % 2"),
    ),
    Mistake(
        "a variable that nothing assigns",
        _flow({"a": _pass(assign={"total": 1}, next="b"), "b": _pass(output="{{ vars.totl }}")}),
        *("warning", 5, "steps.b.output", "nothing in this Flow assigns the variable 'totl'", "did you mean 'total'?"),
    ),
    Mistake(
        "a variable of the caller",
        _flow(
            {"a": _pass(assign={"n": 1}, next="b"), "b": _call({"flow": "sub"})},
            flows={"sub": {"entrypoint": "x", "steps": {"x": {"action": "Return", "value": "{{ vars.n }}"}}}},
        ),
        *("warning", 1, "flows.sub.steps.x.value", "nothing in this Flow assigns the variable 'n'", "has(vars.n)"),
    ),
    Mistake(
        "an unknown argument beside an expression",
        _flow({"a": _call(_mock(value="{{ frame.input }}", dealy="PT1S"))}),
        *("warning", 4, "steps.a.call.with.dealy", "there is no parameter 'dealy'", "did you mean 'delay'?"),
    ),
    Mistake(
        "a wrong literal beside an expression",
        _flow({"a": _call(_mock(value="{{ frame.input }}", delay=5))}),
        *("warning", 4, "steps.a.call.with", "this will fail at run time", "5 is not of type"),
    ),
    Mistake(
        "a missing argument beside an expression",
        _flow(
            {"a": _call({"flow": "sub", "with": {"to": "{{ frame.input }}"}})},
            flows={
                "sub": {
                    "entrypoint": "x",
                    "parameters": {
                        "type": "object",
                        "required": ["to", "from"],
                        "properties": {"to": {}, "from": {}},
                    },
                    "steps": {"x": DONE},
                }
            },
        ),
        *("warning", 4, "steps.a.call.with", "this will fail at run time", "'from' is missing"),
    ),
    Mistake(
        "a Raise that has nothing to raise",
        _flow(
            {
                "a": _call(_mock(), catch=[{"match": {"codes": ["*"]}, "next": "b"}]),
                "b": _pass(next="c"),
                "c": {"action": "Raise"},
            }
        ),
        *("warning", 6, "steps.c", "can only end with System.EmptyRaise", "the `next` of a catch clause"),
    ),
    Mistake(
        "the results of a Gather in an arm",
        _flow(
            {
                "a": {
                    "action": "Gather",
                    "over": [1, 2],
                    "call": {**_mock(), "onSuccess": {"value": "{{ size(step.results) }}"}},
                    "next": "done",
                }
            }
        ),
        *("warning", 4, "steps.a.call.onSuccess.value", "`step.results` does not exist here", "in `output`, `assign`"),
    ),
    Mistake(
        "a member that no Step has",
        _flow({"a": _pass(output="{{ step.inptu }}")}),
        *("warning", 4, "steps.a.output", "`step.inptu` does not exist here", "did you mean 'input'?"),
    ),
    Mistake(
        "a middleware inside the call",
        _flow({"a": _call({**_mock(), "middleware": []})}),
        *("error", 4, "steps.a.call.middleware", "a call has no member 'middleware'", "beside 'call'"),
    ),
    Mistake(
        "arguments of a middleware without a phase",
        _flow({"a": _call(_mock(), middleware=[{"provider": RETRY, "with": {"policies": []}}])}),
        *("error", 4, "steps.a.middleware[0].with", "has no member 'with'", '"onEntry": {"with": {…}}'),
    ),
    Mistake(
        "a star in the middle of a code",
        _flow({"a": _call(_mock(), catch=[{"match": {"codes": ["Provider*"]}, "next": "done"}])}),
        *("warning", 4, "steps.a.catch[0].match.codes[0]", "matches only this text", "Prefix.*"),
    ),
    Mistake(
        "a Step that does not exist",
        _flow({"a": _pass(next="doen")}),
        *("error", 4, "steps.a.next", "there is no Step 'doen'", "did you mean 'done'?"),
    ),
    Mistake(
        "an action in small letters",
        _flow({"a": {"action": "pass", "next": "done"}}),
        *("error", 4, "steps.a.action", "there is no action 'pass'", "did you mean 'Pass'?"),
    ),
]


def _story(*steps: str, spec: str = "") -> str:
    """The first step is on line 6 if `spec` is one line."""
    head = "apiVersion: bubustack.io/v1alpha1\nkind: Story\nmetadata: {name: s}\nspec:\n"
    return f"{head}  {spec or 'pattern: batch'}\n  steps:\n" + "".join(f"    - {step}\n" for step in steps)


STORIES = [
    Mistake(
        "an `if` without braces",
        _story("{name: a, type: condition, if: \"inputs.region == 'eu'\"}"),
        *("warning", 7, "spec.steps[0].if", "can never be true", 'Write {{ eq inputs.region "eu" }}'),
    ),
    Mistake(
        "an `until` without braces",
        _story('{name: a, type: wait, with: {until: "steps.b.output.ready"}}', "{name: b, type: condition}"),
        *("warning", 7, "spec.steps[0].with.until", "can never be true", "Write {{ steps.b.output.ready }}"),
    ),
    Mistake(
        "a condition after execution without braces",
        _story('{name: a, type: condition, postExecution: {condition: "all is well"}}'),
        *("warning", 7, "spec.steps[0].postExecution.condition", "can never be true", "Write a template such as"),
    ),
    Mistake(
        "a step in `needs` that does not exist",
        _story("{name: build, type: condition}", "{name: b, type: condition, needs: [biuld]}"),
        *("error", 8, "spec.steps[1].needs[0]", "unknown dependency 'biuld'", "did you mean 'build'?"),
    ),
    Mistake(
        "a step in a template that does not exist",
        _story("{name: build, type: condition}", '{name: b, type: condition, if: "{{ steps.bild.output.ok }}"}'),
        *("error", 8, "spec.steps[1].if", "unknown step 'bild'", "did you mean 'build'?"),
    ),
    Mistake(
        "an input that the schema does not have",
        _story(
            '{name: a, type: condition, if: "{{ eq inputs.regoin \\"eu\\" }}"}',
            spec="inputsSchema: {type: object, properties: {region: {type: string}}}",
        ),
        *("warning", 7, "spec.steps[0].if", "inputsSchema has no input 'regoin'", "did you mean 'region'?"),
    ),
    Mistake(
        "a member that a wait does not read",
        _story('{name: a, type: wait, with: {until: "true", timout: 5s}}'),
        *("warning", 7, "spec.steps[0].with.timout", "has no effect here", "did you mean 'timeout'?"),
    ),
    Mistake(
        "a kind of step that does not exist",
        _story("{name: a, type: gaet}"),
        *("error", 7, "spec.steps[0].type", "unsupported value", "did you mean 'gate'?"),
    ),
]


def _playbook(step: str, more: str = "", workload: str = "{items: [1, 2], url: x}") -> str:
    """The first step begins on line 6."""
    head = f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: p, path: p}}\nworkload: {workload}\nworkflow:\n"
    if "next:" not in step:
        step += "    next: {arcs: [{step: b}]}\n"
    return head + step + "  - {step: b, tool: {kind: noop}}\n" + more


def _arc(when: str, loop: str = "") -> str:
    return (
        f"  - step: a\n{loop}    tool: {{kind: noop, args: {{q: 1}}}}\n    next:\n      arcs:\n"
        f'        - {{step: b, when: "{{{{ {when} }}}}"}}\n'
        '        - {step: b, when: "{{ event.error is not none }}"}\n'
    )


LOOP = "    loop: {in: [1, 2], iterator: one, spec: {%s}}\n"

PLAYBOOKS = [
    Mistake(
        "an event that does not exist",
        _playbook(_arc("event.name == 'call.done'")),
        *("warning", 10, "workflow[0].next.arcs[0].when", "there is no event 'call.done'", "did you mean 'step.done'?"),
    ),
    Mistake(
        "the end of a step, after a loop",
        _playbook(_arc("event.name in ['step.done', 'step.failed']", LOOP % "mode: sequential")),
        *("warning", 11, "workflow[0].next.arcs[0].when", "never ends with the event 'step.done'", "Write 'loop.done'"),
    ),
    Mistake(
        "a status of older versions",
        _playbook(_arc("event.status == 'success'")),
        *("warning", 10, "workflow[0].next.arcs[0].when", "never 'success'", "event.status == 'ok'"),
    ),
    Mistake(
        "a guard without braces",
        _playbook(_arc("true").replace("{{ true }}", "event.status == 'ok'")),
        *("error", 10, "workflow[0].next.arcs[0].when", "plain text, which would always be true", "{{ event.status"),
    ),
    Mistake(
        "a misspelt setting of a loop",
        _playbook("  - step: a\n" + LOOP % "mode: parallel, max_inflight: 2" + "    tool: {kind: noop}\n"),
        *("warning", 7, "workflow[0].loop.spec.max_inflight", "has no effect", "did you mean 'max_in_flight'?"),
    ),
    Mistake(
        "a misspelt setting of a task",
        _playbook("  - step: a\n    tool: {kind: noop, spec: {timout: 5}}\n"),
        *("warning", 7, "workflow[0].tool.spec.timout", "has no effect", "did you mean 'timeout'?"),
    ),
    Mistake(
        "a misspelt setting of a step",
        _playbook("  - step: a\n    spec: {policy: {lifecycle: {timeouts: 5}}}\n    tool: {kind: noop}\n"),
        *("warning", 7, "workflow[0].spec.policy.lifecycle.timeouts", "has no effect", "did you mean 'timeout_s'?"),
    ),
    Mistake(
        "a misspelt setting of the executor",
        _playbook("  - step: a\n    tool: {kind: noop}\n", "executor: {spec: {entrystep: a}}\n"),
        *("warning", 10, "executor.spec.entrystep", "has no effect", "did you mean 'entry_step'?"),
    ),
    Mistake(
        "a step that does not exist, in a template",
        _playbook('  - step: fetch\n    tool: {kind: noop, args: {x: "{{ steps.fecth.result }}"}}\n'),
        *("warning", 7, "workflow[0].tool.args.x", "there is no step 'fecth'", "did you mean 'fetch'?"),
    ),
    Mistake(
        "a step that does not exist, in an arc",
        _playbook("  - step: a\n    tool: {kind: noop}\n    next: {arcs: [{step: B}]}\n"),
        *("error", 8, "workflow[0].next.arcs[0].step", "there is no step 'B'", "did you mean 'b'?"),
    ),
    Mistake(
        "a variable of an iteration that does not exist",
        _playbook("  - step: a\n" + LOOP % "" + '    tool: {kind: noop, args: {x: "{{ iter.oen }}"}}\n'),
        *("warning", 8, "workflow[0].tool.args.x", "there is no iter.oen", "did you mean 'one'?"),
    ),
    Mistake(
        "a key of ctx that nothing sets",
        _playbook('  - step: a\n    tool: {kind: noop, args: {x: "{{ ctx.url }}"}}\n'),
        *("warning", 7, "workflow[0].tool.args.x", "nothing in this document sets ctx.url", "workload.url"),
    ),
    Mistake(
        "a misspelt key of the workload",
        _playbook('  - step: a\n    tool: {kind: noop, args: {x: "{{ workload.itmes }}"}}\n'),
        *("warning", 7, "workflow[0].tool.args.x", "no default for 'itmes'", "did you mean 'items'?"),
    ),
]

MISTAKES = [
    *((mistake, "flow.json") for mistake in FLOWS),
    *((mistake, "story.yaml") for mistake in STORIES),
    *((mistake, "playbook.yaml") for mistake in PLAYBOOKS),
]


@pytest.mark.parametrize(("mistake", "file"), MISTAKES, ids=[mistake.name for mistake, _ in MISTAKES])
def test_a_mistake_is_told_with_its_place_and_advice(perdure: CommandLine, mistake: Mistake, file: str) -> None:
    (perdure.folder / file).write_text(mistake.text)
    done = perdure.here("check", file, "--json", code=None)
    problems, findings = done.json["problems"], done.json["findings"]
    is_wrong = mistake.severity == "error" or any(finding["certainty"] == "will" for finding in findings)
    assert done.code == (7 if is_wrong else 0)
    matching = [
        problem for problem in problems if problem["path"] == mistake.path and mistake.message in problem["message"]
    ]

    assert len(matching) == 1, problems
    assert (matching[0]["file"], matching[0]["line"], matching[0]["severity"]) == (file, mistake.line, mistake.severity)
    assert mistake.advice in matching[0]["message"] + matching[0]["hint"]
    assert len(problems) == 1, "one mistake, one problem"


def test_with_strict_warnings_are_findings(perdure: CommandLine) -> None:
    (perdure.folder / "flow.json").write_text(FLOWS[0].text)
    (perdure.folder / "good.json").write_text(_flow({"a": _pass()}))

    assert "0 errors, 1 warning" in perdure.here("check", "flow.json").err
    strict = perdure.here("check", "flow.json", "--strict", code=7)
    assert "steps.a.output" in strict.out
    perdure.here("check", "good.json", "--strict")


SOUND = {
    "numbers.json": _flow(
        {
            "a": _pass(assign={"n": "{{ 1.0 + frame.input.n }}", "xs": "{{ frame.input.xs + [1] }}"}, next="b"),
            "b": _pass(output="{{ int(vars.n) % 2 + 1 }}", assign={"k": "{{ has(vars.k) ? vars.k : 0 }}"}),
        }
    ),
    "raise.json": _flow(
        {"a": _call(_mock(), catch=[{"match": {"codes": ["*"]}, "next": "again"}]), "again": {"action": "Raise"}}
    ),
    "open.json": _flow(
        {"a": _pass(output="{{ vars.anything }}")}, parameters={"type": "object", "additionalProperties": True}
    ),
    "document.json": _flow(
        {
            "a": _call(
                {
                    "provider": "mwl:provider.call/perdure/run/v1",
                    "with": {"document": "# text of a playbook: {{ workload.x }}", "name": "{{ frame.input }}"},
                }
            )
        }
    ),
    "playbook.yaml": _playbook(
        "  - step: a\n    spec: {http: {pool: 3}, x-owner: ops}\n"
        "    tool:\n      kind: noop\n"
        '      args: {a: "{{ ctx.later | default(\'\') }}", b: "{{ ctx.get(\'tot\') }}", c: "{{ workload.other }}"}\n'
        "      spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {total: 1}}}}]}}\n"
    ),
    "story.yaml": _story('{name: a, type: condition, if: "{{ eq inputs.anything 1 }}"}'),
}


FOUND = {"raise.json": ["handler-unreachable"]}  # a mock that is written as a success does not fail


@pytest.mark.parametrize("file", SOUND)
def test_what_may_work_is_not_warned_of(perdure: CommandLine, file: str) -> None:
    (perdure.folder / file).write_text(SOUND[file])
    checked = perdure.here("check", file, "--json", code=None).json

    assert checked["problems"] == []
    assert [finding["kind"] for finding in checked["findings"]] == FOUND.get(file, [])


def test_the_examples_have_no_warnings_but_that_of_the_approval(perdure: CommandLine) -> None:
    sources = ["--load", str(EXAMPLES / "flows" / "service.py"), "--load", str(EXAMPLES / "stories" / "engrams.py")]
    checked = perdure("check", str(EXAMPLES), *sources, "--json").json
    problems = checked["problems"]

    codes = [
        (Path(problem["file"]).name, problem["code"]) for problem in problems if problem["code"] != "ReferenceNotFound"
    ]
    assert codes == [("approval.yaml", "PBK-033")]  # code of some examples is not loaded here
    pages = ["pages.yaml", "pagination.json", "pull.yaml"]  # what is read decides how long they go on
    loops = [(name, "endless-loop", "may") for name in pages]
    findings = sorted(
        (Path(finding["file"]).name, finding["kind"], finding["certainty"]) for finding in checked["findings"]
    )
    assert findings == [("join.yaml", "unbounded-wait", "may"), *loops]
