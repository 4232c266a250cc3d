"""`run`: the answer, the exit codes, and what is said meanwhile."""

import pytest
from tests.cli.commandline import CommandLine

QUICK = {"call": "echo", "with": {"value": "$input"}}


def test_the_answer_is_alone_on_stdout_and_the_talk_on_stderr(perdure: CommandLine) -> None:
    file = perdure.drill({"return": "Hello, $ and all"}, name="greeter")
    done = perdure("run", file)

    assert done.out == "Hello, $ and all\n"
    assert "(greeter, drill)" in done.err
    assert "succeeded in" in done.err


def test_with_json_stdout_is_exactly_the_languages_picture(perdure: CommandLine) -> None:
    file = perdure.drill(QUICK, name="picture")
    shown = perdure("run", file, "--json", "--input", '{"a": [1, 2.5, "é"]}').json

    assert shown["name"] == "picture"
    assert shown["outcome"] == {"type": "success", "value": {"a": [1, 2.5, "é"]}}
    assert shown == perdure.here("show", shown["id"], "--json").json


def test_input_comes_from_text_file_and_single_members(perdure: CommandLine) -> None:
    file = perdure.drill({"return": "$input"})
    (perdure.folder / "in.json").write_text('{"user": {"name": "Ada"}, "n": 1}')
    options = ("--set", "user.age=36", "--set", "n=two", "--set", "on=true", "--set", "deep.er=[1]")
    answer = perdure("run", file, "--input", "@in.json", *options).json

    assert answer == {"user": {"name": "Ada", "age": 36}, "n": "two", "on": True, "deep": {"er": [1]}}
    assert perdure.here("run", file, "--set", "a=1").json == {"a": 1}
    assert (
        "the value above it is not an object" in perdure.here("run", file, "--input", "3", "--set", "a=1", code=2).err
    )


def test_args_are_recorded_as_options_and_labels_find_the_run(perdure: CommandLine) -> None:
    file = perdure.drill({"return": 1})
    run = perdure("run", file, "--args", '{"x": 1}', "--label", "team=blue", "--json").json["id"]
    started = perdure.here("history", run, "--json").json[0]

    assert started["options"] == {"args": {"x": 1}}
    assert [run] == [row["id"] for row in perdure.here("ps", "--json", "--label", "team=blue").json]
    assert perdure.here("ps", "--json", "--label", "team=red").json == []


def test_a_document_may_come_from_standard_input(perdure: CommandLine) -> None:
    assert perdure("run", "-", stdin='{"drill": 1, "steps": [{"return": 7}]}').json == 7


def test_applied_files_travel_with_the_start(perdure: CommandLine) -> None:
    file = perdure.drill({"return": 1})
    folder = perdure.folder / "resources"
    folder.mkdir()
    kid = '{"drill": 1, "name": "kid", "steps": []}'
    (folder / "b.json").write_text(kid)
    (folder / "unknown.yaml").write_text("kind: B")
    (folder / "notes.txt").write_text("not for us")
    run = perdure("run", file, "--apply", "resources", "--json").json["id"]
    options = perdure.here("history", run, "--json").json[0]["options"]

    (recorded,) = options["applied"]
    assert (recorded["file"], recorded["language"], recorded["text"]) == ("resources/b.json", "drill", kid)
    assert recorded["names"] == ["kid"]


def test_a_failed_run_exits_3_and_says_why(perdure: CommandLine) -> None:
    file = perdure.drill({"fail": "Order.Empty", "message": "there is nothing to ship"})
    done = perdure("run", file, code=3)

    assert done.out == ""
    assert "failed: Order.Empty: there is nothing to ship" in done.err
    assert "hint: perdure show " in done.err and "history" in done.err
    assert perdure.here("run", file, "--json", code=3).json["outcome"]["type"] == "failure"


def test_a_failed_task_is_worth_a_line(perdure: CommandLine) -> None:
    file = perdure.drill({"call": "shell", "with": {"script": "exit 3"}, "catch": []}, {"return": "went on"})
    done = perdure("run", file)

    assert "task 1 (shell) failed: Provider.Call.Shell.Exit3" in done.err
    assert done.out == "went on\n"


