"""`redrive`: reopen a run that has ended, whole or from one step on; it lives once more under the same id."""

import argparse
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.control import steer
from perdure.cli.interrupts import complete
from perdure.engine.client import Client
from perdure.engine.message_sending import SendResult
from perdure.kernel.values import RunId

EXAMPLES = """\
examples:
  perdure redrive 06g2k && perdure resume 06g2k
  perdure redrive 06g2k --key ticket-17          counts once, however often it is sent
  perdure redrive deploy-x7k --from ship         a Story: this step, what waits for it, and all cleanup

What is kept of the first life is the language's business. A Story that is still open is stopped first; any other open
run is a conflict (exit code 9).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("--from", metavar="STEP", dest="step", default="", help="only this step and what follows it")
    parser.add_argument("--by", metavar="WHO", default="", help="who decided this; kept in the history")
    a.add_key(parser)


def perform(asked: argparse.Namespace, talk: Console) -> int:
    return complete(steer(asked, talk, "reopened", lambda client, run: _send(client, run, asked)))


async def _send(client: Client, run: RunId, asked: argparse.Namespace) -> SendResult:
    said: dict[str, Any] | None = None
    if asked.step or asked.key:
        said = {"step": asked.step, "token": asked.key or ""}
    row = await client.find(run)
    if row.status.is_final:
        return await client.redrive(run, said, key=asked.key, by=asked.by)
    return await client.steer(run, "redrive", said or {}, key=asked.key, by=asked.by)
