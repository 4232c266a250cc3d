"""`logs`: what tasks print and log is kept beside their run, and does not reach stdout."""

import json
import signal

from tests.cli.commandline import CommandLine, strict_json
from tests.cli.test_overview import CALL, _latest, _write

CODE = """
import logging, sys, threading, time
import perdure

@perdure.provider("talks")
def talks(context):
    print("to stdout")
    print("no end of line", end="", file=sys.stderr)
    logging.getLogger("shop").info("by logging")
    context.log("by context", level="warning", order=7)
    print(f"secret {context.secrets['token']}")
    return 1

@perdure.provider("talks_inline", inline=True)
def talks_inline():
    print("inline")

@perdure.provider("talks_async")
async def talks_async():
    print("in a coroutine")

@perdure.provider("talks_much")
def talks_much():
    for number in range(15_000):
        print(f"{number:06} " + "x" * 60)

@perdure.provider("waits")
def waits():
    print("first")
    sys.stdout.flush()
    time.sleep(3)
    print("second")
"""

STORY = """
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: talking}
spec:
  steps:
  - {name: say, ref: says}
"""

ENGRAM = """
import perdure

@perdure.engram("says")
def says(inputs, context):
    print("an engram prints")
    context.log("an engram logs")
    return {}
"""

PLAYBOOK = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: nightly, path: nightly}
workflow:
  - step: start
    tool:
      kind: python
      code: |
        import sys
        print("python prints")
        print("to stderr", file=sys.stderr)
        result = 1
"""


def _flow(perdure: CommandLine, *providers: str) -> str:
    steps = {
        name: {
            "action": "Call",
            "call": {"provider": CALL.format(name)},
            "next": [*providers[1:], "end"][n],
        }
        for n, name in enumerate(providers)
    }
    flow = {
        "$schema": "https://mwl.dev/v0.1/flow/schema.json",
        "entrypoint": providers[0],
        "steps": {**steps, "end": {"action": "Return", "value": 1}},
    }
    (perdure.folder / "flow.json").write_text(json.dumps(flow))
    (perdure.folder / "code.py").write_text(CODE)
    return "flow.json"


def test_what_functions_print_and_log_is_kept_and_masked_and_stays_out_of_stdout(perdure: CommandLine) -> None:
    file = _flow(perdure, "talks", "talks_inline", "talks_async")
    done = perdure("run", file, "--load", "code.py", "--json", PERDURE_SECRET_token="hidden-value")
    run = _latest(perdure)
    lines = perdure("logs", run, "--json").json

    assert done.json == {"type": "success", "value": 1}
    assert "to stdout" in done.err and "hidden-value" not in done.err
    assert [(line["step"], line["stream"], line["level"], line["text"]) for line in lines] == [
        ("talks", "stdout", "info", "to stdout"),
        ("talks", None, "info", "by logging"),
        ("talks", None, "warning", "by context"),
        ("talks", "stdout", "info", "secret [redacted]"),
        ("talks", "stderr", "info", "no end of line"),
        ("talks_inline", "stdout", "info", "inline"),
        ("talks_async", "stdout", "info", "in a coroutine"),
    ]
    assert lines[2]["fields"] == {"order": 7}
    assert perdure.here("logs", run, "talks_async").out.endswith("talks_async  in a coroutine\n")
    assert perdure.here("logs", run, "nobody", "--json").json == []


def test_stories_and_playbooks_and_commands_are_heard_too(perdure: CommandLine) -> None:
    (perdure.folder / "says.py").write_text(ENGRAM)
    perdure("run", _write(perdure, STORY, "story.yaml"), "--load", "says.py")
    story = perdure.here("logs", _latest(perdure)).out
    perdure("run", _write(perdure, PLAYBOOK, "playbook.yaml"))
    playbook = perdure.here("logs", _latest(perdure)).out
    script = {"call": "shell", "with": {"script": "echo out; echo err >&2; exit 3"}}
    perdure("run", perdure.drill(script), code=3)
    shell = perdure.here("logs", _latest(perdure), "--json").json

    assert "say  an engram prints\n" in story and "say  an engram logs" in story
    assert "python prints\n" in playbook and "to stderr\n" in playbook
    assert [(line["stream"], line["text"]) for line in shell] == [("stdout", "out"), ("stderr", "err")]


def test_the_oldest_lines_of_an_attempt_make_room_and_a_line_says_so(perdure: CommandLine) -> None:
    perdure("run", _flow(perdure, "talks_much"), "--load", "code.py", "-q")
    lines = perdure("logs", _latest(perdure), "--json").json

    assert "older lines are gone: 1 MiB of an attempt and 16 MiB of a run are kept" in lines[0]["text"]
    gone = int(lines[0]["text"].split()[0])
    assert lines[1]["text"].startswith(f"{gone:06} ")
    assert lines[-1]["text"].startswith("014999 ")
    assert sum(len(line["text"]) for line in lines) < 1 << 20


def test_lines_can_be_followed_as_one_json_value_until_the_run_has_ended(perdure: CommandLine) -> None:
    live = perdure.start("run", _flow(perdure, "waits"), "--load", "code.py")
    follower = perdure.start("logs", live.run, "-f", "--json")
    assert follower.process.stdout is not None
    first = follower.process.stdout.readline()
    done = follower.end()

    assert '"first"' in first
    assert [line["text"] for line in strict_json(first + done.out)] == ["first", "second"]
    assert live.end().code == 0


def test_lines_go_with_their_run_and_are_part_of_a_copy(perdure: CommandLine) -> None:
    perdure("run", _flow(perdure, "talks_inline"), "--load", "code.py")
    run = _latest(perdure)
    perdure.here("db", "copy", "sqlite:///perdure.db", "sqlite:///copy.db")
    copied = perdure.here("logs", run, "--db", "sqlite:///copy.db", "--json").json
    original = perdure.here("logs", run, "--json").json
    perdure.here("delete", "run", run, "-y")

    assert [line["text"] for line in copied] == ["inline"]
    assert copied == original
    assert perdure.here("db", "validate").code == 0
    assert perdure.here("logs", run, code=8).code == 8


def test_what_tasks_of_a_server_print_is_kept_with_their_runs(perdure: CommandLine) -> None:
    file = _flow(perdure, "talks", "talks_async")
    server = perdure.start("serve", "--load", "code.py", "--listen", "off", PERDURE_SECRET_token="hidden-value")
    server.hear("serving ")
    run = perdure("run", file, "--load", "code.py", "--detach", "-q").out.strip()
    perdure.here("wait", run)
    server.send(signal.SIGTERM)
    done = server.end()
    lines = perdure.here("logs", run, "--json").json

    assert done.code == 0 and "to stdout" not in done.out + done.err
    assert [line["text"] for line in lines if line["stream"] == "stdout"] == [
        "to stdout",
        "secret [redacted]",
        "in a coroutine",
    ]
    assert "by logging" in [line["text"] for line in lines]
