"""`fork`: another one's past, a future of its own."""

from tests.cli.commandline import CommandLine


def test_a_fork_goes_on_from_a_moment_and_keeps_finished_work(perdure: CommandLine) -> None:
    effect = {"call": "shell", "with": {"script": "echo x >> effects"}}
    file = perdure.drill(effect, {"sleep": "1ms"}, {"return": "end"})
    run = perdure.here("run", file, "--json").json["id"]
    slept = next(event["seq"] for event in perdure.here("history", run, "--json").json if event["event"] == "TimerSet")
    done = perdure("fork", run, "--at", str(slept), "--json")

    assert done.json["id"] != run
    assert done.json["outcome"]["value"] == "end"
    assert (perdure.folder / "effects").read_text() == "x\n"
    refused = perdure("fork", run, "--json", code=9)
    assert "there is nothing to continue" in refused.err
    assert f"perdure fork {run} --at {refused.error['nearest']}" in refused.err
    new = perdure("fork", run, "--at", str(slept), "--detach").out.strip()
    assert perdure.here("resume", new).out == "end\n"
