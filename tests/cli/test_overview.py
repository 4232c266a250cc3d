"""`show` on one screen, in the three languages: why a run waits, its steps, its last error and where that happened."""

import json
import re

import pytest
import yaml
from tests.cli.commandline import CommandLine, in_terminal, in_terminal_here
from tests.cli.test_terminal import ESCAPE

RETRY = "mwl:provider.middleware/mwl/retry/v1"
CALL = "mwl:provider.call/perdure/{}/v1"

CODE = """
import perdure

@perdure.provider("charge")
def charge(amount=1):
    print("trying", amount)
    if amount > 3:
        ask_bank(amount)
    return amount

def ask_bank(amount):
    raise ConnectionError(f"bank refused {amount}")

@perdure.engram("fills")
def fills(inputs, context):
    print("trying")
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
    errors = perdure("run", file, "--load", "app.py", code=3).err
    shown = perdure("show", _latest(perdure)).out

    cause = "step 'charge', attempt 3: Provider.Call.Charge.Errors.ConnectionError: bank refused 5"
    assert errors.index(cause) < errors.index("Retry.Exhausted")
    assert re.search(r"error +step 'charge', attempt 3: .*bank refused 5\n +at .*app.py:12 in ask_bank\n", shown)
    assert re.search(r" +in pay, line \d+\nthen +Provider.Middleware.Retry.Exhausted", shown)
    assert re.search(r"✓ all +Gather .* 3 items: 3 done", shown)
    assert re.search(r"✗ charge +Call .* 3 attempts; bank refused 5", shown)


def test_a_flow_that_waits_for_its_next_try_says_when_and_why(perdure: CommandLine) -> None:
    file = _flow(perdure, charge=_retried(5, "PT1H"), end={"action": "Return"})
    perdure("run", file, "--load", "app.py", "--wait-timeout", "1s", code=6)
    shown = perdure("show", _latest(perdure)).out

    assert "Step 'charge' tries again in 59 m" in shown and "(attempt 2 of 3)" in shown
    assert re.search(r"error +step 'charge', attempt 1: .*bank refused 5", shown)
    assert "next try in 59 m" in shown
    assert re.search(r"↻ charge .*tries again in 59 m", shown)


def test_a_step_at_work_does_not_wait_for_a_timer(perdure: CommandLine) -> None:
    bound = {"provider": "mwl:provider.middleware/mwl/timeout/v1", "onEntry": {"with": {"duration": "PT60S"}}}
    call = {"provider": CALL.format("shell"), "with": {"script": "sleep 60"}}
    step = {"action": "Call", "middleware": [bound], "call": call, "next": "end"}
    live = perdure.start("run", _flow(perdure, slow=step, end={"action": "Return"}))
    run = live.run
    shown = perdure("show", run).out
    live.kill()
    live.end()
    killed, why = perdure.here("show", run).out, perdure.here("why", run).out

    assert "timer" not in shown
    assert "why       It works: step 'slow' is at work for " in shown
    assert "step 'slow' was interrupted" in why
    assert re.search(r"▶ slow .* at work$", shown.rstrip()) and re.search(r"▶ slow .* interrupted$", killed.rstrip())


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
    assert "app.py:17 in fills" in shown
    assert "in shop, line 8" in shown
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("language", ["flow", "story", "playbook"])
def test_every_page_fits_the_terminal_and_keeps_what_matters(
    perdure: CommandLine, monkeypatch: pytest.MonkeyPatch, language: str, columns: int
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    perdure.here("run", _write(perdure, GATE.replace("timeout: 12h, onTimeout: fail", "")), "--detach")
    assert "has work to do" in perdure.here("ps").out
    perdure.here("resume")
    file, code, cause, line = _failing(perdure, language)
    ended, seen = in_terminal(perdure.folder, "run", file, "--load", "app.py", columns=columns)
    run = _latest(perdure)
    last = ESCAPE.sub("", seen).split("✗ step")[1]
    pages = {
        page: in_terminal_here(perdure.folder, page, *more, columns=columns)
        for page, more in {
            "ps": ["--all"],
            "top": ["--once"],
            "show": [run],
            "history": [run],
            "timeline": [run],
            "logs": [run],
        }.items()
    }
    plain = {page: ESCAPE.sub("", text) for page, (_, text) in pages.items()}

    assert ended == 3 and cause in last and line in last
    assert f"hint: perdure show {run} (or logs, history, timeline)" in last
    for page, (exit_code, _) in pages.items():
        assert exit_code == 0, page
        assert max(map(len, plain[page].splitlines())) <= columns, page
    assert all("\x1b[31m" in pages[page][1] for page in ("ps", "show", "timeline"))
    assert "waiting" in plain["ps"] and (cause in plain["ps"]) and "release" in plain["ps"]
    assert "1 failed" in plain["top"] and "gate 'ok'" in plain["top"]
    assert code in " ".join(plain["show"].split()) and line in plain["show"]
    assert cause in plain["history"] and ("trying" in plain["logs"] or "item 3" in plain["logs"])
    assert re.search(r"(charge|fill|each).* failed .*▒", plain["timeline"])


def _failing(perdure: CommandLine, language: str) -> tuple[str, str, str, str]:
    """A document that fails: its file, the failure's code, its cause, and the line of its step."""
    if language == "flow":
        call = {"provider": CALL.format("charge"), "with": {"amount": 5}}
        file = _flow(perdure, charge={"action": "Call", "call": call, "next": "end"}, end={"action": "Return"})
        return file, "Provider.Call.Charge.Errors.ConnectionError", "bank refused 5", "in pay, line 5"
    if language == "story":
        return _write(perdure, STORY), "Provider.Call.Engram.Errors.ValueError", "disk full", "in shop, line 8"
    return _write(perdure, PLAYBOOK), "ValueError", "cannot do three", "in nightly, line 9"


