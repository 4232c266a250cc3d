"""Names for runs and for parts of their work.

A root run's id is drawn by the engine; everything else derives from it, so that a fold gives the same names everywhere.
Numbers inside a run are never reused, not even by a later life of it.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from perdure.kernel.json_values.values import RunId
from perdure.kernel.lazy_regex import lazy_regex

DEFAULT_NAMESPACE = "default"
LABEL_OWNERS = ("bubustack.io", "perdure.dev")
_NAMESPACE = lazy_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def namespace_problem(namespace: str) -> str | None:
    """What is wrong with the name of a namespace; None when it is a DNS label."""
    if _NAMESPACE.fullmatch(namespace):
        return None
    return f"{namespace[:80]!r} is not a namespace (expected lower-case letters, digits and -, at most 63)"


def reserved_label(names: Iterable[str]) -> str | None:
    """The first of these names of labels that only the engine may give to a run; None if there is none."""
    for name in names:
        group, slash, _ = name.partition("/")
        if slash and any(group == owner or group.endswith(f".{owner}") for owner in LABEL_OWNERS):
            return name
    return None


def child_run(parent: RunId, child: int) -> RunId:
    return RunId(f"{parent}.{child}")


class ServerGroup(NamedTuple):
    """Processes of one machine that are one server together."""

    name: str
    place: int  # of this process, from 0
    size: int


class RunName(NamedTuple):
    """The namespace and name that one run has and no other."""

    language: str
    namespace: str
    name: str


def is_family(run: str, ancestor: str) -> bool:
    """Whether the run is the ancestor itself or a descendant of it."""
    return run == ancestor or run.startswith(f"{ancestor}.")


def root_of(run: str) -> RunId:
    """The run at the top of its family."""
    return RunId(run.partition(".")[0])


@lru_cache(maxsize=4096)  # needed several times for every task
def family_of(run: str) -> str:
    """The root run above it, which names the family: that run and all below it."""
    return run.partition(".")[0]


def idempotency_key(run: RunId, incarnation: int, path: str) -> str:
    """Stable over attempts and deliveries, so that an outside system can recognise a repetition.

    A later life of a reopened run repeats its work under new keys.
    """
    life = "" if incarnation == 1 else f"r{incarnation}/"
    return f"{run}/{life}{path}"
