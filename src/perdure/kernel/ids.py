"""Names for runs and for pieces of their work.

A run's own id is drawn by the shell; everything inside a run derives from it,
so a fold gives the same names on every machine.
"""

from perdure.kernel.values import RunId


def child_run(parent: RunId, incarnation: int, child: int) -> RunId:
    """`…​.3` is the third child of the first life, `….r2.3` of the second."""
    life = "" if incarnation == 1 else f"r{incarnation}."
    return RunId(f"{parent}.{life}{child}")


def idempotency_key(run: RunId, incarnation: int, path: str) -> str:
    """Stable over attempts and deliveries, so that an outside system can recognise a repetition."""
    life = "" if incarnation == 1 else f"r{incarnation}/"
    return f"{run}/{life}{path}"
