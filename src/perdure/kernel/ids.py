"""Names for runs and for parts of their work.

A root run's id is drawn by the engine; everything else derives from it, so that a fold gives the same names everywhere.
Numbers inside a run are never reused, not even by a later life of it.
"""

from functools import lru_cache
from typing import NamedTuple

from perdure.kernel.values import RunId


def child_run(parent: RunId, child: int) -> RunId:
    return RunId(f"{parent}.{child}")


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
