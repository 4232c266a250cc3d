"""Where the code of a template is: commands, endpoints and images by annotation, or nowhere (STY-009)."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import perdure
from perdure.dialects.story.language import Story
from perdure.dialects.story.plan.engram_code import CONTAINER, ENDPOINT, place_of, problems, run_of
from perdure.kernel import inputs as i
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.json_values import jsontext
from tests.dialects.story.document.resource_texts import errors, warnings
from tests.dialects.story.world import World, engram, story, template

SUM = "import json, sys; task = json.load(sys.stdin); print(json.dumps({'sum': sum(task['inputs']['n'])}))"


def annotated(spec: dict[str, Any] | None = None, /, **notes: str) -> dict[str, Any]:
    resource = template("t", **(spec or {}))
    resource["metadata"]["annotations"] = {f"perdure/{name}": text for name, text in notes.items()}
    return resource


def engine(folder: Path) -> perdure.Engine:
    return perdure.Engine(f"sqlite:///{folder / 'runs.db'}")


async def shown(folder: Path, engram_template: dict[str, Any], inputs: dict[str, Any]) -> Any:
    text = story("steps: [{name: a, ref: {name: e}, with: {n: [1, 2], given: '{{ inputs }}'}}]")
    applied = [
        AppliedDocument(f"{n}.json", json.dumps(resource))
        for n, resource in enumerate((engram("e", template="t"), engram_template))
    ]
    async with engine(folder) as here:
        handle = await here.start(json.dumps(text).encode(), inputs, applied=applied)
        await here.wait(handle.id)
        return await handle.show()


async def test_a_command_is_run_by_the_engine(tmp_path: Path) -> None:
    resource = annotated(command=json.dumps([sys.executable, "-c", SUM]))
    status = (await shown(tmp_path, resource, {}))["stepRuns"]["a"]["status"]

    assert (status["phase"], status["output"], status["exitCode"]) == ("Succeeded", {"sum": 3}, 0)


async def test_a_command_of_the_shell_has_its_folder_its_variables_and_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STY-220: a secret reaches the command, and no record."""
    monkeypatch.setenv("PERDURE_SECRET_api_token", "hush-hush")
    env = json.dumps({"WHO": "you", "TOKEN": {"$bubuSecretRef": "api:token"}})
    resource = annotated(command="pwd; echo $WHO; test ${#TOKEN} = 9 && echo $TOKEN", cwd=str(tmp_path), env=env)
    run = await shown(tmp_path, resource, {})

    assert run["stepRuns"]["a"]["status"]["output"] == {"stdout": f"{tmp_path}\nyou\n[redacted]\n"}
    assert b"hush-hush" not in (tmp_path / "runs.db").read_bytes()


async def test_an_exit_code_is_the_steps(tmp_path: Path) -> None:
    """STY-123."""
    run = await shown(tmp_path, annotated(command="echo no >&2; exit 3"), {})

    error = run["stepRuns"]["a"]["status"]["error"]
    assert (error["message"], error["exitCode"], error["exitClass"]) == ("no", 3, "terminal")


def test_an_endpoint_and_an_image_are_chosen_by_annotation() -> None:
    headers = json.dumps({"x-team": "blue"})
    assert run_of(annotated(url="https://x/y", headers=headers)) == {
        "url": "https://x/y",
        "headers": {"x-team": "blue"},
    }
    assert place_of(annotated(url="https://x/y")) == ENDPOINT
    image = annotated({"image": "i:1"}, container="true", args='["--fast"]', command="go")
    assert place_of(image) == CONTAINER
    assert run_of(image) == {"image": "i:1", "env": {}, "command": ["go"], "args": ["--fast"]}


@pytest.mark.parametrize(
    ("notes", "name", "words"),
    [
        ({"comand": "x"}, "comand", "unknown annotation perdure/comand"),
        ({"env": "{}"}, "env", "has no effect without"),
        ({"command": "x", "env": "[]"}, "env", "must be a JSON object"),
        ({"command": '["a", 1]'}, "command", "must be a JSON list of strings"),
        ({"url": "ftp://x"}, "url", "must begin with http://"),
        ({"command": "x", "url": "http://x"}, "url", "cannot be combined with perdure/command"),
        ({"container": "true"}, "container", "is not set"),
        ({"container": "yes", "command": "x"}, "container", 'must be "true" or "false"'),
    ],
)
def test_admission_judges_the_annotations(notes: dict[str, str], name: str, words: str) -> None:
    reported = errors(yaml.safe_dump(annotated(**notes)))

    assert [path for path, message, _ in reported if words in message] == [f'metadata.annotations["perdure/{name}"]'], (
        reported
    )


def test_a_good_template_is_admitted_and_its_image_is_no_longer_ignored() -> None:
    resource = annotated({"image": "i:1"}, container="true")
    assert list(problems(resource)) == []
    assert (errors(yaml.safe_dump(resource)), warnings(yaml.safe_dump(resource))) == ([], [])
    assert warnings(yaml.safe_dump(template("t", image="i:1")))


class Loaded:
    """Which code there is, as one process sees it."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __call__(self, template: str, version: str) -> bool:
        return template in self.names


def blocked(settings: dict[str, Any] | None = None) -> tuple[World, Loaded]:
    loaded = Loaded()
    world = World("steps: [{name: a, ref: {name: echo}}]", settings=settings)
    world.life.dialect = Story(implements=loaded)
    world.life.execution.dialect = world.life.dialect
    world.pass_time(5)
    return world, loaded


def test_a_step_without_code_waits_and_its_time_does_not_run() -> None:
    """STY-009 STY-118: Blocked, with the ways out; it goes on once a process has the code."""
    world, loaded = blocked()
    state = world.status["stepStates"]["a"]
    assert state["phase"] == "Blocked" and "perdure/command" in state["message"] and "echo@1.0.0" in state["message"]
    assert world.show()["waiting"][0]["reason"] == "TemplateNotFound"
    world.pass_time(3_600)  # far beyond the timeout of a step
    assert world.phases == {"a": "Blocked"}

    rows = len(world.life.rows)
    world.pass_time(3_600)
    assert len(world.life.rows) == rows  # waiting costs nothing

    loaded.names.add("echo")
    world.tell(i.PermitGrant(next(iter(world.life.execution.state.permits))))  # as whoever loads the code does
    world.pass_time(0)

    assert world.phases == {"a": "Succeeded"}


def test_an_operator_may_have_a_look_at_once() -> None:
    world, loaded = blocked()
    loaded.names.add("echo")
    world.tell(i.Steer("retry", jsontext.encode({"step": "a"}), by="operator"))
    world.pass_time(0)

    assert world.phases == {"a": "Succeeded"}


def test_missing_code_may_be_a_failure() -> None:
    world, _ = blocked({"references.missing": "fail"})

    assert world.phases == {"a": "Failed"}
