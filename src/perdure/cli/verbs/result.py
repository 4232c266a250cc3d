"""`result get`: the body behind a reference, which no picture of a run shows (PBK-174)."""

import argparse

from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_observer
from perdure.cli.stdout import give_json
from perdure.engine import run_views

EXAMPLES = """\
examples:
  perdure result get noetl://execution/06g2k…/step/load/task/page/run/r1%2F1/attempt/1
  perdure result get default/load-q7x2m/steps/read/rows.json
  perdure result get 06g2k              the run's own result, whatever its size

A reference is what stands under `ref` in the place of a large result. The answer is JSON.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("what", choices=["get"], help="the only thing that can be done with one")
    parser.add_argument("ref", metavar="REF", help="the reference, or the run whose result is meant")


def perform(asked: argparse.Namespace, talk: Console) -> int:
    return complete(_result(asked, talk))


async def _result(asked: argparse.Namespace, talk: Console) -> int:
    scheme, _, path = asked.ref.rpartition("://")
    parts = path.split("/")
    owner = parts[1] if scheme and parts[0] == "execution" and len(parts) > 1 else asked.ref
    if scheme and owner == asked.ref:
        raise BadUsage(f"{asked.ref!r} does not name the execution that holds it")
    is_address = not scheme and len(parts) > 2 and path.endswith(".json")  # of a Story: namespace/StoryRun/…
    if is_address:
        owner = parts[1]
    async with open_observer(asked, talk) as observer:
        row = await observer.find(await observer.resolve(owner))
        execution = await run_views.load(observer.store, observer.languages, row)
        if not execution.dialect.has_references:
            raise BadUsage(f"runs of language {row.language!r} hold nothing by reference", hint="See `perdure show`.")
        give_json(
            await run_views.body_of(
                observer.store, execution, asked.ref if scheme or is_address else "", observer.clock.now()
            )
        )
        return Exit.OK
