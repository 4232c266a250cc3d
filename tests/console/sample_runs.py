"""Runs of every language for the journeys: open ones, failed ones, long ones, hostile ones."""

import os
from typing import Any

from tests.server.serving import Api

MANY = 10_000 if os.environ.get("PERDURE_TEST_SEED") == "all" else 150  # among which one is to be found
STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: release}
spec:
  inputsSchema:
    {type: object, required: [env], properties: {env: {type: string}, images: {type: array, default: [api]}}}
  steps:
  - {name: build, ref: echo, with: {tag: "{{ inputs.env }}-1", images: "{{ inputs.images }}"}}
  - name: verify
    type: parallel
    needs: [build]
    with:
      steps:
      - {name: unit, ref: echo, with: {passed: 12}}
      - {name: lint, ref: echo, with: {warnings: 0}}
  - {name: approve, type: gate, needs: [verify], with: {timeout: 12h}}
  - {name: ship, ref: echo, needs: [approve], with: {tag: "{{ steps.build.output.tag }}"}}
  output: {tag: "{{ steps.ship.output.tag }}"}
"""
APPROVAL = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: approval, path: approval}
workload: {amount: 250}
workflow:
- step: ask
  spec: {policy: {admit: {rules: [{when: "{{ ctx.approved is defined }}", then: {allow: true}}]}}}
  next: {arcs: [{step: pay}]}
- step: pay
  tool: {kind: noop, result: {by: "{{ ctx.by }}"}}
"""
CLICKS = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: clicks}
spec:
  pattern: streaming
  steps:
  - {name: source, ref: {name: clicks}, transport: quick}
  - {name: enrich, ref: {name: enrich}, needs: [source], transport: quick}
  - {name: store, ref: {name: store}, needs: [enrich], transport: slow}
  - {name: count, ref: {name: enrich}, needs: [enrich], transport: quick}
  transports:
  - name: quick
    transportRef: local
    streaming:
      recording: {mode: payload}
      observability: {watermark: {enabled: true}}
  - name: slow
    transportRef: local
    streaming:
      backpressure: {buffer: {maxMessages: 5, dropPolicy: drop_newest}}
      flowControl: {mode: window, initialCredits: {messages: 1}}
"""
INVOICE = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: invoice}
spec:
  steps:
  - {name: bill, ref: echo, with: {amount: 17}}
  - {name: payment, type: wait, needs: [bill], with: {until: "{{ ge steps.bill.signals.paid 17 }}"}}
  - {name: receipt, ref: receipt, needs: [payment], with: {to: Ada}}
"""
ENGRAMS = """
import asyncio
import perdure

@perdure.engram("receipt")
async def receipt(inputs, context):
    async def send():
        return {"sent": inputs["to"]}
    return await context.effect_once("send", send)

@perdure.streaming_engram("clicks")
async def clicks(config, messages, context):
    number = 0
    while True:
        number += 1
        await context.publish({"n": number, "page": "<img src=x onerror=hacked=5>"})
        await asyncio.sleep(0.03)

@perdure.streaming_engram("enrich")
def enrich(config, message, context):
    return {**message.payload, "enriched": True}

@perdure.streaming_engram("store")
async def store(config, messages, context):
    async for message in messages:
        await asyncio.sleep(0.5)
        message.done()
"""
SQUARES = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: squares}
spec:
  steps:
  - name: each
    ref: map-reduce-adapter
    with:
      items: "{{ inputs.numbers }}"
      map:
        story: {steps: [{name: one, type: condition}], output: {n: "{{ inputs.item }}"}}
        concurrency: 50
        inlineResultsLimit: 100
"""
GATHER = {
    "$schema": "https://mwl.dev/v0.1/flow/schema.json",
    "entrypoint": "each",
    "steps": {
        "each": {
            "action": "Gather",
            "over": "{{ step.input }}",
            "concurrency": 100,
            "call": {"flow": "One"},
            "next": "end",
        },
        "end": {"action": "Return", "value": "{{ size(step.input) }}"},
    },
    "flows": {
        "One": {
            "entrypoint": "double",
            "steps": {
                "double": {"action": "Pass", "output": "{{ step.input * 2.0 }}", "next": "answer"},
                "answer": {"action": "Return"},
            },
        }
    },
}
HOSTILE = "<img src=x onerror=hacked=1>"


def playbook(name: str, *steps: dict[str, Any], **workload: Any) -> dict[str, Any]:
    about = {"name": name, "path": name.replace("/", "-") or "x"}
    return {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": about,
        "workload": workload,
        "workflow": list(steps),
    }


def make_runs(api: Api) -> dict[str, str]:
    assert api("POST", "/api/v1/resources:apply", {"documents": [STORY, APPROVAL, SQUARES, INVOICE]}).status == 200
    runs = {name: _start(api, name="release", input={"env": "prod"}) for name in ("gate", "phone", "done")}
    runs["labelled"] = _start(api, name="release", input={"env": "test"}, labels={"team": "shop"})
    assert api("POST", f"/api/v1/runs/{runs['done']}/gates/approve", {"state": "Approved"}).status in (200, 202)
    runs["invoice"] = _start(api, name="invoice")
    runs["approval"] = _start(api, name="approval")
    fetch = {"step": "fetch", "tool": {"kind": "http", "url": "http://127.0.0.1:9/needle", "method": "GET"}}
    runs["needle"] = api.start(playbook("needle", fetch))
    each = {
        "step": "each",
        "loop": {"in": "{{ workload.rows }}", "iterator": "row"},
        "tool": {"kind": "noop", "result": {"n": "{{ iter.row }}"}},
    }
    runs["loop"] = api.start(playbook("loop", each, rows=list(range(10_000))))
    runs["gather"] = api.start(GATHER, input=list(range(10_000)))
    runs["map"] = _start(api, name="squares", input={"numbers": list(range(300))})
    noop = {"step": "start", "tool": {"kind": "noop"}}
    text = "<script>hacked = 2</script>\u202e\u0000\u0007</textarea><svg onload=hacked=3>"
    runs["hostile"] = api.start(
        playbook(HOSTILE, noop, text=text, long="", __proto__={"hacked": 4}),
        input={"long": "x" * 10_000_000},
        labels={"x": "<b>bold</b>"},
    )
    words = "a-name-of-eighty-columns-and-more-" * 4
    step = {"step": "a_step_with_a_name_that_is_longer_than_what_it_is_drawn_in", "tool": {"kind": "noop"}}
    runs["long"] = api.start(playbook(words, step), labels={"long": "yes", "other": "x" * 60})
    for number in range(MANY):
        api.start(playbook("spare" if number < 3 else f"plain-{number}", noop))
    for name in ("done", "needle", "loop", "gather", "map", "hostile"):
        api.result(runs[name])
    return runs


def _start(api: Api, **body: Any) -> str:
    reply = api("POST", "/api/v1/runs", body)
    assert reply.status == 202, reply.text
    return str(reply.json["id"])
