"""Cursor loops (PBK-114): rows are claimed frame by frame, and worked on as the iterations of a loop."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perdure.dialects.playbook import Playbook
from perdure.kernel import events as e
from perdure.kernel import inputs as i
from perdure.kernel.codec import decode_turns
from perdure.kernel.graphs.run_trace import trace_turns
from perdure.kernel.json_values.values import SECOND
from perdure.kernel.outcomes import Failed
from perdure.testing import World as EngineWorld
from perdure.views.runs.run_provenance import explain_value
from tests.dialects.playbook.test_history import told
from tests.dialects.playbook.world import EXTENSION, Answer, World, playbook


def looped(frame: str = "max_rows: 2", spec: str = "", rest: str = "", step: str = "") -> str:
    return playbook(f"""
{EXTENSION}
workflow:
  - step: drain
    {step}
    loop:
      cursor:
        kind: postgres
        dsn: postgresql://queue
        claim: "claim {{{{ __frame_max_rows }}}} for {{{{ __frame_key }}}}"
        {rest}
      iterator: job
      spec: {{mode: cursor, frame: {{{frame}}}{spec}}}
    tool: {{kind: work, name: one, job: "{{{{ iter.job }}}}", at: "{{{{ iter.index }}}}"}}
    next:
      arcs:
        - step: after
          when: "{{{{ event.name == 'loop.done' and event.result.stats == event.payload.stats }}}}"
          args: {{stats: "{{{{ event.payload.stats }}}}", name: "{{{{ event.name }}}}"}}
  - {{step: after, tool: {{kind: noop, result: "{{{{ args }}}}"}}}}
