"""Pools: which workers run the tasks of a step, and what happens when there are none (PBK-101, 197)."""

from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.playbook import Playbook
from perdure.kernel.events import TaskScheduled
from perdure.stores.pool_tasks import LeaseRequest
from perdure.testing import World as EngineWorld
from tests.cli.commandline import CommandLine
from tests.dialects.playbook.test_documents import problems_of
from tests.dialects.playbook.world import World, playbook
from tests.pools import pool_worker

TWO = """
executor: {spec: {%s}}
workflow:
  - {step: a, spec: {%s}, tool: {kind: say, value: 1}}
"""


@pytest.mark.parametrize(
    ("executor", "step", "pool"),
    [
        ("", "", ""),
        ("pool: default", "", ""),
        ("pool: local", "", ""),
        ("pool: gpu", "", "gpu"),
        ("pool: gpu", "pool: cpu", "cpu"),
        ("pool: gpu", "pool: default", ""),
        ("", "pool: gpu", "gpu"),
    ],
)
def test_a_step_s_pool_comes_before_the_executor_s(executor: str, step: str, pool: str) -> None:
    """PBK-197."""
    world = World(playbook(TWO % (executor, step)), work={"say": lambda arguments: arguments["value"]})
    world.settle()

    (scheduled,) = [event for event in world.events if isinstance(event, TaskScheduled)]
    assert scheduled.pool == pool


def test_playbooks_of_the_system_run_in_its_pool_only() -> None:
    """PBK-197."""
    text = playbook(TWO % ("pool: gpu", "pool: default")).replace("tests/test", "system/care")
    program = Playbook(lambda name: True).load(text.encode())

    assert program.steps["a"].tasks[0].pool == "system"


@pytest.mark.parametrize("spec", ["pool: 3", "queue_ttl_s: soon"])
def test_pools_have_names_and_waits_have_lengths(spec: str) -> None:
    """PBK-197 PBK-101."""
    for text in (TWO % (spec, ""), TWO % ("", spec)):
        assert len(problems_of(playbook(text.replace("say", "own")))) == 1


async def test_work_of_a_pool_is_done_by_its_workers(tmp_path: Path) -> None:
    """PBK-197: with the real store and a leasing worker."""
    text = playbook("workflow: [{step: a, spec: {pool: gpu}, tool: {kind: echo, args: {x: 1}}}]")
    async with EngineWorld(tmp_path) as world:
        assert world.engine is not None
        run = await world.engine.start(text.encode())
        worker = pool_worker(world)
        await world.settle()
        assert await worker.take() == 1
        await worker.finish()
        await world.engine.runtime.read_inbox()
        await world.settle()

        assert (await run.show())["status"] == "success"


@pytest.mark.parametrize("crash", [False, True])
async def test_a_pool_without_workers_is_waited_for_and_then_given_up(tmp_path: Path, crash: bool) -> None:
    """PBK-101."""
    text = playbook("workflow: [{step: a, spec: {pool: gpu, queue_ttl_s: 60}, tool: {kind: echo}}]")
    async with EngineWorld(tmp_path) as world:
        assert world.engine is not None
        run = await world.engine.start(text.encode())
        await world.settle()
        await world.advance(59)
        assert (await run.show())["status"] == "running"
        if crash:
            await world.crash()
            await world.boot()
        await world.advance(2)
        assert world.engine is not None
        view = await world.engine.show(run.id)

        assert view["status"] == "failed" and view["code"] == "NO_CAPABLE_WORKER"
        assert "'gpu'" in view["failures"][0]["error"]["message"]
        assert await world.engine.store.lease(LeaseRequest(["gpu"], "late", 5, world.clock.now() + 10**8)) == []


async def test_a_task_that_a_worker_has_is_not_given_up(tmp_path: Path) -> None:
    """PBK-101: the bound is for the queue, not for the work."""
    text = playbook("workflow: [{step: a, spec: {pool: gpu, queue_ttl_s: 60}, tool: {kind: echo}}]")
    async with EngineWorld(tmp_path) as world:
        assert world.engine is not None
        run = await world.engine.start(text.encode())
        await world.settle()
        (lease,) = await world.engine.store.lease(LeaseRequest(["gpu"], "w1", 5, world.clock.now() + 10**10))
        await world.advance(600)

        assert lease.task and (await run.show())["status"] == "running"