def test_a_waiting_run_outlives_the_patience_of_its_caller(perdure: CommandLine) -> None:
    file = perdure.drill({"signal": "go"}, {"return": "gone"})
    done = perdure("run", file, "--wait-timeout", "100ms", "--json", code=6)

    assert done.json["status"] == "waiting"
    assert "perdure resume" in done.err
    run = done.json["id"]
    perdure.here("signal", run, "go")
    assert perdure.here("resume", run).out == "gone\n"


def test_detach_records_the_start_and_begins_no_task(perdure: CommandLine) -> None:
    file = perdure.drill({"call": "shell", "with": {"script": "echo x >> effects"}}, {"return": "done"})
    done = perdure("run", file, "--detach")
    run = done.out.strip()

    assert f"perdure resume {run}" in done.err
    assert not (perdure.folder / "effects").exists()
    assert perdure.row(run)["status"] == "running"
    assert perdure.here("resume", run).out == "done\n"
    assert (perdure.folder / "effects").read_text() == "x\n"
    answer = perdure.here("run", file, "--detach", "--json").json
    assert f"perdure resume {answer['id']}" == answer["resume"]


def test_a_token_starts_once_and_other_input_is_a_conflict(perdure: CommandLine) -> None:
    file = perdure.drill({"call": "shell", "with": {"script": "echo x >> effects"}}, name="order")
    first = perdure.here("run", file, "--token", "17", "--json").json
    again = perdure("run", file, "--token", "17", "--json").json

    assert first == again
    assert (perdure.folder / "effects").read_text() == "x\n"
    done = perdure("run", file, "--token", "17", "--input", "1", "--json", code=9)
    assert done.error["code"] == "CONFLICT"


def test_a_token_takes_up_a_start_that_was_interrupted(perdure: CommandLine) -> None:
    file = perdure.drill({"return": "late"}, name="order")
    slow = perdure.drill({"sleep": "10ms"}, {"return": "late"}, name="slow")
    perdure.here("run", slow, "--token", "17", "--detach")

    assert perdure("run", slow, "--token", "17").out == "late\n"
    assert perdure("run", file, "--token", "17").out == "late\n"  # another document, another run


def test_an_invalid_document_lists_every_problem_and_stores_nothing(perdure: CommandLine) -> None:
    (perdure.folder / "typo.json").write_text(
        '{"drill": 1,\n "steps": [\n  {"call": "echo", "imput": 1},\n  {"sleep": "soon"}\n ]}\n'
    )
    done = perdure("run", "typo.json", code=7)

    assert done.out == ""
    assert "typo.json:3:20: error: 'call' knows no 'imput'; did you mean 'input'? (steps[0].imput)" in done.err
    assert "typo.json:4:4: error: 'soon' is not a duration" in done.err
    assert "2 problems" in done.err
    assert [path.name for path in perdure.folder.iterdir()] == ["typo.json"]
    finished = perdure.here("run", "typo.json", "--json", code=7)
    assert [problem["line"] for problem in finished.error["problems"]] == [3, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "is not in a language known here"),
        ('{"drill": 1, "drill": 1, "steps": []}', "'drill' is repeated"),
        ('{"drill": 1, "steps": [', "1:24: error"),
    ],
)
def test_what_is_no_document_is_said_with_its_place(perdure: CommandLine, text: str, message: str) -> None:
    (perdure.folder / "odd.json").write_text(text)

    assert message in perdure.here("run", "odd.json", code=7).err


def test_a_missing_document_is_not_found(perdure: CommandLine) -> None:
    assert "nowhere.json: No such file" in perdure.here("run", "nowhere.json", code=8).err


def test_own_providers_are_loaded_from_a_file(perdure: CommandLine) -> None:
    (perdure.folder / "tasks.py").write_text(
        "import perdure\n\n@perdure.provider('twice')\ndef twice(text: str) -> str:\n    return text * 2\n"
    )
    file = perdure.drill({"call": "twice", "with": {"text": "ab"}})

    assert perdure("run", file, "--load", "./tasks.py").out == "abab\n"
    (perdure.folder / "broken.py").write_text("import perdure\n1 / 0\n")
    done = perdure("run", file, "--load", "broken.py", "--json", code=1)
    assert done.error["code"] == "LOAD-FAILED"
    assert "broken.py:2" in done.error["message"]


