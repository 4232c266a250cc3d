"""`why`: the chain of recorded events from how a run stands back to its first cause, in the three languages."""

from typing import Any

from tests.cli.commandline import CommandLine
from tests.cli.test_overview import GATE, PLAYBOOK, STORY, _flow, _latest, _retried, _write


def _events(perdure: CommandLine, run: str) -> dict[int, dict[str, Any]]:
    return {event["seq"]: event for event in perdure.here("history", run, "--json").json}


def test_a_failed_flow_leads_back_to_its_first_failure(perdure: CommandLine) -> None:
    """SRV-083 ANA-020: each link is an event of the history."""
    file = _flow(perdure, charge=_retried(5, "PT0S"), end={"action": "Return"})
    perdure("run", file, "--load", "app.py", code=3)
    run = _latest(perdure)
    causes = perdure("why", run, "--json").json
    events = _events(perdure, run)

    texts = [link["text"] for link in causes["chain"]]
    assert texts[0].startswith("the run failed: ") and texts[-2:] == ["step 'charge' began", "the run started"]
    failures = [link for link in causes["chain"] if "failed: " in link["text"]][1:]
    assert ["attempt 3" in failures[0]["text"], "attempt 1" in failures[-1]["text"]] == [True, True]
    names = [events[link["seq"]]["event"] for link in causes["chain"]]
    assert names == ["RunEnded", "TaskEnded", "TaskEnded", "StepEntered", "RunStarted"]
    assert [link["seq"] for link in causes["chain"]] == sorted((link["seq"] for link in causes["chain"]), reverse=True)
    assert all(events[link["seq"]]["at"] == link["at"] for link in causes["chain"])


def test_a_step_of_a_story_and_one_that_was_skipped(perdure: CommandLine) -> None:
    file = _write(perdure, STORY)
    perdure("run", file, "--load", "app.py", code=3)
    run = _latest(perdure)
    failed, skipped = perdure.here("why", run, "fill", "--json").json, perdure.here("why", run, "z").out
    events = _events(perdure, run)

    cause = failed["chain"][0]
    assert "step 'fill', attempt 1 failed: " in cause["text"] and "disk full" in cause["text"]
    assert events[cause["seq"]]["step"] == "fill"
    assert "step 'z' was skipped" in skipped
    missing = perdure.here("why", run, "nothing", "--json", code=8).json
    assert missing["error"]["code"] == "STEP-NOT-FOUND"


def test_a_run_that_waits_says_for_what_and_what_would_move_it(perdure: CommandLine) -> None:
    file = _write(perdure, GATE)
    perdure("run", file, "--load", "app.py", "--wait-timeout", "3s", code=6)
    run = _latest(perdure)
    causes = perdure("why", run, "--json").json

    assert causes["chain"][0]["text"].startswith("It waits for ")
    assert any(link["text"].startswith("step 'ok' waits") for link in causes["chain"])
    assert any(command.startswith("perdure approve ") for command in causes["commands"])
    for step in ("ok", "ship"):  # the same of the step that waits, and of one behind it
        answer = perdure.here("why", run, step, "--json").json
        assert any(link["text"].startswith("step 'ok' waits") for link in answer["chain"]), step
        assert answer["commands"] == causes["commands"]


def test_what_a_match_has_passed_by_is_explained_by_the_case_that_held(perdure: CommandLine) -> None:
    """ANA-020: the default, and cases behind the one that held."""
    ways = {name: {"action": "Return"} for name in ("low", "high", "rest")}
    cases = [
        {"when": f"{{{{ step.input > {limit} }}}}", "next": name} for limit, name in (("9.0", "high"), ("1.0", "low"))
    ]
    file = _flow(perdure, m={"action": "Match", "cases": cases, "default": {"next": "rest"}}, **ways)
    perdure("run", file, "--load", "app.py", "--input", "10")
    run = _latest(perdure)

    for step in ("low", "rest"):
        texts = [link["text"] for link in perdure.here("why", run, step, "--json").json["chain"]]
        assert texts[0] == f"step {step!r} was not reached" and "led to 'high' instead" in texts[1]
        assert "{{ step.input > 9.0 }} = true, which read step.input (10.0)" in texts[1]


def test_an_item_of_a_loop_of_a_playbook_is_named(perdure: CommandLine) -> None:
    file = _write(perdure, PLAYBOOK)
    perdure("run", file, code=3)
    output = perdure("why", _latest(perdure)).out

    assert "item 2" in output and "cannot do three" in output and output.rstrip().endswith("the run started")
