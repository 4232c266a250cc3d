"""What a database under load is made of: rows, dead rows and bytes by table, and how often vacuum came.

    createdb bloat && python -m bench.bloat postgresql://localhost/bloat --minutes 5

One engine, many runs at once: each has ten steps, a child (two letters through the inbox), a limit over all runs and a
short sleep, on disk and out of memory. Runs that ended half a minute ago are pruned all the time, so that the database
stays about as large as what is open; what grows nevertheless is bloat. The server's autovacuum is left as it is.
"""

import argparse
import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import perdure
from perdure.engine.clock import SystemClock
from perdure.stores.admin import TableSize
from perdure.testing.drill import Drill
from perdure.wiring import add_language, open_admin

add_language(Drill)

KID = {"drill": 1, "name": "kid", "steps": [{"call": "bloat-step"}, {"return": 1}]}
DOCUMENT = {
    "drill": 1,
    "name": "bloat",
    "steps": [
        {"repeat": 10, "do": [{"call": "bloat-step"}]},
        {"child": KID},
        {"permit": "bloat", "limit": 50, "do": [{"call": "bloat-step"}]},
        {"sleep": "500ms"},
        {"return": 1},
    ],
}
STEPS = 12
SHOWN = ("runs", "log", "inbox", "permits", "programs", "servers", "partitions")
KEPT = 30  # seconds


@perdure.provider("bloat-step", inline=True)
def step(input: Any = None) -> Any:
    return input


@dataclass
class Load:
    ended: int = 0
    pruned: int = 0
    is_over: bool = False
    peaks: dict[str, tuple[int, int]] = field(default_factory=dict)  # bytes, dead rows


async def main(address: str, minutes: float, width: int) -> None:
    load = Load()
    async with perdure.Engine(address) as engine:
        going = [asyncio.create_task(_one_after_the_other(engine, load)) for _ in range(width)]
        pruning = asyncio.create_task(_prune(engine, load))
        began = time.monotonic()
        print(
            f"{'seconds':>8}{'steps/s':>9}{'pruned':>9}  " + "".join(f"{f'{name}: rows dead MB':>28}" for name in SHOWN)
        )
        while time.monotonic() - began < minutes * 60:
            before, at = load.ended, time.monotonic()
            await asyncio.sleep(10)
            rate = (load.ended - before) * STEPS / (time.monotonic() - at)
            tables = await asyncio.to_thread(lambda: open_admin(address, SystemClock()).statistics().tables)
            _tell(time.monotonic() - began, rate, load, {table.name: table for table in tables})
        load.is_over = True
        await asyncio.gather(*going)
        pruning.cancel()
    for name, (size, dead) in sorted(load.peaks.items(), key=lambda item: -item[1][0]):
        print(f"{name}: at most {size / 1e6:.1f} MB and {dead:,} dead rows")
    _vacuums(address)


async def _one_after_the_other(engine: perdure.Engine, load: Load) -> None:
    while not load.is_over:
        await (await engine.start(DOCUMENT)).result()
        load.ended += 1


async def _prune(engine: perdure.Engine, load: Load) -> None:
    while True:
        await asyncio.sleep(1)
        load.pruned += await engine.prune(engine.clock.now() - KEPT * 1_000_000)


def _tell(seconds: float, rate: float, load: Load, tables: dict[str, TableSize]) -> None:
    cells = []
    for name, table in tables.items():
        size, dead = load.peaks.get(name, (0, 0))
        load.peaks[name] = (max(size, table.bytes), max(dead, table.dead or 0))
    for name in SHOWN:
        table = tables[name]
        cells.append(f"{table.rows:>14,}{table.dead or 0:>8,}{table.bytes / 1e6:>6.1f}")
    print(f"{seconds:>8.0f}{rate:>9,.0f}{load.pruned:>9,}  {''.join(cells)}", flush=True)


def _vacuums(address: str) -> None:
    import psycopg

    with psycopg.connect(address) as connection:
        for name, count, updates, hot, deleted in connection.execute(
            "SELECT relname, autovacuum_count, n_tup_upd, n_tup_hot_upd, n_tup_del FROM pg_stat_user_tables"
            " WHERE schemaname = 'perdure' AND n_tup_upd + n_tup_del > 0 ORDER BY relname"
        ):
            shared = f", {hot / updates:.0%} of them in place" if updates else ""
            print(f"{name}: vacuumed {count} times; {updates:,} rows updated{shared}; {deleted:,} deleted")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("address", help="an empty database")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--width", type=int, default=200, help="runs at once")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.address, arguments.minutes, arguments.width))
