"""A capsule as a store of its own, for as long as somebody looks at it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from perdure.engine.clock import SystemClock
from perdure.engine.runs.capsules import Capsule
from perdure.views.runs.run_capsule import fill_store
from perdure.wiring import open_admin


@contextmanager
def capsule_store(capsule: Capsule) -> Iterator[str]:
    """The address of a store that has what the capsule has, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="perdure-") as folder:
        url = f"sqlite:///{folder}/capsule.db"
        admin = open_admin(url, SystemClock())
        admin.migrate()
        fill_store(capsule, admin)
        yield url
