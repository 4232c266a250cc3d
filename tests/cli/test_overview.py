"""`show` on one screen, in the three languages: why a run waits, its steps, its last error and where that happened."""

import json
import re

import pytest
from tests.cli.commandline import CommandLine, in_terminal
from tests.cli.test_terminal import ESCAPE

RETRY = "mwl:provider.middleware/mwl/retry/v1"
CALL = "mwl:provider.call/perdure/{}/v1"

CODE = """
import perdure

@perdure.provider("charge")
def charge(amount=1):
    if amount > 3:
        ask_bank(amount)
    return amount

def ask_bank(amount):
    raise ConnectionError(f"bank refused {amount}")

@perdure.engram("fills")
def fills(inputs, context):
    raise ValueError("disk full")
"""

STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: shop}
spec:
  steps:
  - {name: a, ref: echo, with: {x: 1}}
  - {name: fill, ref: fills, needs: [a]}
  - {name: z, ref: echo, needs: [fill]}
"""

GATE = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: release}
spec:
  steps:
  - {name: build, ref: echo, with: {x: 1}}
  - {name: ok, type: gate, needs: [build], with: {timeout: 12h, onTimeout: fail}}
  - {name: ship, ref: echo, needs: [ok]}
"""

PLAYBOOK = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: nightly, path: nightly}
workflow:
  - step: start
    tool: {kind: noop, result: [1, 2, 3]}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ start }}", iterator: item}
    tool:
      - one:
          kind: python
          input: {item: "{{ iter.item }}"}
          code: |
            print("item", item)
            if item == 3:
                raise ValueError("cannot do three")
            result = item
