"""`conformance`: run case directories of a language's suite through the real engine, on a store of their own."""

import argparse
from collections.abc import Awaitable
from pathlib import Path
from tempfile import TemporaryDirectory

from perdure.cli import arguments as a
from perdure.cli.conformance_cases import Verdict, read_suite, run_suite
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import load_sources
from perdure.cli.stdout import give_json, give_text

EXAMPLES = """\
examples:
  perdure conformance suite/cases
  perdure conformance suite/cases --virtual-time      temporal cases without waiting
  perdure conformance suite/cases/600-retry-exhausted

A case folder holds case.json, definition.json and scenarios/NAME/{input,arguments,expected-result}.json.
The last line is `N passed, M failed`, counted in scenarios; exit code 7 when any failed.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("folders", metavar="DIR", nargs="+", type=Path, help="folders that hold case folders")
    parser.add_argument("--virtual-time", action="store_true", help="let time jump to the next thing that is due")
    a.add_load(parser)


def perform(asked: argparse.Namespace, talk: Console) -> int:
    load_sources(asked.load)
    suite = read_suite(asked.folders)
    for name in suite.out_of_scope:
        talk.say(f"{name}: not in scope, it asks for a profile that is not claimed")
    with TemporaryDirectory(prefix="perdure-conformance-") as folder:
        running = run_suite(suite.scenarios, Path(folder) / "runs.db", virtual_time=asked.virtual_time)
        verdicts: list[Verdict] = []
        code = complete(_collected(running, verdicts))
    if code != Exit.OK:
        return code
    failed = [one for one in verdicts if one.differences]
    if asked.json:
        give_json(
            {
                "passed": len(verdicts) - len(failed),
                "failed": len(failed),
                "failures": {one.scenario.name: list(one.differences) for one in failed},
            }
        )
    else:
        for one in failed:
            give_text("\n  ".join([f"{one.scenario.name}: failed", *one.differences]))
        give_text(f"{len(verdicts) - len(failed)} passed, {len(failed)} failed")
    return Exit.FINDINGS if failed else Exit.OK


async def _collected(running: Awaitable[list[Verdict]], verdicts: list[Verdict]) -> int:
    verdicts += await running
    return Exit.OK
