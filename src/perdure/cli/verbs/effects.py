"""`effects`: what a run has done to the outside, and what nobody can say whether it did."""

import argparse
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.engine.runs import effects
from perdure.kernel.json_values import jsontext
from perdure.views.times import local

EXAMPLES = """\
examples:
  perdure effects 06g2k              key, state, since when, result
  perdure effects 06g2k --json

completed        it was performed and is never repeated
completed_unfit  it was performed, but its result has no JSON form: reading it fails
performing       a live process is performing it
in_doubt         its process is gone and may have performed it; see `perdure settle`
released         it failed and was not performed
"""

STYLES = {effects.COMPLETED: "green", effects.UNFIT: "red", effects.IN_DOUBT: "yellow"}
COLUMNS = (
    Column("KEY"),
    Column("STATE"),
    Column("SINCE", may_go=True),
    Column("RESULT", may_shrink=True),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_list(args, talk))


async def _list(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        run = await access.resolve(args.run)
        run_effects = await access.effects(run)
        if args.json:
            give_json(run_effects)
            return Exit.OK
        if not run_effects:
            talk.say(f"run {run} has claimed no effects")
            return Exit.OK
        rows = [_row(effect) for effect in run_effects]
        give_text("\n".join(table(COLUMNS, rows)))
        held_key = next((effect["key"] for effect in run_effects if effect["held"]), None)
        if held_key is not None:
            talk.say("a task is held until its effect is settled; find out whether it happened, then record it with")
            talk.say(f"  perdure settle {run} '{held_key}' --done RESULT     or     --not-done")
        return Exit.OK


def _row(effect: dict[str, Any]) -> list[tuple[str, str]]:
    state = f"{effect['state']}, held" if effect["held"] else effect["state"]
    result = jsontext.encode(effect["result"]).decode() if "result" in effect else effect.get("reason", "")
    if "settled_by" in effect:
        result += f" (settled by {effect['settled_by']})"
    return [
        (effect["key"], ""),
        (state, STYLES.get(effect["state"], "")),
        (local(effect["ended_at"] or effect["claimed_at"]), "dim"),
        (result, ""),
    ]