""")


class Queue:
    """A table of so many rows; a claim under a key that is known returns the same rows."""

    def __init__(self, rows: int, *, limit: int | None = None) -> None:
        self.rows = [{"id": number} for number in range(rows)]
        self.limit = limit
        self.claims: dict[str, list[Any]] = {}
        self.done: list[Any] = []
        self.most = self.running = 0
        self.answers: list[Any] = []  # given before any row

    def claim(self, arguments: dict[str, Any]) -> Any:
        _, size, _, key = arguments["command"].split()
        if self.answers:
            return self.answers.pop(0)
        if key not in self.claims:
            count = int(size) if self.limit is None else self.limit
            self.claims[key], self.rows = self.rows[:count], self.rows[count:]
        rows = self.claims[key]
        return Answer({"rows": rows, "row_count": len(rows), "columns": ["id"]}, after=SECOND // 10)

    def work(self, arguments: dict[str, Any]) -> Any:
        self.done.append(arguments["job"])
        return Answer(after=SECOND)


def start(text: str, queue: Queue, work: Any = None, **options: Any) -> World:
    tools = {"postgres": queue.claim, "work": work or queue.work}
    return World(text, work=tools, crash=True, **options)


def test_each_row_is_an_iteration_until_a_claim_returns_none() -> None:
    queue = Queue(5)

    world = start(looped(), queue)

    assert world.run()["result"] == {"stats": {"total": 5, "success": 5, "failed": 0}, "name": "loop.done"}
    assert queue.done == [{"id": number} for number in range(5)]
    frames = [event["payload"] for event in told(world) if event["event_type"] == "loop.frame.claimed"]
    assert [(frame["frame"], frame["rows"], frame["first_index"]) for frame in frames] == [
        *((1, 2, 0), (2, 2, 2), (3, 1, 4), (4, 0, 5)),
    ]


def test_an_empty_cursor_is_an_empty_loop() -> None:
    assert start(looped(), Queue(0)).run()["result"]["stats"] == {"total": 0, "success": 0, "failed": 0}


def test_a_frame_may_be_one_iteration() -> None:
    queue = Queue(3)

    view = start(looped("max_rows: 2, process: frame"), queue).run()

    assert queue.done == [[{"id": 0}, {"id": 1}], [{"id": 2}]]
    assert view["result"]["stats"]["total"] == 2


def test_so_many_rows_are_worked_on_at_once_and_not_more_are_claimed() -> None:
    """The next claim waits for a free place, and rows are claimed while others run."""
    queue = Queue(20)
    world = start(looped("max_rows: 2", ", max_in_flight: 3"), queue)

    world.pass_time(0.9)

    assert len(world.execution.state.tasks) == 3 and len(queue.rows) == 16
    assert world.show()["current"][0]["loop"] == {
        "mode": "cursor",
        "total": 4,
        "pending": 1,
        "running": 3,
        "succeeded": 0,
        "failed": 0,
        "retries": 0,
    }
    assert world.run()["result"]["stats"]["success"] == 20


def test_a_long_cursor_keeps_only_the_rows_it_works_on() -> None:
    """Neither the state nor any event holds more than some frames."""
    queue = Queue(2_000)
    world = World(looped("max_rows: 50", ", max_in_flight: 4"), work={"postgres": queue.claim, "work": queue.work})
    sizes = []
    while not world.is_over:
        world.pass_time(60)
        sizes.append(len(world.dialect.freeze(world.execution.body)))

    assert world.show()["result"]["stats"]["success"] == 2_000
    assert max(sizes) < 20_000
    assert max(map(len, world.rows)) < 20_000


def test_a_row_that_fails_stops_the_loop_and_a_redrive_goes_on_with_what_was_claimed() -> None:
    """PBK-109: no further row starts and no further frame is claimed."""
    queue, broken = Queue(6), {1}

    def work(arguments: dict[str, Any]) -> Any:
        queue.done.append(arguments["job"]["id"])
        return Failed("server_error", "no") if arguments["job"]["id"] in broken else 1

    world = start(looped("max_rows: 4"), queue, work)
    view = world.run()
    assert view["failures"][0]["error"]["message"] == "no" and queue.done == [0, 1]
    broken.clear()

    world.tell(i.Reopen())

    assert world.run()["result"]["stats"] == {"total": 6, "success": 6, "failed": 0}
    assert queue.done == [0, 1, 1, 2, 3, 4, 5]


def test_with_best_effort_all_rows_are_worked_on() -> None:
    queue = Queue(4)

    view = start(
        looped(step="spec: {policy: {failure: {mode: best_effort}}}"),
        queue,
        lambda arguments: Failed("server_error", "no") if arguments["at"] == 1 else 1,
    ).run()

    assert view["result"]["stats"] == {"total": 4, "success": 3, "failed": 1}


def test_a_claim_that_may_succeed_later_is_tried_again() -> None:
    queue = Queue(1)
    queue.answers = [Failed("Provider.Call.Postgres.Deadlock", "deadlock", True)] * 2

    assert start(looped(), queue).run()["result"]["stats"]["success"] == 1


@pytest.mark.parametrize(
    ("rows", "limit", "rest", "answers", "code"),
    [
        (9, None, "options: {max_iterations: 4}", [], "CURSOR_ITERATIONS"),
        (9, 9, "", [], "FRAME_TOO_LARGE"),
        (9, None, "", [Failed("Provider.Call.Postgres.BadStatement", "syntax", False)], "BAD_STATEMENT"),
    ],
    ids=["a-cursor-without-an-end", "a-claim-without-a-limit", "a-wrong-statement"],
)
def test_a_cursor_that_cannot_go_on_fails_its_step(
    rows: int, limit: int | None, rest: str, answers: list[Any], code: str
) -> None:
    queue = Queue(rows, limit=limit)
    queue.answers = answers

    view = start(looped(rest=rest), queue).run()

    assert view["failures"][0]["error"]["code"] == code
    assert len(queue.done) == (4 if code == "CURSOR_ITERATIONS" else 0)


def test_a_lost_claim_is_made_again_under_the_same_key() -> None:
    """A process dies between the claim and the record of it: a statement that uses the key loses nothing."""
    queue = Queue(3)
    world = start(looped(), queue)
    world.pass_time(0.05)
    (claim,) = world.execution.state.tasks
    world.tell(i.TaskLost(claim, 1, "the process is gone"))

    view = world.run()

    assert view["result"]["stats"]["success"] == 3
    assert Counter(row["id"] for row in queue.done) == {0: 1, 1: 1, 2: 1}
    assert [len(rows) for rows in queue.claims.values()] == [2, 1, 0]


def test_a_cancel_ends_the_claim_and_the_rows_that_are_worked_on() -> None:
    world = start(looped("max_rows: 2", ", max_in_flight: 5"), Queue(9))
    world.pass_time(0.15)
    open_tasks = set(world.execution.state.tasks)

    world.tell(i.Cancel("enough"))

    assert world.show()["status"] == "cancelled" and set(world.cancelled) == open_tasks and len(open_tasks) == 3


def test_a_redrive_after_a_cancel_repeats_the_claim_that_was_open() -> None:
    queue = Queue(3)
    world = start(looped(), queue)
    world.pass_time(0.05)
    world.tell(i.Cancel("enough"))

    world.tell(i.Reopen())

    assert world.run()["result"]["stats"]["success"] == 3
    assert len(queue.claims) == 3


def test_a_step_timeout_ends_a_cursor_loop() -> None:
    view = start(looped(step="spec: {timeout: 5s}"), Queue(100)).run()

    assert view["failures"][0]["error"]["code"] == "STEP_TIMEOUT"


def test_reducers_and_patches_work_as_in_other_loops() -> None:
    text = looped("max_rows: 3", ", max_in_flight: 2, reduce: {sum: sum}").replace(
        'at: "{{ iter.index }}"',
        'spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {sum: "{{ iter.job.id }}"}}}}]}}',
    )

    assert start(text, Queue(5)).run()["ctx"] == {"sum": 10}


@pytest.mark.parametrize(
    ("loop", "message"),
    [
        ("{cursor: {kind: nats_stream, claim: x}, iterator: a, spec: {mode: cursor}}", "no cursor driver 'nats_st"),
        ("{cursor: {kind: postgres}, iterator: a, spec: {mode: cursor}}", "lacks 'claim'"),
        ("{cursor: {kind: postgres, claim: x}, iterator: a}", "needs 'mode: cursor'"),
        ("{cursor: {kind: postgres, claim: x}, in: [1], iterator: a, spec: {mode: cursor}}", "not both"),
        ("{in: [1], iterator: a, spec: {mode: cursor}}", "must be one of sequential, parallel"),
        ("{in: [1], iterator: a, spec: {frame: {max_rows: 2}}}", "belongs to a loop with 'cursor'"),
        ("{cursor: {kind: postgres, claim: x, clam: y}, iterator: a, spec: {mode: cursor}}", "has no field 'clam'"),
        ('{cursor: {kind: postgres, claim: "{{ iter.a }}"}, iterator: a, spec: {mode: cursor}}', "iter"),
        ("{cursor: {kind: postgres, claim: x}, iterator: a, spec: {mode: cursor, frame: {max_rows: 0}}}", "1 or more"),
        ("{cursor: {kind: postgres, claim: x}, iterator: a, spec: {mode: cursor, frame: {process: x}}}", "row, frame"),
        ("{cursor: {kind: postgres, claim: x}, iterator: a, spec: {mode: cursor, frame: {max_bytes: 9}}}", "no effect"),
    ],
)
def test_what_cannot_be_meant_is_said(loop: str, message: str) -> None:
    text = playbook(f"{EXTENSION}\nworkflow: [{{step: s, loop: {loop}, tool: {{kind: noop}}}}]")

    problems = Playbook(lambda _: False, tuple).parse(text.encode()).problems

    assert any(message in problem.message for problem in problems), problems


def test_a_document_has_to_ask_for_the_extension() -> None:
    """PBK-114: cursor loops are refused unless the extension is on."""
    problems = Playbook(lambda _: True, tuple).parse(looped().replace(EXTENSION, "").encode()).problems

    (problem,) = [problem for problem in problems if problem.code == "PBK-114"]
    assert problem.path == "workflow[0].loop.cursor"
    assert "features: [cursor]" in problem.hint and "compat: io" in problem.hint


def test_the_key_of_a_claim_differs_from_frame_to_frame() -> None:
    world = start(looped(), Queue(3))
    world.run()
    claims = [event for event in world.events if isinstance(event, e.TaskScheduled) and event.provider == "postgres"]

    assert [claim.path for claim in claims] == [f"drain#1[frame {number}]/claim#1" for number in (1, 2, 3)]
    assert len({claim.key for claim in claims}) == 3


async def test_a_row_is_explained_by_the_claim_that_returned_it(tmp_path: Path) -> None:
    """ANA-021: `why` leads from the input of a task to the row, and from the counts of the loop to the claims."""
    left = [{"id": 1}, {"id": 2}, {"id": 3}]

    def claim(command: str = "", dsn: str = "") -> Any:
        rows, left[:] = left[:2], left[2:]
        return {"rows": rows, "row_count": len(rows), "columns": ["id"]}

    text = looped().replace("kind: work", "kind: echo")
    async with EngineWorld(tmp_path, mocks={"postgres": claim, "echo": lambda **arguments: 1}) as world:
        run = await world.start(text.encode())
        await world.settle()
        assert world.engine is not None
        job = await explain_value(world.engine, run.id, "drain", "input.job.id")
        total = await explain_value(world.engine, run.id, "drain", "output.stats.total")

    assert (job["value"], total["value"]) == (3, 3)
    assert "what the claim of the loop returned was returned by the task of 'drain" in job["chain"][-1]["text"]
    assert total["chain"][-1]["text"].endswith("counts the rows that were claimed")


def test_a_drawing_says_that_rows_are_claimed_and_shows_iterations_only() -> None:
    world = start(looped(), Queue(3))
    world.run()
    program = world.execution.program
    turns = [turn for row in world.rows for turn in decode_turns(world.dialect, row)]

    (drain, *_) = [node for node in world.dialect.graph(program).nodes if node.label == "drain"]
    trace = trace_turns(world.dialect.tracer(program), turns)

    assert "for each job, cursor" in drain.notes
    assert Counter(visit.label for visit in trace.visits if visit.label) == {"[0]": 1, "[1]": 1, "[2]": 1}


def test_profile_io_reads_rows_by_the_name_of_the_iterator() -> None:
    """PBK-158: as newer documents of NoETL write it."""
    text = playbook("""
workload: {table: queue, size: 3}
workflow:
  - step: drain
    loop:
      cursor:
        kind: postgres
        dsn: postgresql://queue
        claim: "claim {{ __frame_max_rows | default(1) | int }} from {{ __frame_key }}/{{ table }}"
      iterator: patient
      spec: {mode: cursor, max_in_flight: "{{ size }}", frame: {max_rows: 2}}
    tool: {kind: work, input: {job: "{{ patient.id }}"}}
    next: {arcs: [{step: end, when: "{{ event.name == 'loop.done' }}"}]}
  - {step: end, tool: {kind: noop, result: "{{ drain.stats }}"}}
""")
    queue = Queue(5)

    view = start(text, queue, lambda arguments: queue.done.append(arguments["job"])).run()

    assert view["result"] == {"total": 5, "success": 5, "failed": 0} and sorted(queue.done) == [0, 1, 2, 3, 4]
    assert all(key.endswith("/queue") for key in queue.claims)
