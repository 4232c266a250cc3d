"""Why a value is what it is: expressions, what they read, and the events that set it (ANA-020, ANA-021)."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.dialects.flow.documents import call, flow, returns
from tests.dialects.flow.test_properties import Author
from tests.dialects.flow.test_properties import world as flow_world
from tests.dialects.playbook.cases import tools
from tests.dialects.playbook.test_properties import document as playbook_document
from tests.dialects.playbook.world import World as PlaybookWorld
from tests.dialects.story.test_random import RandomWorld
from tests.dialects.story.test_random import document as story_document

import perdure
from perdure.analysis.retracing import Retracing
from perdure.kernel.codec import decode_turns
from perdure.kernel.dialect import Dialect
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext
from perdure.testing import World
from perdure.views.errors import BadRequest, FieldNotFound
from perdure.views.runs.run_causes import CauseQuery, explain_run
from perdure.views.runs.run_provenance import explain_value, read_field
from perdure.views.times import read_instant

Link = dict[str, Any]

BANK = "mwl:provider.call/perdure/origins-bank/v1"
MOCK = "mwl:provider.call/mwl/mock/v1"
FLOW = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "first",
    "steps": {
        "first": {
            "action": "Call",
            "call": {
                "provider": BANK,
                "with": {
                    "n": "{{ step.input.n }}",
                    "who": "{{ step.input.flag ? step.input.a : step.input.b }}",
                    "fixed": 4,
                },
            },
            "assign": {"total": "{{ step.result.value.total + 1.0 }}"},
            "output": {"order": {"sum": "{{ step.result.value.total * 2.0 }}"}, "k": 3},
            "next": "fan",
        },
        "fan": {
            "action": "Gather",
            "over": "{{ [vars.total, step.input.order.sum] }}",
            "call": {"provider": MOCK, "with": {"value": {"x": "{{ call.input * 10.0 }}"}}},
            "next": "choose",
        },
        "choose": {
            "action": "Match",
            "cases": [{"when": "{{ vars.total > 5.0 }}", "next": "end", "output": {"all": "{{ match.input }}"}}],
            "default": {"next": "end"},
        },
        "end": {"action": "Return"},
    },
}

STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: shop}
spec:
  steps:
  - name: load
    ref: origins-load
    with: {n: "{{ inputs.n }}", who: "{{ if gt inputs.n 1 }}{{ inputs.a }}{{ else }}{{ inputs.b }}{{ end }}", fixed: 4}
  - {name: ok, type: gate, needs: [load]}
  - name: both
    type: parallel
    needs: [ok]
    with:
      steps:
      - {name: pay, ref: origins-load, with: {n: "{{ steps.load.output.total }}"}}
      - {name: tell, ref: origins-load, with: {n: "{{ inputs.n }}"}}
  output: {paid: "{{ steps.both.output.pay.total }}", decision: "{{ steps.ok.output.decision }}"}
"""

PLAYBOOK = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: shop, path: shop}
workload: {n: 3, who: Bob, other: Eve}
workflow:
  - step: start
    tool:
      - ask:
          kind: origins-bank
          n: "{{ workload.n }}"
          who: "{{ workload.who if workload.n > 1 else workload.other }}"
          spec: {policy: {rules: [{when: "{{ outcome.status == 'ok' }}", then: {do: continue, set_ctx: %s}}]}}
      - make: {kind: noop, result: "{{ {'x': _prev.total, 'y': results.ask.who} }}"}
    next: {arcs: [{step: never, when: "{{ ctx.total < 0 }}"}, {step: each, args: {limit: "{{ event.result.x }}"}}]}
  - step: each
    loop: {in: "{{ [args.limit, ctx.total] }}", iterator: item, spec: {mode: parallel}}
    tool: {kind: origins-bank, n: "{{ iter.item }}"}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: noop, result: "{{ steps.each.result.results[1].total }}"}}
  - {step: never, tool: {kind: noop}}
"""
SET_CTX = """{total: "{{ outcome.result.total + 1 }}", note: {by: "{{ workload.who }}", fixed: 2}}"""

DOCUMENTS = {"flow": json.dumps(FLOW), "story": STORY, "playbook": PLAYBOOK % SET_CTX}
INPUTS = {
    "flow": {"n": 2, "flag": True, "a": "A", "b": "B"},
    "story": {"n": 2, "a": "A", "b": "B"},
    "playbook": {"n": 2},
}


def _bank(n: float = 0, who: str = "", fixed: int = 0) -> dict[str, Any]:
    return {"total": n * 7, "who": who}


@perdure.engram("origins-load")
def load(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"total": inputs["n"] * 7}


async def _explained(folder: Path, language: str, *asked: tuple[str | None, str]) -> list[dict[str, Any]]:
    """Of each value its explanation; every link is an event of the history at its time."""
    async with World(folder, mocks={"origins-bank": _bank}) as world:
        run = await world.start(DOCUMENTS[language].encode(), INPUTS[language])
        await world.settle()
        if language == "story":
            await run.approve("ok", by="ann")
            await world.settle()
        assert await run.status() == "succeeded"
        client = world.engine
        assert client is not None
        history = {event["seq"]: event for event in await client.history(run.id)}
        explained = [await explain_value(client, run.id, step, field) for step, field in asked]
    for link in (link for item in explained for link in item["chain"]):
        event = history[link["seq"]]
        at = read_instant(event["timestamp"], 0) if "timestamp" in event else event["at"]
        assert read_instant(link["at"], 0) // 1_000_000 == at // 1_000_000
    return explained


def _through(explained: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The expressions of a chain, each with what it read."""
    links = [link for link in explained["chain"] if "expression" in link]
    return [(link["expression"].strip("{} "), [read["path"] for read in link["reads"]]) for link in links]


