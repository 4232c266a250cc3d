"""Flow (MWL)."""

import json
from typing import Any

from bench.languages.language import Document, Language

_SCHEMA = "https://mwl.dev/v0.1/flow/schema.json"


def _flow(entrypoint: str, steps: dict[str, Any]) -> Document:
    return json.dumps({"$schema": _SCHEMA, "entrypoint": entrypoint, "steps": steps}).encode()


def _target(provider: str) -> dict[str, Any]:
    return {"provider": f"mwl:provider.call/perdure/{provider}/v1"}


def _sequence(steps: int, provider: str) -> Document:
    calls = {
        f"s{at}": {"action": "Call", "call": _target(provider), "next": f"s{at + 1}" if at + 1 < steps else "done"}
        for at in range(steps)
    }
    return _flow("s0", {**calls, "done": {"action": "Return"}})


def _rounds(steps: int, provider: str) -> Document:
    return _flow(
        "begin",
        {
            "begin": {"action": "Pass", "output": {"i": 1}, "assign": {"n": 0}, "next": "work"},
            "work": {
                "action": "Call",
                "call": _target(provider),
                "assign": {"n": "{{ vars.n + 1.0 }}"},
                "next": "look",
            },
            "look": {
                "action": "Match",
                "cases": [{"when": f"{{{{ vars.n < {steps} }}}}", "next": "work"}],
                "default": {"next": "done"},
            },
            "done": {"action": "Return", "value": "{{ vars.n }}"},
        },
    )


def _fan(width: int, provider: str) -> Document:
    return _flow(
        "all",
        {
            "all": {"action": "Gather", "over": [{"i": 1}] * width, "call": _target(provider), "next": "done"},
            "done": {"action": "Return", "value": "{{ size(step.input) }}"},
        },
    )


def _wait(seconds: int) -> Document:
    return _flow(
        "wait",
        {
            "wait": {"action": "Sleep", "for": f"PT{seconds}S", "next": "done"},
            "done": {"action": "Return", "value": "awake"},
        },
    )


LANGUAGE = Language(title="Flow", sequence=_sequence, rounds=_rounds, fan=_fan, wait=_wait)