"""


def _flow(perdure: CommandLine, **steps: object) -> str:
    flow = {"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": next(iter(steps)), "steps": steps}
    (perdure.folder / "pay.json").write_text(json.dumps(flow, indent=1))
    (perdure.folder / "app.py").write_text(CODE)
    return "pay.json"


def _write(perdure: CommandLine, text: str, name: str = "document.yaml") -> str:
    (perdure.folder / name).write_text(text)
    (perdure.folder / "app.py").write_text(CODE)
    return name


def _retried(amount: int, delay: str) -> dict[str, object]:
    policy = {"match": {"codes": ["*"]}, "attempts": 3, "backoff": {"initial": delay}}
    return {
        "action": "Call",
        "middleware": [{"provider": RETRY, "onEntry": {"with": {"policies": [policy]}}}],
        "call": {"provider": CALL.format("charge"), "with": {"amount": amount}},
        "next": "end",
    }


def _latest(perdure: CommandLine) -> str:
    run: str = perdure.here("ps", "--json").json[0]["id"]
    return run


def test_a_failed_flow_names_the_cause_first_then_what_followed(perdure: CommandLine) -> None:
    gather = {
        "action": "Gather",
        "over": "{{ [1, 2, 5] }}",
        "call": {"provider": CALL.format("charge"), "with": {"amount": 1}},
        "completion": {"successes": 1, "wait": True},
        "next": "charge",
    }
    file = _flow(perdure, all=gather, charge=_retried(5, "PT0S"), end={"action": "Return"})
    told = perdure("run", file, "--load", "app.py", code=3).err
    shown = perdure("show", _latest(perdure)).out

    cause = "step 'charge', attempt 3: Provider.Call.Charge.Errors.ConnectionError: bank refused 5"
    assert told.index(cause) < told.index("Retry.Exhausted")
    assert re.search(r"error +step 'charge', attempt 3: .*bank refused 5\n +at .*app.py:11 in ask_bank\n", shown)
    assert re.search(r" +in pay, line \d+\nthen +Provider.Middleware.Retry.Exhausted", shown)
    assert re.search(r"✓ all +Gather .* 3 items: 3 done", shown)
    assert re.search(r"✗ charge +Call .* 3 attempts; bank refused 5", shown)


def test_a_flow_that_waits_for_its_next_try_says_when_and_why(perdure: CommandLine) -> None:
    file = _flow(perdure, charge=_retried(5, "PT1H"), end={"action": "Return"})
    perdure("run", file, "--load", "app.py", "--wait-timeout", "1s", code=6)
    shown = perdure("show", _latest(perdure)).out

    assert "It waits for the next try of step 'charge', due in 59 m" in shown
    assert re.search(r"error +step 'charge', attempt 1: .*bank refused 5", shown)
    assert "next try in 59 m" in shown
    assert re.search(r"↻ charge .*waits for its next try", shown)


def test_a_step_at_work_does_not_wait_for_a_timer(perdure: CommandLine) -> None:
    bound = {"provider": "mwl:provider.middleware/mwl/timeout/v1", "onEntry": {"with": {"duration": "PT60S"}}}
    call = {"provider": CALL.format("shell"), "with": {"script": "sleep 60"}}
    step = {"action": "Call", "middleware": [bound], "call": call, "next": "end"}
    live = perdure.start("run", _flow(perdure, slow=step, end={"action": "Return"}))
    run = live.run
    shown = perdure("show", run).out
    live.kill()

    assert "timer" not in shown
    assert "why       It works: step 'slow' is at work for " in shown


def test_a_story_at_a_gate_says_what_moves_it_and_that_the_decision_is_recorded(perdure: CommandLine) -> None:
    file = _write(perdure, GATE)
    perdure.here("run", file, "--wait-timeout", "1s", code=6)
    run = _latest(perdure)
    waits = perdure("show", run).out
    perdure.here("approve", run, "ok", "--by", "Ada")
    decided = perdure("show", run).out

    assert "It waits for a decision at gate 'ok', at most 11 h 59 m more; no process runs it now." in waits
    assert re.search(rf"do +perdure approve {run} ok\n +perdure resume {run}\n", waits)
    assert re.search(r"✓ build .*\n +⏸ ok .*\n +· ship .*not started", waits)
    assert "It has something to decide: gate 'ok' approved at " in decided
    assert "perdure approve" not in decided


def test_a_failed_story_names_the_step_and_its_place(perdure: CommandLine) -> None:
    perdure("run", _write(perdure, STORY), "--load", "app.py", code=3)
    shown = perdure("show", _latest(perdure)).out

    assert re.search(r"error +step 'fill', attempt \d: .*disk full\n", shown)
    assert "app.py:15 in fills" in shown
    assert "in shop, spec.steps[1]" in shown
    assert re.search(r"✓ a .*\n +✗ fill .*\n +- z .*skipped", shown)
    assert "fill: disk full" in perdure.here("ps").out


def test_a_failed_loop_is_counted_with_its_failing_item(perdure: CommandLine) -> None:
    perdure.here("run", _write(perdure, PLAYBOOK), code=3)
    shown = perdure("show", _latest(perdure)).out

    assert "step 'each', task 'one', item 2, attempt 1: ValueError: cannot do three" in shown
    assert "at <code>:3 in <module>" in shown and "in nightly, line 9" in shown
    assert re.search(r"✗ each .* 3 items: 1 failed, 2 done; cannot do three", shown)


def test_a_paused_run_says_who_paused_it_and_how_it_goes_on(perdure: CommandLine) -> None:
    run = perdure.here("run", perdure.drill({"signal": "go"}), "--detach").out.strip()
    perdure.here("pause", run, "--by", "Ada", "--reason", "lunch")
    shown = perdure("show", run).out

    assert "pause" in shown.split("why")[1].split("\n")[0] and "Ada" in shown


def test_everything_is_there_as_yaml_and_as_json(perdure: CommandLine) -> None:
    file = _flow(perdure, end={"action": "Return", "value": {"a": 1}})
    perdure.here("run", file)
    run = _latest(perdure)

    assert perdure.here("show", run, "-o", "json").json == perdure.here("show", run, "--json").json
    assert perdure.here("show", run, "-o", "yaml").out == "type: success\nvalue:\n  a: 1\n"


@pytest.mark.parametrize("columns", [80, 140])
def test_every_page_fits_the_terminal(perdure: CommandLine, columns: int) -> None:
    perdure.here("run", _write(perdure, PLAYBOOK), code=3)
    run = _latest(perdure)
    for words in (["ps"], ["show", run], ["history", run], ["history", run, "--raw"]):
        code, seen = in_terminal(perdure.folder, *words, "--no-color", columns=columns)
        lines = seen.splitlines()

        assert code == 0
        assert not ESCAPE.search(seen)
        assert max(map(len, lines)) <= columns, words
