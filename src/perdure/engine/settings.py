"""What an operator may turn."""

from collections.abc import Mapping

import msgspec

from perdure.kernel.execution import Limits


class Settings(msgspec.Struct, frozen=True):
    limits: Limits = Limits()
    routes: Mapping[str, str] = {}  # provider → pool of workers elsewhere that does its tasks
    recall_grace: float = 10.0  # seconds that a worker elsewhere has to stop a task that was recalled
    snapshot_bytes: int = 32 * 1024  # a log tail shorter than this needs no snapshot
    tasks_in_flight: int = 256  # in this process, over all runs of one language; see `TaskQueue`
    batch: int = 1_000  # transitions in one commit
    poll: float = 0.08  # seconds between looks for messages from other processes
    lease_sweep: float | None = None  # seconds between looks for leases that ended without a result; else the store's
    commit_tries: int = 3  # commits of unknown end in a row before the engine gives up
    serves: bool = False  # take over what has no owner, and share it with other servers
    drives: bool = True  # False: a server that looks, sends messages and serves workers, and leaves runs to others
    share_every: float | None = None  # seconds between looks at who came and who left; else as the store likes it
    recover_every: float = 2.0  # seconds between looks for runs that have no owner, where an engine takes them up
    drain: float = 3.0  # seconds a partition may take to be handed over to another server; else it stays
    grace: float = 10.0  # seconds for tasks in flight to end, when a server leaves
    processes: int = 1  # that are one server together: what one may do at a time is divided among them
    place: int = 0  # of this process among them
