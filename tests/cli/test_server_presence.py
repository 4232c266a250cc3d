"""What verbs say at the end: with servers on the store nobody has to resume anything, without one somebody has to."""

import json
import signal
from collections.abc import Iterator

import pytest
from tests.cli.commandline import CommandLine, Done, Running
from tests.dialects.story.world import engram, story, template
from tests.postgres import as_url

STORY = story("steps: [{name: ask, type: gate}, {name: say, ref: {name: echo}, needs: [ask], with: {n: 1}}]", "orders")
STORY_RUN = {
    "apiVersion": "runs.bubustack.io/v1alpha1",
    "kind": "StoryRun",
    "metadata": {"name": "first", "namespace": "default"},
    "spec": {"storyRef": {"name": "orders"}},
}


class Verbs:
    def __init__(self, perdure: CommandLine, url: str) -> None:
        self.perdure = perdure
        self.url = url

    def __call__(self, *words: str, code: int = 0) -> Done:
        return self.perdure.here(*words, "--db", self.url, code=code)

    def start(self, *words: str) -> Running:
        return self.perdure.start(*words, "--db", self.url)

    def waiting(self) -> str:
        return self.perdure.drill({"signal": "go", "save": "x"}, {"return": "$x"}, name="waits")

    def apply_story(self) -> None:
        text = "\n---\n".join(
            json.dumps(document) if isinstance(document, dict) else document for document in (STORY, *ENGRAMS)
        )
        (self.perdure.folder / "orders.yaml").write_text(text)
        self("apply", "-f", "orders.yaml")


ENGRAMS = (engram("echo"), template("echo"))


@pytest.fixture
def unserved(perdure: CommandLine, request: pytest.FixtureRequest) -> Verbs:
    if getattr(request, "param", "postgres") == "sqlite":
        return Verbs(perdure, "sqlite:///perdure.db")
    return Verbs(perdure, as_url(request.getfixturevalue("postgres_url")))


@pytest.fixture
def served(unserved: Verbs) -> Iterator[Verbs]:
    server = unserved.start("serve")
    server.hear("serving ")
    yield unserved
    server.send(signal.SIGTERM)
    assert server.end().code == 0


def is_told_to_resume(done: Done) -> bool:
    assert "Traceback" not in done.err
    output = done.err + done.out
    promised = "server will resume it" in output or "server will resume them" in output
    asked_to = "perdure resume" in output or "no live process" in output or "when the run is resumed" in output
    assert not (promised and asked_to), output
    return asked_to


def told_by_verbs(on: Verbs) -> dict[str, Done]:
    """Every verb that leaves a run behind for somebody."""
    done = {"run": on("run", on.waiting(), "--detach")}
    run = done["run"].out.strip()
    done["show"] = on("show", run)
    done["ps"] = on("ps")
    done["run --json"] = on("run", on.waiting(), "--detach", "--json")
    done["run --wait-timeout"] = on("run", on.waiting(), "--wait-timeout", "0.3s", code=6)
    done["fork"] = on("fork", run, "--detach")
    done["signal"] = on("signal", run, "go", "1")
    done["cancel"] = on("cancel", done["fork"].out.strip())
    on.apply_story()
    done["trigger"] = on("trigger", "orders", "--token", "a")
    (on.perdure.folder / "first.json").write_text(json.dumps(STORY_RUN))
    done["apply"] = on("apply", "-f", "first.json")
    done["approve"] = on("approve", "first", "ask")
    unawaited = on.perdure.drill({"child": {"drill": 1, "name": "kid", "steps": [{"signal": "go"}]}, "wait": False})
    done["children"] = on("run", unawaited)
    return done


@pytest.mark.parametrize("unserved", ["sqlite", "postgres"], indirect=True)
def test_with_a_server_nobody_is_told_to_resume(served: Verbs) -> None:
    done = told_by_verbs(served)

    assert [verb for verb, text in done.items() if is_told_to_resume(text)] == []
    for verb in ("run", "trigger", "apply"):
        assert "recorded; a server will resume it" in done[verb].err, verb
    assert "A server will resume it." in done["run --wait-timeout"].err
    assert done["run --json"].json["resume"] is None


def test_without_a_server_every_verb_says_how_it_goes_on(unserved: Verbs) -> None:
    done = told_by_verbs(unserved)

    assert [verb for verb, text in done.items() if not is_told_to_resume(text)] == []
    for verb in ("run", "trigger", "apply"):
        assert "recorded; no server is running; resume it with: perdure resume" in done[verb].err, verb
    assert done["run --json"].json["resume"].startswith("perdure resume")


def test_a_run_that_is_stopped_by_hand_goes_on_at_the_server(served: Verbs) -> None:
    running = served.start("run", served.waiting())
    run = running.run
    running.send(signal.SIGINT)
    done = running.end()

    assert done.code == 130 and not is_told_to_resume(done)
    assert f"run {run} is durable. A server will resume it." in done.err
    served("signal", run, "go", '"said"')
    followed = served("resume", run)
    assert followed.out == "said\n"


def test_a_cancel_is_waited_for_although_the_run_is_between_owners(served: Verbs) -> None:
    """The server will resume it in a moment: that is no reason to give up."""
    run = served("run", served.waiting(), "--detach").out.strip()
    assert "cancelled" in served("cancel", run, "--wait").err
