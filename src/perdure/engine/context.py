"""What the parts of one engine share."""

from collections.abc import Mapping

import msgspec

from perdure.engine.background_tasks import BackgroundTasks
from perdure.engine.clock import Clock
from perdure.engine.dispatch import Executor
from perdure.engine.settings import Settings
from perdure.engine.slot import Slot
from perdure.kernel.dialect import Dialect
from perdure.kernel.values import RunId
from perdure.stores.protocol import Store


class EngineContext(msgspec.Struct, gc=False, eq=False):
    store: Store
    dialects: Mapping[str, Dialect]
    executor: Executor
    clock: Clock
    settings: Settings
    tasks: BackgroundTasks
    partitions: list[int] = []  # whose runs we drive; those that are being handed over are not among them
    slots: dict[RunId, Slot] = {}  # the runs in memory
    stuck: dict[RunId, int] = {}  # runs that cannot be decided, with their partitions