def test_a_pool_that_nobody_works_for_is_visible(tmp_path: Path) -> None:
    """PBK-101."""
    perdure = CommandLine(tmp_path)
    (tmp_path / "book.yaml").write_text(
        playbook("executor: {spec: {pool: gpu}}\nworkflow: [{step: a, tool: {kind: echo}}]")
    )

    run = perdure.here("run", "book.yaml", "--wait-timeout", "300ms", "--json", code=6).json["execution_id"]

    assert "no worker of pool gpu offers echo; none was seen in the last day" in perdure.here("show", run).out
    assert "gpu" in perdure.here("status", run, "--json").json["waits_for"][0]


MEETING = """
import threading
import perdure

at_work, most, lock, meeting = 0, 0, threading.Lock(), threading.Barrier(%d)


@perdure.provider("meet")
def meet() -> int:
    global at_work, most
    with lock:
        at_work += 1
        most = max(most, at_work)
    meeting.wait(20)  # nobody leaves before so many are here
    with lock:
        at_work -= 1
    return most
"""

WIDE = """
workflow:
  - step: each
    loop: {in: "{{ range(16) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 16}}
    tool: {kind: meet}
  - step: unused
    tool: {kind: noop}
"""


@pytest.mark.parametrize("places", [None, 2])
def test_a_worker_does_eight_at_a_time_unless_told_otherwise(tmp_path: Path, places: int | None) -> None:
    """PBK-197: pipelines and iterations at work in one worker; the number is a default."""
    env: dict[str, Any] = {} if places is None else {"PERDURE_PLAYBOOK_STEP_RUNS": str(places)}
    perdure = CommandLine(tmp_path)
    (tmp_path / "meeting.py").write_text(MEETING % (places or 8))
    (tmp_path / "book.yaml").write_text(playbook(WIDE))

    output = perdure("run", "book.yaml", "--load", "meeting.py", "--json", **env).json

    assert output["status"] == "success" and max(output["result"]["results"]) == (places or 8)


@pytest.mark.parametrize("places", ["0", "many", "-1"])
def test_a_number_of_places_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: str
) -> None:
    """PBK-197."""
    monkeypatch.setenv("PERDURE_PLAYBOOK_STEP_RUNS", places)
    perdure = CommandLine(tmp_path)
    (tmp_path / "book.yaml").write_text(playbook("workflow: [{step: a, tool: {kind: noop}}]"))

    assert "PERDURE_PLAYBOOK_STEP_RUNS" in perdure.here("run", "book.yaml", code=1).err
    assert perdure.here("ps", "--json").json == []


def test_a_pipeline_that_waits_has_nothing_in_hand(tmp_path: Path) -> None:
    """PBK-197 PBK-203: with one place, a retry's wait and a child's run leave it to others."""
    perdure = CommandLine(tmp_path)
    (tmp_path / "child.yaml").write_text(
        playbook("workflow: [{step: a, tool: {kind: python, code: 'result = 7'}}]").replace("tests/test", "tests/child")
    )
    (tmp_path / "book.yaml").write_text(
        playbook("""
workflow:
  - step: fork
    next:
      spec: {mode: inclusive}
      arcs: [{step: waits}, {step: calls}, {step: works}]
  - step: waits
    tool:
      kind: python
      code: "result = 1"
      spec:
        policy:
          rules:
            - {when: "{{ _attempt < 2 }}", then: {do: retry, attempts: 2, delay: 1}}
            - {else: {then: {do: continue}}}
  - step: calls
    tool: {kind: playbook, path: tests/child}
  - step: works
    tool: {kind: python, code: "result = 1"}
""")
    )
    perdure("apply", "-f", "child.yaml")

    output = perdure("run", "book.yaml", "--json", PERDURE_PLAYBOOK_STEP_RUNS="1").json

    ends = [step for step, what, _ in output["order"] if what == "ended"]
    assert output["status"] == "success" and ends.index("works") < ends.index("waits") > ends.index("calls")


async def test_a_tool_is_given_the_key_that_its_fields_read(tmp_path: Path) -> None:
    """PBK-195: by the real engine, also after a crash."""
    text = playbook("""
workflow:
  - step: a
    loop: {in: [x], iterator: n}
    tool: {kind: echo, args: {key: "{{ _idempotency_key }}"}}
""")
    async with EngineWorld(tmp_path, held={"echo"}) as world:
        assert world.engine is not None
        run = await world.engine.start(text.encode())
        await world.settle()
        await world.crash()
        await world.boot()

        assert [item.delivery for item in world.hands.performed] == [1, 2]
        assert {item.idempotency_key for item in world.hands.performed} == {f"{run.id}/r1/0/1"}
        assert f'"{run.id}/r1/0/1"'.encode() in world.hands.performed[0].arguments
