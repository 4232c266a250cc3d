"""What the parts of one engine share."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from perdure.engine.background_tasks import BackgroundTasks
from perdure.engine.clock import Clock
from perdure.engine.settings import Settings
from perdure.engine.slot import Slot
from perdure.kernel.dialect import Dialect
from perdure.kernel.json_values.values import RunId
from perdure.stores.protocol import Store

if TYPE_CHECKING:
    from perdure.engine.tasks.executor import Executor


class EngineContext(msgspec.Struct, gc=False, eq=False):
    store: Store
    dialects: Mapping[str, Dialect]
    executor: "Executor"
    clock: Clock
    settings: Settings
    tasks: BackgroundTasks
    partitions: list[int] = []  # whose runs we drive; those that are being handed over are not among them
    slots: dict[RunId, Slot] = {}  # the runs in memory
    stuck: dict[RunId, int] = {}  # runs that cannot be decided, with their partitions
