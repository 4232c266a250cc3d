"""The test dialect: the kernel and next to nothing else."""

import json
from typing import Any

from bench.languages.language import Document, Language
from perdure.testing.drill import Drill
from perdure.wiring import add_language

add_language(Drill)


def _drill(*steps: dict[str, Any]) -> Document:
    return json.dumps({"drill": 1, "name": "bench", "steps": list(steps)}).encode()


def _sequence(steps: int, provider: str) -> Document:
    first = {"call": provider, "input": "$input", "save": "value"}
    later = {"call": provider, "input": "$value", "save": "value"}
    return _drill(first, *[later] * (steps - 1), {"return": "$value"})


LANGUAGE = Language(
    title="drill (test dialect)",
    sequence=_sequence,
    rounds=lambda steps, provider: _drill({"repeat": steps, "do": [{"call": provider, "input": {"i": 1}}]}),
    fan=lambda width, provider: _drill({"each": width, "do": [{"call": provider, "input": {"i": 1}}]}),
    wait=lambda seconds: _drill({"sleep": f"{seconds}s"}, {"return": "awake"}),
)
