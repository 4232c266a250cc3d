"""Stories whose code is not loaded: what is missing is said, and what has come is noticed (STY-118)."""

import asyncio
import signal
from typing import Any

import pytest
from tests.cli.commandline import CommandLine

from perdure import Observer

CODE = """
import perdure

@perdure.engram("greet")
def greet(inputs, context):
    return {"hello": inputs.get("name", "nobody")}
"""

DYING = CODE.replace("    return", "    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)\n    return")

TEMPLATE = """\
apiVersion: catalog.bubustack.io/v1alpha1
kind: EngramTemplate
metadata: {name: greet}
spec: {version: 1.0.0, supportedModes: [job]}
---
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: greet, namespace: default}
spec: {templateRef: {name: greet, version: 1.0.0}}
---
"""

STORY = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: hello, namespace: default}
spec:
  policy: {timeouts: {story: 1h, step: 30m}}
  output: {said: "{{ steps.a.output.hello }}"}
  steps: [{name: a, ref: {name: greet}, with: {name: Ada}}]
"""


@pytest.fixture
def recorded(perdure: CommandLine) -> CommandLine:
    """A Story in the catalog and a run of it, started by a process that has no code; nobody drives it."""
    (perdure.folder / "code.py").write_text(CODE)
    (perdure.folder / "story.yaml").write_text(STORY)
    perdure("apply", "story.yaml", "--load", "code.py")
    perdure("trigger", "hello")
    return perdure


def run_of(perdure: CommandLine) -> str:
    (row,) = perdure.here("ps", "--all", "--json").json
    return str(row["id"])


async def result(perdure: CommandLine, run: str) -> Any:
    async with Observer(f"sqlite:///{perdure.folder}/perdure.db") as observer:
        return await observer.handle(run).result()


def test_resume_says_which_code_is_missing_and_returns(recorded: CommandLine) -> None:
    done = recorded("resume", run_of(recorded))

    assert "waits for Engram/default/greet" in done.err and "--load" in done.err
    assert "nothing more happens by itself" in done.err


def test_a_run_that_was_recorded_without_its_code_goes_on_where_the_code_is(recorded: CommandLine) -> None:
    done = recorded("resume", run_of(recorded), "--load", "code.py")

    assert done.json == {"said": "Ada"}


def test_a_server_that_has_the_code_goes_on_with_it(recorded: CommandLine) -> None:
    recorded.start("serve", "--load", "code.py")

    assert asyncio.run(result(recorded, run_of(recorded))) == {"said": "Ada"}


def test_a_template_without_code_is_named_and_goes_on_where_the_code_is(perdure: CommandLine) -> None:
    """STY-009 STY-118: the resources are there, what would execute them is not."""
    (perdure.folder / "code.py").write_text(CODE)
    (perdure.folder / "story.yaml").write_text(TEMPLATE + STORY)
    perdure("apply", "story.yaml")
    perdure("trigger", "hello")
    left = perdure("resume", run_of(perdure))

    assert "waits for code of 'greet@1.0.0', which is not loaded (see --load)" in left.err
    assert perdure("resume", run_of(perdure), "--load", "code.py").json == {"said": "Ada"}


def test_a_task_whose_code_is_gone_is_named_although_a_timer_bounds_it(perdure: CommandLine) -> None:
    (perdure.folder / "code.py").write_text(CODE)
    (perdure.folder / "dying.py").write_text(DYING)
    (perdure.folder / "story.yaml").write_text(STORY)
    killed = perdure("run", "story.yaml", "--load", "dying.py", code=None)
    assert killed.code == -signal.SIGKILL

    left = perdure("resume", run_of(perdure))

    assert "waits for provider 'engram:greet@1.0.0', which is not loaded (see --load)" in left.err
    assert "nothing more happens by itself" in left.err
    assert perdure("resume", run_of(perdure), "--load", "code.py").json == {"said": "Ada"}
