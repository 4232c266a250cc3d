"""A process may end at any moment; its runs go on in the next one."""

import signal

import pytest
from tests.cli.commandline import CommandLine, Running


def _asleep(perdure: CommandLine) -> tuple[Running, str]:
    """A live `run` in the middle of a sleep, after a step with an effect."""
    effect = {"call": "shell", "with": {"script": "echo x >> effects"}}
    file = perdure.drill(effect, {"sleep": "2500ms"}, {"return": "woken"}, name="sleeper")
    live = perdure.start("run", file)
    run = live.run
    live.hear("waits for a timer")
    return live, run


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_process_and_leaves_the_run_durable(
    perdure: CommandLine, number: signal.Signals, code: int
) -> None:
    live, run = _asleep(perdure)
    live.send(number)
    done = live.end()

    assert done.code == code
    assert done.out == ""
    assert f"perdure resume {run}" in done.err
    assert "Traceback" not in done.err
    assert perdure.row(run)["live"] is False
    assert perdure("resume", run).out == "woken\n"
    assert (perdure.folder / "effects").read_text() == "x\n"


def test_ctrl_c_does_not_wait_for_a_task_that_blocks(perdure: CommandLine) -> None:
    call = {"call": "python", "with": {"function": "time:sleep", "args": [60]}}
    live = perdure.start("run", perdure.drill(call))
    run = live.run
    live.send(signal.SIGINT)

    assert live.end().code == 130
    assert perdure.row(run)["status"] == "running"


def test_a_killed_process_leaves_an_interrupted_run_that_resume_finishes(perdure: CommandLine) -> None:
    live, run = _asleep(perdure)
    assert "live" in perdure("ps").out
    live.kill()

    listed = perdure("ps")
    assert "interrupted" in listed.out
    assert "perdure resume" in listed.err
    assert "interrupted" in perdure.here("show", run).out
    done = perdure("resume")
    assert done.out == f"{run}  succeeded\n"
    assert (perdure.folder / "effects").read_text() == "x\n"
    assert "nothing to resume" in perdure("resume").err


def test_a_task_that_was_in_flight_is_handed_out_again(perdure: CommandLine) -> None:
    script = "test -e second || { touch second; echo started >&2; sleep 60; }; echo done"
    live = perdure.start("run", perdure.drill({"call": "shell", "with": {"script": script}}, {"return": 1}))
    run = live.run
    while not (perdure.folder / "second").exists():
        assert live.process.poll() is None
    live.kill()

    assert "delivered again (delivery 2" in perdure("resume", run).err
