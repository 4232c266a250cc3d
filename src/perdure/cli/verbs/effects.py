"""`effects`: what a run has done to the outside, and what nobody can say whether it did."""

import argparse
import sys
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, width_of
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_observer
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.engine import effects
from perdure.kernel import jsontext
from perdure.views.times import local

EXAMPLES = """\
examples:
  perdure effects 06g2k              key, state, since when, result
  perdure effects 06g2k --json

completed        it was performed, and is never performed again
completed_unfit  the same, but its result has no JSON form: whoever asks for it fails
performing       a live process is at it
in_doubt         its holder is gone, and may have performed it; see `perdure settle`
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


def perform(asked: argparse.Namespace, talk: Console) -> int:
    return complete(_list(asked, talk))


async def _list(asked: argparse.Namespace, talk: Console) -> int:
    async with open_observer(asked, talk) as observer:
        run = await observer.resolve(asked.run)
        found = await effects.effects(observer, run)
        if asked.json:
            give_json(found)
            return Exit.OK
        if not found:
            talk.say(f"run {run} has claimed no effects")
            return Exit.OK
        rows = [_row(one) for one in found]
        give_text("\n".join(table(COLUMNS, rows, width_of(sys.stdout), Paint(sys.stdout))))
        held = next((one["key"] for one in found if one["held"]), None)
        if held is not None:
            talk.say("a task is held until somebody has found out whether its effect happened; then record it with")
            talk.say(f"  perdure settle {run} '{held}' --done RESULT     or     --not-done")
        return Exit.OK


def _row(one: dict[str, Any]) -> list[tuple[str, str]]:
    state = f"{one['state']}, held" if one["held"] else one["state"]
    result = jsontext.encode(one["result"]).decode() if "result" in one else one.get("reason", "")
    if "settled_by" in one:
        result += f" (settled by {one['settled_by']})"
    return [
        (one["key"], ""),
        (state, STYLES.get(one["state"], "")),
        (local(one["ended_at"] or one["claimed_at"]), "dim"),
        (result, ""),
    ]