async def test_a_value_of_a_flow_leads_through_expressions_to_results_and_inputs(tmp_path: Path) -> None:
    """ANA-020 ANA-021: only what was read counts: not the arm of a choice that was not taken."""
    chosen, element, fixed, result = await _explained(
        tmp_path, "flow", ("first", "with.who"), ("fan", "output[1].x"), ("first", "output.k"), (None, "all[0].x")
    )

    assert _through(chosen) == [
        ("step.input.flag ? step.input.a : step.input.b", ["step.input.flag", "step.input.a"]),
    ]
    assert chosen["value"] == "A" and [link["seq"] for link in chosen["chain"][1:]] == [1, 1]
    assert [text for text, _ in _through(element)] == [
        "call.input * 10.0",
        "[vars.total, step.input.order.sum]",
        "step.result.value.total + 1.0",
        "step.result.value.total * 2.0",
    ]
    assert element["value"] == 280 and "was returned by the task of 'first'" in element["chain"][-2]["text"]
    assert fixed["chain"][0]["text"] == "k of the output of Step 'first' is written in the document"
    assert result["value"] == 150 and _through(result)[:2] == [
        ("match.input", ["match.input"]),
        ("call.input * 10.0", ["call.input"]),
    ]


async def test_a_value_of_a_story_leads_to_outputs_decisions_and_inputs(tmp_path: Path) -> None:
    paid, who, decision, fixed = await _explained(
        tmp_path, "story", (None, "paid"), ("load", "input.who"), (None, "decision"), ("load", "input.fixed")
    )

    assert _through(paid) == [("steps.both.output.pay.total", ["steps.both.output.pay.total"])]
    assert paid["chain"][-1]["text"].endswith("was returned by the task of 'pay'")
    assert _through(who)[0][1] == ["inputs.n", "inputs.a"] and who["value"] == "A"
    assert [link["text"] for link in who["chain"][1:]] == [
        "n of the inputs of the run came with the start of the run",
        "a of the inputs of the run came with the start of the run",
    ]
    assert decision["chain"][-1]["text"].endswith(
        "the decision at gate 'ok' came with the control message 'gate' from ann"
    )
    assert fixed["chain"][0]["text"] == "fixed of the input of step 'load' is written in the document"


async def test_a_value_of_a_playbook_leads_to_results_ctx_and_the_workload(tmp_path: Path) -> None:
    result, total, who, item, note = await _explained(
        tmp_path,
        "playbook",
        (None, "result"),
        (None, "ctx.total"),
        ("start", "input.who"),
        ("each", "input.n"),
        (None, "ctx.note.by"),
    )

    assert _through(result) == [
        ("steps.each.result.results[1].total", ["steps.each.result.results[1].total"]),
    ]
    assert result["chain"][-1]["text"].endswith("was returned by the task of 'each › each_task'")
    assert _through(total) == [("outcome.result.total + 1", ["outcome.result.total"])]
    assert [link["text"] for link in who["chain"][1:]] == [
        "workload.n came with the start of the run",
        "workload.who is written in the document",
    ]
    assert [text for text, _ in _through(item)] == [
        "iter.item",
        "[args.limit, ctx.total]",
        "event.result.x",
        "'x': _prev.total, 'y': results.ask.who",
        "outcome.result.total + 1",
    ]
    assert _through(note) == [("workload.who", ["workload.who"])]


CHILD = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: inner}
spec: {steps: [{name: deep, ref: origins-fail}]}
"""
PARENT = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: outer}
spec:
  steps:
  - {name: child, type: executeStory, with: {storyRef: {name: inner}}}
  - {name: after, ref: origins-load, needs: [child], with: {n: 1}}
  compensations: [{name: undo, ref: origins-fail}]
"""


@perdure.engram("origins-fail")
def fail(inputs: dict[str, Any]) -> dict[str, Any]:
    raise perdure.EngramError("disk full", exit_class="terminal")


