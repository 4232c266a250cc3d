"""Creation of step-runs and threads."""

from perdure.dialects.playbook.state import body as b
from perdure.dialects.playbook.state.body import Body
from perdure.dialects.playbook.state.values import Value
from perdure.kernel.values import Instant


def open_run(body: Body, number: int, token: int, step: str, args: Value, at: Instant, fork: int) -> b.StepRun:
    """From a token that has been removed."""
    run = b.StepRun(step, token, args, at, token == body.finalizing)
    run.seq = body.seq
    run.fork = fork
    body.runs[number] = run
    body.runs_made = number
    tally = body.tallies.get(step)
    if tally is None:
        tally = body.tallies[step] = b.StepTally()
    tally.runs += 1
    body.order.append((step, "started", body.seq))
    return run


def open_thread(body: Body, number: int, run: b.StepRun, index: int) -> None:
    body.threads_made += 1
    body.threads[body.threads_made] = b.PipelineThread(number, index)
    run.threads[body.threads_made] = None
    body.ready_threads[body.threads_made] = None