def test_a_failure_in_a_called_run_is_the_failure_of_its_callers(perdure: CommandLine) -> None:
    """Playbook ─▶ Flow ─▶ Story: the first cause and the lines that lead to it, not the last symptom."""
    call = {"action": "Call", "call": {"provider": CALL.format("run"), "with": {"path": "shop"}}, "next": "e"}
    _flow(perdure, go=call, e={"action": "Return"})
    story = _write(perdure, STORY)
    (perdure.folder / "top.yaml").write_text(
        "apiVersion: noetl.io/v10\nkind: Playbook\nmetadata: {name: top, path: top}\n"
        "workflow:\n  - step: first\n    tool: {kind: playbook, path: pay}\n"
    )
    done = perdure("run", "top.yaml", "--apply", "pay.json", "--apply", story, "--load", "app.py", code=3)
    (run,) = [row["id"] for row in perdure.here("ps", "--json").json if row["parent"] is None]
    inner = f"{run}.1.1"
    cause = "step 'first' › pay: step 'go' › shop: step 'fill', attempt 1: "
    events = perdure.here("history", run, "--json").json
    started = [event["payload"] for event in events if event["event_type"] == "task.attempt.started"]

    assert cause in done.err and f"in shop, line 8 (run {inner})" in done.err
    assert cause in perdure.here("show", run).out
    assert started == [{"attempt": 1, "child_execution_id": f"{run}.1"}]
    assert f"in {inner}" not in perdure.here("show", inner).out


def test_a_document_without_lines_is_named_by_its_path(perdure: CommandLine) -> None:
    """As a program writes it: all of it is on one line."""
    _write(perdure, json.dumps(yaml.safe_load(STORY)))
    perdure.here("apply", "-f", "document.yaml")
    done = perdure("run", "shop", "--load", "app.py", code=3)

    assert "in shop, spec.steps[1]" in done.err


def test_a_story_of_the_catalog_fails_at_a_line_of_the_text_that_was_applied(perdure: CommandLine) -> None:
    """Also below a Story that calls it. Lines that move change no generation."""
    outer = STORY.replace("name: shop", "name: outer").replace(
        "ref: fills", "type: executeStory, with: {storyRef: {name: shop}}"
    )
    file = _write(perdure, f"# Two Stories.{STORY}---{outer}")
    perdure.here("apply", "-f", file)
    below = perdure("run", "outer", "--load", "app.py", code=3).err
    _write(perdure, f"# They moved.\n\n\n{STORY}---{outer}")
    again = perdure.here("apply", "-f", file).out
    run = perdure.here("trigger", "shop", "--token", "t").out.split()[-1]
    moved = perdure("resume", run, "--load", "app.py", code=3).err
    shown = perdure.here("get", "story", "shop", "-o", "json").json

    assert "in shop, line 8 (run " in below
    assert "story.bubustack.io/shop configured" in again and shown["metadata"]["generation"] == 1
    assert "in shop, line 11" in moved
