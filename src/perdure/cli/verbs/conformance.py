"""`conformance`: run case directories of a language's suite through the real engine, on a store of their own."""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.stdout import give_json, give_text
from perdure.wiring import conformance, load_sources

EXAMPLES = """\
examples:
  perdure conformance suite/cases
  perdure conformance suite/cases --virtual-time      cases with timers run without waiting
  perdure conformance suite/cases/600-retry-exhausted

A case folder contains case.json, definition.json and scenarios/NAME/{input,arguments,expected-result}.json.
The last line is `N passed, M failed`, counted in scenarios; the exit code is 7 if any failed.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("folders", metavar="DIR", nargs="+", type=Path, help="folders that contain case folders")
    parser.add_argument(
        "--virtual-time", action="store_true", help="move the clock to the next timer instead of waiting"
    )
    a.add_load(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    load_sources(args.load)
    read_suite, run_suite = conformance()
    suite = read_suite(args.folders)
    for name in suite.out_of_scope:
        talk.say(f"{name}: not in scope, it asks for a profile that is not claimed")
    with TemporaryDirectory(prefix="perdure-conformance-") as folder:
        verdicts = []

        async def run() -> int:
            store = Path(folder) / "runs.db"
            verdicts.extend(await run_suite(suite.scenarios, store, virtual_time=args.virtual_time))
            return Exit.OK

        code = complete(run())
    if code != Exit.OK:
        return code
    failed = [verdict for verdict in verdicts if verdict.differences]
    if args.json:
        give_json(
            {
                "passed": len(verdicts) - len(failed),
                "failed": len(failed),
                "failures": {verdict.scenario.name: list(verdict.differences) for verdict in failed},
            }
        )
    else:
        for verdict in failed:
            give_text("\n  ".join([f"{verdict.scenario.name}: failed", *verdict.differences]))
        give_text(f"{len(verdicts) - len(failed)} passed, {len(failed)} failed")
    return Exit.FINDINGS if failed else Exit.OK
