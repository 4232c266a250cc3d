"""The lease of this process, kept by a thread with a connection of its own: it waits for no decision and for no commit.

The same connection listens for hints and sends ours. Each renewal also looks for what no hint told of: messages,
changes of the catalog, and when the next of the others will have fallen silent; an idle process asks for little else.
The deadline is counted from before a renewal was sent, by a clock that goes on while the machine sleeps.
"""

import os
import select
import threading
import time
from math import inf
from typing import Any

import psycopg

from perdure.kernel.json_values.values import SECOND, Instant
from perdure.stores.clocks import sources
from perdure.stores.errors import StoreError
from perdure.stores.postgres.catalog import CATALOG
from perdure.stores.postgres.clock_offset import EVERYONE, JUMP, SHIFT
from perdure.stores.postgres.database import Database, microseconds
from perdure.stores.postgres.session import ConnectionLost, Session
from perdure.stores.postgres.wire import INT, INTS, Statement

LONGEST_PAUSE = 1.0
ANY: Instant = 1 << 62

_RENEW = Statement(
    "UPDATE servers SET until = {0} + {1}, renewed = {0} WHERE id = {2} AND abs(instant() - {0}) <= {3}"
    f" RETURNING instant(), {SHIFT}, reads, (SELECT min(s.reads) FROM servers s WHERE s.until >= {{0}}),"
    " (SELECT min(s.until) FROM servers s WHERE s.id <> servers.id),"
    " EXISTS (SELECT 1 FROM partitions p WHERE p.owner = servers.id"
    " AND EXISTS (SELECT 1 FROM inbox WHERE inbox.partition = p.id)),"
    " (SELECT last_value + is_called::int FROM resource_versions)",
    INT,
    INT,
    INT,
    INT,
)
NOTIFY_OWNERS = Statement(
    "SELECT pg_notify('perdure_' || owner, '') FROM (SELECT DISTINCT owner FROM partitions WHERE id = ANY({})"
    " AND owner IS NOT NULL) AS owners",
    INTS,
)


def boot_time() -> float:
    """Seconds that never jump, and pass while the machine sleeps where the system can count them."""
    return sources.boot() / SECOND


class ServerLease:
    def __init__(self, database: Database, server: int, until: float, min_record_version: int) -> None:
        self.server = server
        self._database = database
        self._until = until
        self.min_record_version = min_record_version  # what all who live can read; told again by every renewal
        self._is_lost = False
        self._is_ending = False
        self._silent_at = inf  # when the first of the others will have been silent for too long, unless it renews
        self._catalog = -1
        self._for_owners: set[int] = set()
        self._for_everyone = False
        self.has_messages = threading.Event()
        self.has_news = threading.Event()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._thread = threading.Thread(target=self._keep, name="perdure-lease", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return self._is_lost or boot_time() >= self._until

    def lose(self) -> None:
        """Somebody has taken over."""
        self._is_lost = True

    def notify_owners(self, partitions: set[int]) -> None:
        """Hint to whoever owns these that messages have come; what is told in quick succession is told once."""
        self._for_owners |= partitions
        self._wake_thread()

    def notify_everyone(self) -> None:
        """Hint that a partition is free, or that somebody has come."""
        self._for_everyone = True
        self._wake_thread()

    def end(self) -> None:
        """Renew no more. What was to be told is told."""
        if not self._is_ending:
            self._is_ending = True
            self._wake_thread()
            self._thread.join()
            os.close(self._woken)
            os.close(self._wake)

    def _wake_thread(self) -> None:
        try:
            os.write(self._wake, b"!")
        except OSError:
            pass  # full: it is awake already

    def _keep(self) -> None:
        pause = 0.02
        session: Session | None = None
        while not self._is_ending and not self._is_lost:
            try:
                if session is None:
                    session = self._database.connect("lease")
                    session.execute(f"LISTEN perdure_{self.server}; LISTEN {EVERYONE}; LISTEN {CATALOG}")
                    self._on_notifications(
                        f"perdure_{self.server}", EVERYONE, CATALOG
                    )  # perhaps, while nobody listened
                self._renew_and_listen(session)
                pause = 0.02
            except (StoreError, ConnectionLost, psycopg.Error) as error:
                self._database.warn(f"the lease cannot be renewed now: {' '.join(str(error).split())}")
                if session is not None:
                    session.close()
                    session = None
                self._pause(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
        if session is not None:
            try:
                self._send_notifications(session)
            except (ConnectionLost, psycopg.Error):
                pass  # hints only hasten
            session.close()

    def _renew_and_listen(self, session: Session) -> None:
        """Renew, then listen and pass hints on until the next renewal."""
        self._renew(session)
        again = time.monotonic() + self._database.settings.lease / 3
        while not self._is_ending and (remaining := again - time.monotonic()) > 0:
            remaining = min(remaining, max(0.0, self._silent_at - boot_time()))
            if self._woken in _ready(remaining, session.socket, self._woken):
                os.read(self._woken, 4_096)
                self._send_notifications(session)
            channels = session.notified_channels()
            if channels:
                self._on_notifications(*channels)
            if EVERYONE in channels:
                self._renew(session)  # who came may read less than we write
            if boot_time() >= self._silent_at:
                self._silent_at = inf
                self._on_notifications(EVERYONE)

    def _renew(self, session: Session) -> None:
        sent_at, count = boot_time(), self._database.clock
        rows = self._ask(session, count.now(), JUMP)
        if not rows:  # no row of ours, or a clock has jumped
            self._database.settle(session)
            sent_at = boot_time()
            rows = self._ask(session, count.now(), ANY)
        if not rows:
            self._is_lost = True
            return
        at, shift, own_version, lowest, silent, has_messages, catalog = rows[0]
        if count.compare(at, shift, int(sent_at * SECOND)):
            self._database.settle(session)
        self.min_record_version = own_version if lowest is None else min(own_version, lowest)
        self._until = sent_at + self._database.settings.lease
        self._silent_at = inf if silent is None else sent_at + max(0, silent - count.now()) / SECOND
        if has_messages:
            self._on_notifications(f"perdure_{self.server}")
        if catalog != self._catalog:
            self._catalog = catalog
            self._on_notifications(CATALOG)

    def _ask(self, session: Session, now: Instant, tolerance: Instant) -> list[tuple[Any, ...]]:
        lease = self._database.settings.lease
        session.send(_RENEW, now, microseconds(lease), self.server, tolerance)
        return session.receive_rows(time.monotonic() + lease)

    def _on_notifications(self, *channels: str) -> None:
        for channel in channels:
            match channel:
                case "perdure_everyone":
                    self.has_news.set()
                case "perdure_catalog":
                    self._database.notifications.catalog += 1
                case _:
                    self.has_messages.set()
        self._database.notifications.woken()

    def _send_notifications(self, session: Session) -> None:
        owners, self._for_owners = self._for_owners, set()
        if owners:
            session.run(NOTIFY_OWNERS, sorted(owners))
        if self._for_everyone:
            self._for_everyone = False
            session.execute(f"NOTIFY {EVERYONE}")

    def _pause(self, seconds: float) -> None:
        if _ready(seconds, self._woken):
            os.read(self._woken, 4_096)


def _ready(seconds: float, *descriptors: int) -> list[int]:
    """Those of them on which something has come, waited for so long. `select` knows no descriptor above 1,023."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(seconds * 1_000)]