async def test_the_first_cause_is_in_the_run_below(tmp_path: Path) -> None:
    """ANA-020: not the compensation that failed last; and a skipped step leads to what made it skipped."""
    async with World(tmp_path) as world:
        run = await world.start(PARENT.encode(), applied=[AppliedDocument("inner.yaml", CHILD)])
        await world.settle()
        client = world.engine
        assert client is not None
        whole = (await explain_run(client, run.id))["chain"]
        skipped = (await explain_run(client, run.id, "after"))["chain"]
        (child,) = {link["run"] for link in whole if "run" in link}
        below = {event["seq"]: event for event in await client.history(child)}

    causes = [link for link in whole if "failed: " in link["text"]]
    assert "step 'deep', attempt 1 failed: Engram.Failed: disk full" in causes[-1]["text"]
    assert causes[-1]["run"] == child and below[causes[-1]["seq"]]["step"] == "deep"
    assert skipped[0]["text"].startswith("step 'after' was skipped") and causes[-1] in skipped


@pytest.mark.parametrize(
    ("language", "step", "condition"),
    [
        ("playbook", "never", "ctx.total < 0"),
        ("story", "never", "eq inputs.n 99"),
        ("flow", "other", "vars.total < 0.0"),
    ],
)
async def test_a_step_that_did_not_run_leads_to_the_condition(
    tmp_path: Path, language: str, step: str, condition: str
) -> None:
    flow = json.loads(DOCUMENTS["flow"])
    flow["steps"]["choose"]["cases"].insert(0, {"when": "{{ vars.total < 0.0 }}", "next": "other"})
    flow["steps"]["other"] = {"action": "Pass", "next": "end"}
    story = STORY.replace("  output:", '  - {name: never, ref: origins-load, if: "{{ eq inputs.n 99 }}"}\n  output:')
    documents = {**DOCUMENTS, "flow": json.dumps(flow), "story": story}
    async with World(tmp_path, mocks={"origins-bank": _bank}) as world:
        run = await world.start(documents[language].encode(), INPUTS[language])
        await world.settle()
        assert world.engine is not None
        chain = (await explain_run(world.engine, run.id, step))["chain"]

    assert "was skipped" in chain[0]["text"] or "not reached" in chain[0]["text"]
    assert chain[1]["expression"].strip("{} ") == condition and chain[1]["value"] is False
    assert chain[-1]["text"] == "the run started"


async def test_what_does_not_exist_is_said_to(tmp_path: Path) -> None:
    with pytest.raises(FieldNotFound, match=r"step 'first' has no value 'output\.nothing', or not yet"):
        await _explained(tmp_path, "flow", ("first", "output.nothing"))
    with pytest.raises(BadRequest, match="is not a path"):
        read_field("a..b")
    assert read_field("output.items[0].a-b") == ("output", "items", 0, "a-b")
    assert CauseQuery().field is None


SECRET = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: shop, path: shop}
workload: {card: ""}
keychain: [{name: pay, kind: bearer, token: "{{ workload.card }}"}]
workflow:
  - {step: start, tool: {kind: noop, result: "{{ ('card ' ~ workload.card) | upper }}"}}
"""


async def test_secrets_of_the_input_stay_hidden(tmp_path: Path) -> None:
    async with World(tmp_path, mocks={"playbook.secrets": []}) as world:
        run = await world.start(SECRET.encode(), {"card": "swordfish-4711"})
        await world.settle()
        assert world.engine is not None
        explained = await explain_value(world.engine, run.id, "start", "output")

    (read,) = explained["chain"][0]["reads"]
    assert read["path"] == "workload.card" and "value" not in explained["chain"][0]
    assert "swordfish" not in json.dumps(explained).lower()


def _retraced(dialect: Dialect, execution: Execution, rows: list[bytes], answer: Any = None) -> Retracing:
    turns = [turn for row in rows for turn in decode_turns(dialect, row)]
    again = Execution(execution.id, dialect.with_all_code(), execution.program)
    tracer = dialect.value_tracer()
    assert tracer is not None
    retracing = Retracing(again, turns, tracer)
    for needs in retracing.retrace():
        retracing.absent.update(needs.digests)
        retracing.answers = {question: answer(question) for question in needs.lookups}
    return retracing


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(40))
def test_a_history_that_is_decided_again_is_the_recorded_one(seed: int) -> None:
    """What explains an event is what made it: no event had to be applied without being decided."""
    playbook = PlaybookWorld(playbook_document(Random(seed)), {"w": 1}, work=tools(), seed=seed)
    playbook.settle()
    assert _retraced(playbook.dialect, playbook.execution, playbook.rows).unexplained == 0
    story = RandomWorld(story_document(Random(seed)), seed=seed)
    story.settle()
    life = story.life
    assert _retraced(life.dialect, life.execution, life.rows, life.universe.answer).unexplained == 0
    document = flow({"c": call({"flow": Author(seed).flow()}), "done": returns()})
    world = flow_world(document)
    world.run()
    retracing = _retraced(world.dialect, world.execution, world.rows)
    assert retracing.unexplained == 0
    assert jsontext.encode(world.dialect.show(retracing.execution, {})) == jsontext.encode(
        world.dialect.show(world.execution, {})
    )
