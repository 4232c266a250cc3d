"""Creation of step-runs and threads."""

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.body import Body
from perdure.dialects.playbook.state.names import CLAIM
from perdure.dialects.playbook.state.values import Value
from perdure.kernel.json_values.values import Instant


def open_run(body: Body, number: int, token: int, step: str, args: Value, at: Instant, fork: int) -> b.StepRun:
    """From a token that has been removed."""
    seq = body.seq
    run = b.StepRun(step, token, args, at, token == body.finalizing)
    run.seq = seq
    run.fork = fork
    body.runs[number] = run
    body.runs_made = number
    tally = body.tallies.get(step)
    if tally is None:
        tally = body.tallies[step] = b.StepTally()
    tally.runs += 1
    if body.begun_since is not None:
        body.begun_since[step] = None
    body.order.append((step, "started", seq))
    return run


def open_thread(body: Body, number: int, run: b.StepRun, index: int) -> None:
    made = body.threads_made = body.threads_made + 1
    thread = run.stopped_threads.pop(index, None) if run.stopped_threads else None
    body.threads[made] = b.PipelineThread(number, index) if thread is None else _reopened(thread)
    if index < b.ALONE:
        body.threads[made].position = CLAIM
    run.threads[made] = None
    body.ready_threads[made] = None


def _reopened(thread: b.PipelineThread) -> b.PipelineThread:
    """Where it failed, with all attempts of that task; or where it was stopped, in the same attempt."""
    if thread.phase is b.ThreadPhase.FAILED:
        thread.attempt = 1
    if thread.phase is not b.ThreadPhase.JUDGING:
        thread.phase, thread.outcome = b.ThreadPhase.READY, None
    thread.number = thread.timer = thread.charges = 0
    thread.storing = None
    return thread
