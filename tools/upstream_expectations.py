"""What a project expects of single runs of its documents (`fixtures/playbook_test_config.yaml`), for `upstream_runs`.

Of each run it names the status, steps that must be there, how many there must be, members of results, or a pattern for
the error. The files of expected results that it mentions are not published.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perdure.documents import read_document

CONFIG = Path("fixtures") / "playbook_test_config.yaml"
STATUSES = {"completed": "success", "failed": "failed"}
ENDS = ("step.done", "loop.done", "step.failed")


class Expectations:
    """`by_path`: what is expected, by the path of a document without its ending."""

    def __init__(self, by_path: Mapping[str, Mapping[str, Any]]) -> None:
        self._by_path = by_path

    def differences(self, path: str, shown: str, history: str) -> list[str] | None:
        """`shown` and `history` are what `perdure run` and `perdure history` print. None: nothing is expected."""
        expected = self._by_path.get(path.removesuffix(".yaml"))
        return None if expected is None else list(_differences(expected, _json(shown) or {}, _json(history) or []))


def read_expectations(repositories: Iterable[Path]) -> Expectations:
    files = (repository / CONFIG for repository in repositories)
    configs = [read_document(file.read_bytes()).data for file in files if file.is_file()]
    return Expectations({entry["path"]: entry["validation"] for config in configs for entry in config["playbooks"]})


def _differences(expected: Mapping[str, Any], shown: Any, history: Any) -> Iterator[str]:
    status = STATUSES.get(expected["execution_status"])
    if shown.get("status") != status:
        yield f"the status is {shown.get('status', 'that it is refused')}, not {status}"
    steps = shown.get("steps") or {}
    missing = [step for step in expected.get("required_steps", ()) if step not in steps]
    if missing:
        yield f"there is no step {', '.join(missing)}"
    runs = sum(step["runs"] for step in steps.values())
    if runs < expected.get("min_steps", 0):
        yield f"{runs} steps ran, not {expected['min_steps']}"
    errors = " ".join(str(failure["error"].get("message")) for failure in shown.get("failures") or ())
    if (pattern := expected.get("error_pattern")) and not re.search(pattern, errors, re.IGNORECASE):
        yield "another error"
    for step, validation in (expected.get("step_validations") or {}).items():
        result = _result_of(history, step)
        for check in validation.get("result_checks", ()):
            if _member(result, check["field"]) != check["value"]:
                yield f"`{check['field']}` of step {step} has another value"


def _result_of(history: Any, step: str) -> Any:
    for event in history if isinstance(history, list) else history.get("events", ()):
        if event.get("event_type") in ENDS and event.get("step") == step:
            return (event.get("payload") or {}).get("result")
    return None


def _member(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
