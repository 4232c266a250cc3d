"""Readers of histories and logs see no secret: also none that only looks like one, in what tasks and Engrams say."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.kernel.outcomes import Failed
from perdure.kernel.secrets.secret_masking import data_without_secrets, failure_without_secrets, without_secrets
from tests.cli.commandline import CommandLine

STORY = """\
apiVersion: bubustack.io/v1alpha1
kind: Story
metadata: {name: trip}
spec:
  policy: {retries: {stepRetryPolicy: {maxRetries: 0}}}
  steps: [{name: a, ref: {name: NAME}}]
---
apiVersion: catalog.bubustack.io/v1alpha1
kind: EngramTemplate
metadata: {name: NAME, annotations: ANNOTATIONS}
spec: {version: 1.0.0, supportedModes: [job]}
---
apiVersion: bubustack.io/v1alpha1
kind: Engram
metadata: {name: NAME}
spec: {templateRef: {name: NAME, version: 1.0.0}}
"""

SCRIPT = """\
echo "begun api_key=hunter22"
echo 'login failed password=hunter22' >&2
exit 3
"""

CODE = """\
import logging
import perdure

@perdure.engram("functions")
def fail(inputs, context):
    context.log("said password=hunter22", note="token: hunter22", password="hunter22", deep={"api_key": "hunter22"})
    print("printed postgres://me:hunter22@host/x")
    logging.getLogger("mine").warning("logged password=hunter22")
    details = {"password": "hunter22", "out": '{"token": "hunter22"}'}
    raise perdure.EngramError("failed: password=hunter22", details=details)
"""


@pytest.fixture
def perdure(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.end_all()


@pytest.mark.parametrize("name", ["commands", "functions"])
def test_what_a_failed_engram_says_is_masked_wherever_it_is_shown_or_kept(perdure: CommandLine, name: str) -> None:
    """STY-259 STY-263: its status was masked; its failure in the history, log lines and live progress were not."""
    (perdure.folder / "script.sh").write_text(SCRIPT)
    (perdure.folder / "code.py").write_text(CODE)
    annotations = {"perdure/command": "sh script.sh"} if name == "commands" else {}
    (perdure.folder / "story.yaml").write_text(
        STORY.replace("NAME", name).replace("ANNOTATIONS", json.dumps(annotations))
    )
    load = [] if name == "commands" else ["--load", "code.py"]

    outputs = [perdure("run", "story.yaml", "-v", *load, code=3)]
    run = perdure.here("ps", "--all", "--json").json[0]["id"]
    outputs += [perdure.here("history", run, "--raw", "--json"), perdure.here("history", run, "--json")]
    outputs += [perdure.here(verb, run) for verb in ("logs", "show", "why", "timeline")]
    perdure.here("export", run, "--file", "capsule")

    for output in outputs:
        assert "hunter22" not in output.out + output.err
    assert "password=[REDACTED]" in outputs[0].err + outputs[0].out
    for file in perdure.folder.iterdir():
        if file.is_file() and file.name not in ("script.sh", "code.py"):
            assert b"hunter22" not in file.read_bytes(), file.name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password='two words' used", "password=[REDACTED] used"),
        ('{"password": "two words", "n": 1}', '{"password": [REDACTED], "n": 1}'),
        (r"{\"password\": \"hunter22\"}", r"""{\"password\": [REDACTED]"}"""),
        ("Authorization: Digest abc123, more", "Authorization: [REDACTED], more"),
        ("Authorization: Bearer abc123", "Authorization: [REDACTED]"),
        ("at postgres://me:pw@host/x and http://host:80/", "at postgres://me:[REDACTED]@host/x and http://host:80/"),
        ("CLIENT_SECRET=abc&x=1", "CLIENT_SECRET=[REDACTED]&x=1"),
        ("at 12:30, x=1", "at 12:30, x=1"),
    ],
)
def test_values_are_recognised_by_what_is_before_them(text: str, expected: str) -> None:
    """STY-259."""
    assert without_secrets(text) == expected


def test_names_of_members_count_as_well() -> None:
    value: Any = {"password": "abc", "tokens": 5, "inner": [{"api-key": "abc"}, "n"], "secret": {"n": "kept"}}
    assert data_without_secrets(value) == {
        "password": "[REDACTED]",
        "tokens": 5,
        "inner": [{"api-key": "[REDACTED]"}, "n"],
        "secret": {"n": "kept"},
    }


def test_of_a_failure_with_large_details_the_short_members_remain() -> None:
    details = json.dumps({"exitCode": 3, "message": "token=abc", "details": {"out": "x" * 100_000}}).encode()
    hidden = failure_without_secrets(Failed("A.B", "token=abc", details=details))

    assert isinstance(hidden, Failed)
    assert hidden.message == "token=[REDACTED]"
    assert hidden.details is not None
    assert json.loads(hidden.details) == {
        "exitCode": 3,
        "message": "token=[REDACTED]",
        "details": {"truncated": True, "sizeBytes": 100_011},
    }
