"""Playbook (NoETL canonical v10)."""

import json
from typing import Any

from bench.languages.language import Document, Language


def _playbook(*steps: dict[str, Any]) -> Document:
    """A Playbook is YAML, of which JSON is a part."""
    document = {
        "apiVersion": "noetl.io/v10",
        "kind": "Playbook",
        "metadata": {"name": "bench", "path": "bench"},
        "workload": {"value": {"i": 1}},
        "workflow": list(steps),
    }
    return json.dumps(document).encode()


def _sequence(steps: int, provider: str) -> Document:
    return _playbook(
        *[
            {
                "step": f"s{at}",
                "tool": {"kind": provider, "args": {"value": "{{ args.value }}" if at else "{{ workload.value }}"}},
                **(
                    {"next": {"arcs": [{"step": f"s{at + 1}", "args": {"value": "{{ event.result }}"}}]}}
                    if at + 1 < steps
                    else {}
                ),
            }
            for at in range(steps)
        ]
    )


def _loop(width: int, provider: str, **spec: Any) -> Document:
    return _playbook(
        {
            "step": "each",
            "loop": {"in": f"{{{{ range({width}) | list }}}}", "iterator": "n", "spec": spec},
            "tool": {"kind": provider, "args": {"value": {"i": 1}}},
        }
    )


def _wait(seconds: int) -> Document:
    """The wait that Playbooks have: before the next attempt."""
    rules = [
        {"when": "{{ _attempt < 2 }}", "then": {"do": "retry", "attempts": 2, "delay": seconds}},
        {"else": {"then": {"do": "continue"}}},
    ]
    return _playbook({"step": "wait", "tool": {"kind": "noop", "spec": {"policy": {"rules": rules}}}})


LANGUAGE = Language(
    title="Playbook",
    sequence=_sequence,
    rounds=lambda steps, provider: _loop(steps, provider, mode="sequential"),
    fan=lambda width, provider: _loop(width, provider, mode="parallel", max_in_flight=width),
    wait=_wait,
    given=lambda value: {"value": value},
    value_of=lambda result: result["result"],
)
