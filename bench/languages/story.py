"""Story (BubuStack). A Story has at most a hundred steps and no loop: longer runs are Stories that execute Stories."""

import json
from typing import Any

from bench.languages.language import Document, Language

MOST_STEPS = 100
MOST_BRANCHES = 1_000  # a `with` block has at most 64 KiB; beyond that, a child Story for every item
CHILD = "bench-part"

GIVEN = {"i": 1}


def _story(name: str, steps: list[dict[str, Any]], output: dict[str, Any] | None = None) -> str:
    spec = {"steps": steps, **({} if output is None else {"output": output})}
    return json.dumps(
        {"apiVersion": "bubustack.io/v1alpha1", "kind": "Story", "metadata": {"name": name}, "spec": spec}
    )


def _chain(steps: int, engram: str, first: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": f"s{at}",
            "ref": {"name": engram},
            "with": {"value": f"{{{{ steps.s{at - 1}.output.value }}}}" if at else first},
        }
        for at in range(steps)
    ]


def _sequence(steps: int, engram: str) -> Document:
    last = {"value": f"{{{{ steps.s{steps - 1}.output.value }}}}"}
    return _story("bench", _chain(steps, engram, "{{ inputs.value }}"), last).encode()


def _rounds(steps: int, engram: str) -> Document:
    """Parts of a hundred steps, one after the other."""
    parts = -(-steps // MOST_STEPS)
    if parts > MOST_STEPS:
        raise ValueError(f"a Story of Stories has at most {MOST_STEPS * MOST_STEPS:,} steps in a row")
    whole = [
        {
            "name": f"part{at}",
            "type": "executeStory",
            "needs": [f"part{at - 1}"] if at else [],
            "with": {"storyRef": {"name": CHILD}, "with": {"part": at}},
        }
        for at in range(parts)
    ]
    return "\n---\n".join(
        (_story("bench", whole), _story(CHILD, _chain(min(steps, MOST_STEPS), engram, GIVEN)))
    ).encode()


def _fan(width: int, engram: str) -> Document:
    if width <= MOST_BRANCHES:
        branches = [{"name": f"b{at}", "ref": {"name": engram}, "with": {"value": GIVEN}} for at in range(width)]
        return _story("bench", [{"name": "all", "type": "parallel", "with": {"steps": branches}}]).encode()
    step = {"name": "all", "ref": {"name": "map-reduce-adapter"}}
    step["with"] = {
        "items": [0] * width,
        "map": {"storyRef": {"name": CHILD}, "concurrency": width, "batchSize": width},
    }
    return "\n---\n".join((_story("bench", [step]), _story(CHILD, _chain(1, engram, GIVEN)))).encode()


LANGUAGE = Language(
    title="Story",
    sequence=_sequence,
    rounds=_rounds,
    fan=_fan,
    wait=lambda seconds: _story(
        "bench", [{"name": "wait", "type": "sleep", "with": {"duration": f"{seconds}s"}}]
    ).encode(),
    given=lambda value: {"value": value},
    value_of=lambda result: result["value"],
    loops=False,
    widest=MOST_BRANCHES,
)
