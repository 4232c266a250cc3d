"""Three servers on one store, runs of the three languages by the hundred, and everything that can go wrong.

A short play has some of the faults, others at each commit, and each within 20 (see `tests/sampling.py`).

PERDURE_CHAOS_SEED=42        other faults at other moments; the seed is printed with every failure
PERDURE_CHAOS_SECONDS=600    longer, with as many more runs
PERDURE_CHAOS_POSTGRES=15    on this version
"""

import asyncio
import os
from pathlib import Path
from random import Random

import pytest

from tests.postgres import OLDEST_SHARE
from tests.sampling import PERIOD, seed

SEED = int(os.environ.get("PERDURE_CHAOS_SEED", seed() or 8))
SECONDS = float(os.environ.get("PERDURE_CHAOS_SECONDS", "25"))
VERSION = int(os.environ.get("PERDURE_CHAOS_POSTGRES", 18 if SEED % OLDEST_SHARE else 15))
ALL_KINDS = 75  # seconds, in which every kind of fault comes


def test_three_servers_on_postgresql_end_every_run_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Promises 2 to 4, invariants 2, 7, 12, 14, 17, 18, 21, 22, 26, 27, 30 and 32.

    Servers are killed, also by a task and all at once, stopped beyond their lease, terminated; PostgreSQL is restarted
    and crashed, and its clock is set; connections are cut and held. Then every run has ended with the Result of a
    fault-free run, no event is lost or doubled, every acknowledged word counts or was declined in the log, no finished
    task and no completed effect ran again, the outside saw each key once, and nothing is held by anybody.
    """
    from tests.journeys.chaos.scenario import ChaosSettings, with_faults, without_faults

    settings = ChaosSettings(runs=int(SECONDS * 7), seconds=SECONDS, seed=SEED, version=VERSION)
    calm = asyncio.run(without_faults(tmp_path))
    report = asyncio.run(with_faults(tmp_path, calm, settings))

    assert report.wrong == [], report.explain()
    assert report.injected
    assert report.verdict.redelivered > 0 or SECONDS < ALL_KINDS, "no task was hit"


@pytest.mark.sampled(4)
def test_workers_elsewhere_and_their_servers_fail_and_every_task_ends_once(tmp_path: Path) -> None:
    """SRV-033, promises 2 to 4: three servers, four workers, all tasks leave the servers; the same checks.

    Workers are killed, also by a task, stopped beyond their leases and drained; servers are killed, stopped and
    terminated; connections to the database are cut.
    """
    from tests.journeys.chaos.scenario import ChaosSettings, with_faults, without_faults

    settings = ChaosSettings(runs=int(SECONDS * 3), seconds=SECONDS, seed=SEED, version=VERSION, workers=4, timeout=240)
    calm = asyncio.run(without_faults(tmp_path))
    report = asyncio.run(with_faults(tmp_path, calm, settings))

    assert report.wrong == [], report.explain()
    assert report.injected


def test_servers_on_one_file_are_killed_and_stopped_and_everything_gets_done(tmp_path: Path) -> None:
    """Promises 2 to 4, invariant 23."""
    from tests.journeys.chaos.scenario import ChaosSettings, with_faults, without_faults

    calm = asyncio.run(without_faults(tmp_path))
    report = asyncio.run(with_faults(tmp_path, calm, ChaosSettings(runs=64, seconds=8, seed=SEED, version=None)))

    assert report.wrong == [], report.explain()


def test_every_fault_comes_first_within_twenty_commits() -> None:
    from tests.journeys.chaos.faults import OF_DATABASES, OF_PROCESSES, first_round

    for faults in (OF_PROCESSES, OF_PROCESSES + OF_DATABASES):
        rounds = [first_round(faults, number, Random(number)) for number in range(SEED, SEED + PERIOD)]

        assert {ahead[-1] for ahead in rounds} == set(faults)
        assert all(set(ahead) == set(faults) and len(ahead) == len(faults) for ahead in rounds)
