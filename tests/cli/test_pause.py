"""`pause` and `unpause`, from one process to another and without a live one."""

from tests.cli.commandline import CommandLine


def test_a_run_is_paused_shown_and_let_go(perdure: CommandLine) -> None:
    run = perdure.here("run", perdure.drill({"signal": "go"}, {"return": 1}), "--detach").out.strip()
    paused = perdure("pause", run, "--reason", "maintenance", "--by", "Ada")

    assert paused.out == ""
    assert f"run {run}: paused; recorded; it takes effect when the run is resumed" in paused.err
    assert [row["status"] for row in perdure.here("ps", "--json").json] == ["paused"]
    resumed = perdure.here("resume", run)
    assert "somebody to unpause it" in resumed.err
    assert f"perdure unpause {run}" in resumed.err
    shown = perdure.here("show", run)
    assert "paused" in shown.out + shown.err
    assert "maintenance" in shown.out + shown.err
    assert "paused already" in perdure.here("pause", run, code=9).err

    perdure.here("signal", run, "go")
    perdure.here("resume", run)
    assert [row["status"] for row in perdure.here("ps", "--json", "--status", "paused").json] == ["paused"]
    assert "unpaused" in perdure.here("unpause", run).err
    assert perdure.here("resume", run).code == 0
    assert [row["status"] for row in perdure.here("ps", "--json").json] == ["succeeded"]
    assert "already succeeded" in perdure.here("unpause", run, code=9).err
    assert perdure.here("db", "validate").code == 0
