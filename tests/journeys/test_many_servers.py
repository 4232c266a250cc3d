"""Three servers on one store, runs of the three languages by the hundred, and everything that can go wrong.

PERDURE_CHAOS_SEED=42        other faults at other moments; the seed is printed with every failure
PERDURE_CHAOS_SECONDS=600    longer, with as many more runs
"""

import os
from pathlib import Path

SEED = int(os.environ.get("PERDURE_CHAOS_SEED", "8"))


async def test_servers_on_one_file_are_killed_and_stopped_and_everything_gets_done(tmp_path: Path) -> None:
    """Promises 2 to 4, invariant 23."""
    from tests.journeys.chaos.play import Told, with_faults, without_faults

    calm = await without_faults(tmp_path)
    report = await with_faults(tmp_path, calm, Told(runs=64, seconds=10, seed=SEED, version=None))

    assert report.wrong == [], f"{report}\n" + "\n".join(report.wrong[:40])