def test_a_task_whose_provider_is_not_loaded_waits_visibly(perdure: CommandLine) -> None:
    (perdure.folder / "tasks.py").write_text(
        "import perdure\n\n@perdure.provider('later')\ndef later() -> str:\n    return 'now'\n"
    )
    live = perdure.start("run", perdure.drill({"call": "later"}))
    run = live.run
    live.hear("waits for provider 'later', which is not loaded")
    live.kill()

    left = perdure.here("resume", run)
    assert "nothing more happens by itself" in left.err
    assert perdure("resume", run, "--load", "tasks.py").out == "now\n"


def test_quiet_says_nothing_but_errors(perdure: CommandLine) -> None:
    assert perdure.here("run", perdure.drill({"return": 1}), "--quiet").err == ""
    assert "failed: Bad" in perdure.here("run", perdure.drill({"fail": "Bad"}), "-q", code=3).err


def test_high_volumes_of_events_become_a_count(perdure: CommandLine) -> None:
    step = {"each": 60, "do": [{"call": "shell", "with": {"argv": ["false"]}, "catch": []}]}
    done = perdure.here("run", perdure.drill(step, {"return": 1}))

    assert done.err.count("failed:") < 60
    assert "more events" in done.err


def test_children_that_nobody_awaits_are_named_when_they_are_left_behind(perdure: CommandLine) -> None:
    child = {"drill": 1, "name": "kid", "steps": [{"signal": "go"}]}
    done = perdure.here("run", perdure.drill({"child": child, "wait": False}, {"return": 1}))

    assert done.out == "1\n"
    assert "not awaited and still open" in done.err


def test_two_runs_on_one_file_work_side_by_side(perdure: CommandLine) -> None:
    first = perdure.start("run", perdure.drill({"signal": "go"}, {"return": "first"}, name="a"))
    run = first.run
    second = perdure.start("run", perdure.drill({"signal": "go"}, {"return": "second"}, name="b"))
    other = second.run

    assert [row["live"] for row in perdure.here("ps", "--json").json] == [True, True]
    perdure.here("signal", other, "go")
    assert second.end().out == "second\n"
    perdure.here("signal", run, "go")
    assert first.end().out == "first\n"


def test_the_database_comes_from_the_option_then_from_the_environment(perdure: CommandLine) -> None:
    file = perdure.drill({"return": 1})
    perdure("run", file, "--db", "sqlite:///one.db", PERDURE_DB="sqlite:///two.db")
    perdure("run", file, PERDURE_DB="sqlite:///two.db")
    perdure("run", file, "--db", f"sqlite:///{perdure.folder}/three.db")

    assert sorted(path.name for path in perdure.folder.glob("*.db")) == ["one.db", "three.db", "two.db"]
    sleeper = perdure.drill({"sleep": "1h"}, name="sleeper")
    detached = perdure("run", sleeper, "--db", "sqlite:///one.db", "--detach", "--json").json
    assert detached["resume"].endswith("--db sqlite:///one.db")


def test_run_takes_up_nothing_of_others(perdure: CommandLine) -> None:
    """Invariant 32: it drives what it was asked for."""
    left = perdure.here("run", perdure.drill({"call": "echo"}, name="left"), "--detach").out.strip()
    perdure("run", perdure.drill({"sleep": "3s"}, name="mine"))

    assert perdure.row(left)["status"] == "running" and not perdure.row(left)["live"]


def test_the_collector_of_circular_garbage_looks_seldom(perdure: CommandLine) -> None:
    """What is there when a run begins is looked at no more: a step leaves few circles."""
    (perdure.folder / "tasks.py").write_text(
        "import gc\nimport perdure\n\n@perdure.provider('limits')\ndef limits():\n"
        "    return [gc.isenabled(), gc.get_threshold()[0], gc.get_freeze_count()]\n"
    )
    file = perdure.drill({"call": "limits"})
    is_enabled, objects, frozen = perdure("run", file, "--load", "tasks.py").json

    assert is_enabled and objects >= 10_000 and frozen > 1_000
