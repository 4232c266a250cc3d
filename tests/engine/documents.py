"""Drills that between them use every verb of the kernel."""

from typing import Any

ECHO: dict[str, Any] = {"call": "echo", "input": "$input"}


def drill(*steps: dict[str, Any], cleanup: list[dict[str, Any]] | None = None, name: str = "test") -> dict[str, Any]:
    document: dict[str, Any] = {"drill": 1, "name": name, "steps": list(steps)}
    if cleanup is not None:
        document["cleanup"] = cleanup
    return document


CHAIN = drill({"call": "echo", "input": 1, "save": "a"}, {"call": "echo", "input": 2}, {"return": {"a": "$a"}})
SLEEPER = drill({"sleep": "1h"}, {"return": "awake"})
FAN = drill({"each": 5, "do": [{"call": "echo", "input": "$index"}], "limit": 2, "save": "all"}, {"return": "$all"})
BRANCHES = drill(
    {
        "all": [[{"sleep": "2s"}, {"call": "echo", "input": "slow"}], [{"call": "echo", "input": "fast"}]],
    },
    {"return": "joined"},
)
RETRY = drill(
    {"call": "flaky", "retry": {"attempts": 3, "delay": "1s", "jitter": True}, "save": "got"}, {"return": "$got"}
)
PARENT = drill(
    {
        "child": drill({"sleep": "5s"}, {"call": "echo", "input": "$input"}, name="kid"),
        "input": {"n": 1},
        "save": "kid",
    },
    {"return": {"kid": "$kid"}},
)
PERMITS = drill(
    {
        "each": 3,
        "do": [{"permit": "printer", "limit": 1, "do": [{"sleep": "1s"}, {"call": "echo", "input": "$index"}]}],
    },
    {"return": "printed"},
)
SIGNAL = drill({"signal": "go", "save": "said", "timeout": "1d"}, {"return": "$said"})
SPIN = drill({"spin": 3500}, {"call": "echo", "input": "dizzy"}, {"return": "done"})
DRAW = drill({"draw": "x"}, {"sleep": "1s"}, {"draw": "y"}, {"return": {"x": "$x", "y": "$y"}})
FAILS = drill({"call": "echo", "input": 1}, {"fail": "Out.OfLuck"}, cleanup=[{"call": "echo", "input": "swept"}])
CAUGHT = drill({"call": "broken", "catch": [{"call": "echo", "input": "caught"}]}, {"return": "fine"})
LARGE = drill(
    {"call": "big", "save": "big"},
    {"call": "echo", "input": "$big", "save": "again"},
    {"call": "echo", "input": {"wrapped": "$again"}, "save": "wrapped"},
    {"child": drill({"call": "measure", "input": "$input"}, name="kid"), "input": "$big", "save": "length"},
    {"return": {"length": "$length"}},
)
TIMEOUT = drill(
    {"call": "slow", "timeout": "2s", "grace": "1s", "catch": [{"call": "echo", "input": "late"}]},
    {"return": "moved on"},
)

ALL: dict[str, dict[str, Any]] = {
    "chain": CHAIN,
    "sleeper": SLEEPER,
    "fan": FAN,
    "branches": BRANCHES,
    "retry": RETRY,
    "parent": PARENT,
    "permits": PERMITS,
    "signal": SIGNAL,
    "spin": SPIN,
    "draw": DRAW,
    "fails": FAILS,
    "caught": CAUGHT,
    "large": LARGE,
    "timeout": TIMEOUT,
}
