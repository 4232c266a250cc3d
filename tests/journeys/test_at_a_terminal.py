"""What people do at a terminal, from end to end in real processes: a release with a gate, and one failure of many.

A nightly Playbook with retries, schedule, backfill and alert: `tests/cli/test_schedules.py`.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commandline import CommandLine

EXAMPLES = Path(__file__).parents[2] / "examples"
CALL = "mwl:provider.call/perdure/{}/v1"

SHOP = """
from pathlib import Path

import perdure


@perdure.provider("journey-reserve")
def reserve(order):
    with Path("reserved.txt").open("a") as marks:
        marks.write(f"{order}\\n")
    return order


@perdure.provider("journey-charge")
def charge(order):
    if order == 37 and not Path("bank-is-up").exists():
        raise ConnectionError("the bank does not answer")
    return f"paid {order}"
"""


START = """
import asyncio

import perdure
import shop


async def main():
    async with perdure.Engine("sqlite:///perdure.db") as engine:
        runs = [
            await engine.start("order.json", number, token=f"order-{number}", labels={"order": str(number)})
            for number in range(100)
        ]
        await asyncio.gather(*(engine.wait(run.id) for run in runs))


asyncio.run(main())
"""


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[CommandLine]:
    commands = CommandLine(tmp_path, timeout=120.0)
    yield commands
    commands.end_all()


def test_a_release_is_killed_at_its_gate_approved_elsewhere_and_resumed(commands: CommandLine) -> None:
    release = str(EXAMPLES / "stories" / "release.yaml")
    terminal = commands.start("run", release, "--input", '{"env": "prod"}')
    run = terminal.run
    text = terminal.hear("gate 'approve'")
    terminal.kill()
    terminal.end()
    waits = commands.here("show", run).out
    approval = re.search(rf"perdure (approve {run} approve)$", text.strip())
    assert approval is not None, text
    done = commands(*approval[1].split(), "--by", "Ada", "--message", "looks good")
    decided = commands.here("show", run).out
    result = commands("resume", run).out

    why = r"why +It waits for a decision at gate 'approve', at most 11 h \d+ m more; no process runs it now\."
    assert re.search(why, waits)
    assert f"do        perdure approve {run} approve\n          perdure resume {run}\n" in waits
    assert re.search(r"✓ verify .*\n +✓   unit .*\n +✓   lint .*\n +⏸ approve .*\n +· ship .*not started", waits)
    assert f"Resume it with: perdure resume {run}" in done.err
    assert "gate 'approve' approved" in decided and f"do        perdure resume {run}\n" in decided
    assert json.loads(result) == {"tag": "prod-1", "approved": "Approved"}
    events = commands.here("history", run, "--json").json
    tried = Counter(event["step"] for event in events if event["event_type"] == "execution.ended")
    assert set(tried.values()) == {1}, "nothing was done twice"


def test_one_failure_of_a_hundred_is_found_understood_and_redriven(commands: CommandLine) -> None:
    folder = commands.folder
    (folder / "shop.py").write_text(SHOP)
    steps = {
        "reserve": _call("reserve", "charge"),
        "charge": _call("charge", "done"),
        "done": {"action": "Return"},
    }
    flow = {"$schema": "https://mwl.dev/v0.1/flow/schema.json", "entrypoint": "reserve", "steps": steps}
    (folder / "order.json").write_text(json.dumps(flow, indent=2))
    (folder / "start.py").write_text(START)
    subprocess.run([sys.executable, "start.py"], cwd=folder, check=True, timeout=120)

    (run,) = commands.here("ps", "--status", "failed", "--json").json
    listed = commands.here("ps", "--status", "failed").out
    shown = commands.here("show", run["id"]).out
    dry = commands.here("redrive", "--status", "failed", "--dry-run")
    (folder / "bank-is-up").touch()
    redriven = commands("redrive", "--status", "failed", "--yes")
    resumed = commands("resume", run["id"], "--load", "shop.py")
    finished = commands.here("show", run["id"]).out

    assert run["labels"] == {"order": "37"} and "the bank does not answer" in listed
    assert "step 'charge', attempt 1: Provider.Call.JourneyCharge.Errors.ConnectionError" in shown
    assert "at shop.py:17 in charge\n" in shown and "in order, line 15" in shown
    assert len(commands.here("ps", "--all", "--json").json) == 100
    assert dry.out.split() == [run["id"]] and "1 run would be reopened" in dry.err
    assert "1 run: reopened" in redriven.err and resumed.out == "paid 37\n"
    assert re.search(r"✓ reserve .*\n +✓ charge .*2 times, 1 failed\n +✓ done ", finished)
    assert commands.here("ps", "--status", "failed", "--json").json == []
    reserved = Counter((folder / "reserved.txt").read_text().split())
    assert len(reserved) == 100 and set(reserved.values()) == {1}, "the step before the failure was not repeated"


def _call(name: str, following: str) -> dict[str, object]:
    call = {"provider": CALL.format(f"journey-{name}"), "with": {"order": "{{ call.input }}"}}
    return {"action": "Call", "call": call, "next": following}
