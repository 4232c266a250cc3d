"""Messages to our runs: written by other runs and other processes, deleted by the commit that decides them."""

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from perdure.engine.context import EngineContext
from perdure.engine.slot import Mail
from perdure.kernel import inputs as i
from perdure.kernel.errors import NewerRecord
from perdure.kernel.ids import child_run
from perdure.kernel.json_values.values import Instant, Ref, RunId
from perdure.kernel.outcomes import Succeeded
from perdure.stores.commit_types import DeliveredMessage

if TYPE_CHECKING:
    from perdure.engine.scheduler import Scheduler

_log = logging.getLogger("perdure.engine")

READ_AT_ONCE = 1_000


class Inbox:
    def __init__(self, context: EngineContext, scheduler: "Scheduler") -> None:
        self._store = context.store
        self._clock = context.clock
        self._context = context
        self._scheduler = scheduler
        self._taken: set[int] = set()  # positions that are in a mailbox
        self._kept: dict[int, int] = {}  # positions that wait, for a stuck run or a newer server, and their partition
        self._reading: list[set[int]] = []  # by read in flight: positions that were decided since it began
        self._heard: dict[int, Instant] = {}  # by partition: all that was acknowledged until then is known

    def read_soon(self) -> None:
        self._context.tasks.spawn(self.read())

    async def read(self) -> None:
        began, partitions = self._clock.now(), list(self._context.partitions)
        decided: set[int] = set()
        self._reading.append(decided)
        try:
            messages = await self._all(partitions)
        finally:
            self._reading = [positions for positions in self._reading if positions is not decided]
        for delivered in messages:
            if delivered.position not in decided:  # it was there when the store looked, and is not any more
                self.take(delivered)
        for partition in partitions:
            self._heard[partition] = max(began, self._heard.get(partition, 0))

    async def _all(self, partitions: Sequence[int]) -> list[DeliveredMessage]:
        """Nothing is taken before all is known: control messages that wait together are accepted together."""
        # What we know of is still there until it is decided; it must not hide what is new.
        limit = len(self._taken) + len(self._kept) + READ_AT_ONCE
        while len(messages := await self._store.inbox(partitions, limit)) >= limit:
            limit *= 2
        return messages

    def known_until(self, partition: int) -> Instant:
        """Until when all messages to the partition's runs are known."""
        return self._heard.get(partition, 0)

    def take(self, delivered: DeliveredMessage) -> None:
        run, position = delivered.message.to, delivered.position
        if position in self._taken or delivered.partition not in self._context.partitions:
            return
        try:
            input = i.decode(delivered.message.body)
        except NewerRecord as error:
            if position not in self._kept:
                _log.warning("run %s: %s; it waits for a server with a newer Perdure", run, error, extra={"run": run})
            self._kept[position] = delivered.partition
            self._scheduler.incompatible.note(run, delivered.partition)
            return
        if run in self._context.stuck and not isinstance(input, i.Wake):
            self._kept[position] = delivered.partition
            return
        self._kept.pop(position, None)
        self._taken.add(position)
        mail = Mail(delivered.message.at, 0, input, position=position, borrowed=borrowed_by(run, input))
        mail.partition = delivered.partition
        self._scheduler.offer(run, mail)

    def leave(self, partitions: Collection[int]) -> None:
        """These are not ours any more."""
        self._kept = {position: home for position, home in self._kept.items() if home not in partitions}
        for partition in partitions:
            self._heard.pop(partition, None)

    def forget(self, mails: Iterable[Mail]) -> None:
        """These are decided and deleted, or wait in the inbox again."""
        for mail in mails:
            if mail.position is not None:
                self._taken.discard(mail.position)
                for decided in self._reading:
                    decided.add(mail.position)

    async def discard(self, mails: Sequence[Mail]) -> None:
        """These concern nobody."""
        positions = [mail.position for mail in mails if mail.position is not None]
        if positions:
            await self._store.discard(positions)
            self.forget(mails)


def borrowed_by(run: RunId, input: i.Input) -> tuple[tuple[RunId, bytes | None], ...]:
    """Large values that a message names and that lie with its sender; they are copied with the commit that takes it."""
    match input:
        case i.Start(input=Ref(name), parent=(source, _)):
            return ((source, name),)
        case i.ChildResult(child=child, outcome=Succeeded(Ref(name))):
            return ((child_run(run, child), name),)
        case _:
            return ()
