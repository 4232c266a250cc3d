"""`ps`: what there is, for eyes and for programs."""

from tests.cli.commandline import CommandLine


def test_a_list_for_programs_has_everything_and_a_table_for_people_the_rest_in_a_count(perdure: CommandLine) -> None:
    child = {"drill": 1, "name": "kid", "steps": []}
    file = perdure.drill({"child": child}, {"return": 1}, name="parent")
    run = perdure.here("run", file, "--label", "team=blue", "--json").json["id"]
    for _ in range(2):
        perdure.here("run", perdure.drill({"fail": "Bad"}, name="bad"), code=3)
    rows = perdure("ps", "--json").json

    assert [row["name"] for row in rows] == ["bad", "bad", "kid", "parent"]
    kid, parent = rows[2:]
    assert kid["parent"] == run
    assert parent | {"created_at": "", "ended_at": ""} == {
        "id": run,
        "status": "succeeded",
        "language": "drill",
        "name": "parent",
        "namespace": "default",
        "parent": None,
        "labels": {"team": "blue"},
        "created_at": "",
        "ended_at": "",
        "live": False,
        "stuck": None,
        "pending": [],
    }
    assert parent["created_at"] < parent["ended_at"]
    assert "kid" not in perdure("ps").out
    assert "kid" in perdure.here("ps", "--children").out
    assert run in perdure.here("ps", "--status", "succeeded").out
    assert [row["name"] for row in perdure.here("ps", "--json", "--name", "bad", "--limit", "1").json] == ["bad"]
    assert perdure.here("ps", "--json", "--until", "1h").json == []
    assert len(perdure.here("ps", "--json", "--since", "1h").json) == 4


def test_the_table_shows_the_latest_and_counts_the_rest(perdure: CommandLine) -> None:
    waiting = perdure.here("run", perdure.drill({"signal": "go"}), "--detach").out.strip()
    for _ in range(12):
        perdure.here("run", perdure.drill({"return": 1}))
    listed = perdure("ps")

    assert len(listed.out.splitlines()) == 1 + 1 + 10
    assert listed.out.splitlines()[-1].startswith(waiting)
    assert "2 ended runs not shown (see --all)" in listed.err
    assert len(perdure.here("ps", "--all").out.splitlines()) == 1 + 13


def test_an_empty_store_has_no_runs(perdure: CommandLine) -> None:
    (perdure.folder / "perdure.db").touch()

    assert perdure("ps", "--json").json == []
    assert perdure("ps").err == "no runs\n"


def test_whoever_reads_may_stop_reading(perdure: CommandLine) -> None:
    """A closed pipe is no error worth a word."""
    perdure.here("run", perdure.drill({"return": 1}))
    live = perdure.start("history", "0", "--json", "--follow")
    assert live.process.stdout is not None
    live.process.stdout.close()
    done = live.end()

    assert done.code == 141
    assert done.err == ""


def test_an_empty_list_names_the_namespace_that_was_asked_for(perdure: CommandLine) -> None:
    perdure.here("run", perdure.drill({"return": 1}))
    assert perdure.here("ps", "-n", "shop").err == "no runs in namespace 'shop'\n"
