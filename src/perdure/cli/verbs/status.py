"""`status`: how a run stands, without what it has produced; for those who ask often (PBK-213)."""

import argparse
import sys
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console, width_of
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_observer
from perdure.cli.outline import outline
from perdure.cli.stdout import give_json, give_text
from perdure.cli.times import iso
from perdure.engine import run_views
from perdure.engine.client import Client
from perdure.kernel.execution import Execution
from perdure.views.run_status import RunStatus, stands

PIPE_WIDTH = 160

EXAMPLES = """\
examples:
  perdure status 06g2k
  perdure status 06g2k --json      status, current, pending, steps, failures, times, last_seq; never results

`perdure show` has everything, results too.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)


def perform(asked: argparse.Namespace, talk: Console) -> int:
    return complete(_status(asked, talk))


async def _status(asked: argparse.Namespace, talk: Console) -> int:
    async with open_observer(asked, talk) as observer:
        run = await observer.resolve(asked.run)
        row, execution, pending = await observer.outlook(run)
        told = run_views.with_pending(await _told(observer, await stands(observer, row, execution), execution), pending)
        told = (await run_views.mask_of(observer.store, execution)).data(told)
        if asked.json:
            give_json(told)
        else:
            give_text("\n".join(outline(told, width_of(sys.stdout) or PIPE_WIDTH)))
        return Exit.OK


async def _told(client: Client, stand: RunStatus, execution: Execution) -> dict[str, Any]:
    state, dialect = execution.state, execution.dialect
    brief = dialect.brief(execution) or {"status": stand.status}
    last_seq = state.seq
    if dialect.has_own_history:
        turns = await run_views.turns(client.store, dialect, execution.id)
        last_seq = sum(1 for _ in dialect.history(execution.id, turns))
    now = client.clock.now()
    return {
        "execution_id": execution.id,
        **brief,
        "waits_for": [wait.text(now) for wait in stand.waits],
        "live": stand.is_owned,
        "started_at": iso(state.started_at),
        "updated_at": iso(state.at),
        "ended_at": iso(state.ended_at),
        "last_seq": last_seq,
    }
