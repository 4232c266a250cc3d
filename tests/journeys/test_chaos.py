"""Many runs of every kind, a process that is killed again and again at no particular moment: all end as they should."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from perdure.engine.clock import SystemClock
from perdure.stores.protocol import RunFilter
from perdure.stores.sqlite.store import SqliteStore
from perdure.wiring import Engine

RUNNER = """
import asyncio, random, sys, perdure
from perdure.testing.drill import Drill
from perdure.wiring import Engine, add_language

add_language(Drill)

@perdure.provider("work")
def work(input, context):
    return {"key": context.idempotency_key}

@perdure.provider("flaky")
def flaky(context):
    if context.attempt < 3:
        raise OSError("not yet")
    return "at last"

@perdure.provider("pay")
def pay(context):
    return context.effect_once("charge", lambda: open(sys.argv[2], "a").write(context.idempotency_key + "\\n"))

KID = {"drill": 1, "name": "kid", "steps": [{"call": "work"}, {"sleep": "5ms"}, {"return": "$input"}]}
KINDS = [
    [{"repeat": 8, "do": [{"call": "work", "input": 1}]}, {"return": "chain"}],
    [{"each": 12, "do": [{"call": "work"}], "limit": 3}, {"return": "fan"}],
    [{"call": "flaky", "retry": {"attempts": 3, "delay": "5ms"}}, {"return": "retry"}],
    [{"child": KID, "input": "kid", "save": "x"}, {"child": KID, "input": "again", "save": "y"}, {"return": "family"}],
    [{"each": 4, "do": [{"permit": "door", "limit": 2, "do": [{"sleep": "3ms"}, {"call": "work"}]}]},
     {"return": "door"}],
    [{"call": "pay"}, {"sleep": "10ms"}, {"return": "paid"}],
    [{"spin": 2500}, {"call": "work"}, {"return": "spun"}],
    [{"signal": "go", "save": "x"}, {"return": "$x"}],
]

async def main():
    async with Engine(f"sqlite:///{sys.argv[1]}") as engine:
        await engine.resume()
        print("up", flush=True)
        handles = []
        for n in range(48):
            document = {"drill": 1, "name": "chaos", "steps": KINDS[n % len(KINDS)]}
            handle = await engine.start(document, token=str(n))
            if n % len(KINDS) == 7:
                try:
                    await handle.signal("go", "heard", key="once")
                except perdure.PerdureError as error:
                    assert "already" in str(error), error
            handles.append(handle)
        results = await asyncio.gather(*[handle.result() for handle in handles])
        print("done", sorted(set(results)), flush=True)

asyncio.run(main())
"""


def test_a_process_that_is_killed_again_and_again_gets_everything_done(tmp_path: Path) -> None:
    """Promises 2 to 4 with real processes; each kill at a moment drawn from a printed seed."""
    seed = int(os.environ.get("PERDURE_CHAOS_SEED", "7"))
    kills = int(os.environ.get("PERDURE_CHAOS_KILLS", "6"))
    chance = random.Random(seed)
    script, database, payments = tmp_path / "runner.py", tmp_path / "runs.db", tmp_path / "payments"
    script.write_text(RUNNER)
    command = [sys.executable, str(script), str(database), str(payments)]
    for _ in range(kills):
        victim = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert victim.stdout is not None
        victim.stdout.readline()
        time.sleep(chance.uniform(0, 0.12))
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        victim.stdout.close()

    last = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert last.returncode == 0, f"seed {seed}: {last.stderr}"
    words = ["chain", "door", "fan", "family", "heard", "paid", "retry", "spun"]
    assert f"done {sorted(words)}" in last.stdout, f"seed {seed}"
    asyncio.run(_check(database, payments, seed))


async def _check(database: Path, payments: Path, seed: int) -> None:
    engine = Engine(SqliteStore(database, SystemClock().now))
    rows = await engine.search(RunFilter())
    assert {row.status.value for row in rows} == {"succeeded"}, f"seed {seed}"
    assert len(rows) == 48 + 12, f"seed {seed}: every child was born once"
    for row in rows:
        history = await engine.history(row.id)
        ended = [event["task"] for event in history if event["event"] == "TaskEnded"]
        assert len(ended) == len(set(ended)), f"seed {seed}: a task of {row.id} ended twice"
        assert [event["event"] for event in history].count("RunEnded") == 1
        completed = [event["key"] for event in history if event["event"] == "EffectCompleted"]
        assert len(completed) == len(set(completed))
    store = engine.store
    assert await store.inbox(range(1, 100), 1000) == [], f"seed {seed}: a message was left over"
    await store.close()
