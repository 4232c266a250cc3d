"""Which tests begin first, where several workers share them (`pytest -n 4 --dist worksteal`).

Half of the workers begin with the files whose tests mostly wait, the longest ones first; the others use the processors
meanwhile. At the end, when workers run out of tests, none of the long ones is left.
"""

from collections.abc import Sequence

WAITING = {
    "tests/console/test_journeys.py": 85,
    "tests/journeys/test_servers.py": 75,
    "tests/journeys/test_many_servers.py": 45,
    "tests/streams/test_nats.py": 27,
    "tests/cli/test_store_file_changes.py": 22,
    "tests/journeys/test_crash_attribution.py": 20,
    "tests/server/test_hooks.py": 19,
    "tests/server/test_pipelines.py": 17,
    "tests/stores/test_postgres_faults.py": 17,
    "tests/server/test_stream_workers.py": 17,
    "tests/engine/test_idle_servers.py": 14,
    "tests/server/test_worker_processes.py": 14,
    "tests/journeys/test_replicas.py": 13,
    "tests/providers/test_database_defences.py": 12,
    "tests/security/test_connections.py": 12,
    "tests/cli/test_migration_to_postgres.py": 10,
    "tests/server/test_command_line.py": 10,
    "tests/security/test_websockets.py": 10,
    "tests/server/test_workers.py": 10,
    "tests/server/test_no_engine.py": 9,
    "tests/streams/test_examples.py": 9,
    "tests/server/test_access.py": 8,
    "tests/server/test_audit_log.py": 8,
    "tests/cli/test_schedules.py": 7,
    "tests/server/test_runs.py": 6,
    "tests/server/test_traces.py": 6,
}
"""Seconds for which the tests of a file wait. They decide nothing but the order, so they may be old."""


def order(files: Sequence[str], workers: int) -> list[int]:
    """The tests, by number, in the order in which the workers get them; `files` has the file of each test.

    pytest-xdist cuts the tests into one piece for each worker. Files stay in one piece as far as they can: what the
    tests of a file share is then made once.
    """
    waiting: dict[str, list[int]] = {file: [] for file in sorted(WAITING, key=WAITING.__getitem__, reverse=True)}
    others: list[int] = []
    for number, file in enumerate(files):
        waiting.get(file, others).append(number)
    first: list[list[int]] = [[] for _ in range(max(1, workers // 2))]
    seconds = [0] * len(first)
    for file, numbers in waiting.items():
        worker = seconds.index(min(seconds))
        seconds[worker] += WAITING[file]
        first[worker] += numbers
    result: list[int] = []
    for worker in range(workers):
        piece = (len(files) - len(result)) // (workers - worker)  # as `xdist.scheduler.worksteal` cuts them
        begin = first[worker] if worker < len(first) else []
        space = max(0, piece - len(begin))
        result += begin + others[:space]
        del others[:space]
    return result + others
