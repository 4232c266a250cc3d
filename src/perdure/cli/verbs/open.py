"""`open`: a run from a capsule, looked at with the verbs that look at runs; nothing of it is executed."""

import argparse
from importlib import import_module
from pathlib import Path

from perdure.cli.capsule_store import capsule_store
from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.main import main
from perdure.engine.runs.capsules import Capsule, check_states, read_capsule
from perdure.kernel.json_values.values import RunId
from perdure.services import SCENARIO_WRITER
from perdure.views.times import iso
from perdure.wiring import Observer, languages

VERBS = ("show", "history", "why", "timeline", "graph", "diff", "evaluate", "effects", "result", "logs", "replay", "ps")
OF_ALL = ("ps",)  # these are about no run in particular

EXAMPLES = """\
examples:
  perdure open run.perdure                          the run on one screen
  perdure open run.perdure history --full           any verb that looks at runs
  perdure open run.perdure show --at 12             as it was after its twelfth event
  perdure open run.perdure logs                     what its tasks printed
  perdure open run.perdure ps                       the run and those below it
  perdure open --scenario tests/ run.perdure        write its document, answers and input as a test
  perdure open run.perdure replay --with new.json   what it would have done with another document

A file that was changed is refused. Each run in it is replayed from its first event, and must reach the state that it
had when it was exported.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("file", metavar="FILE", type=Path, help="a capsule that `perdure export` wrote")
    parser.add_argument("--scenario", metavar="DIR", type=Path, help="write it as a scenario of `perdure test` instead")
    parser.add_argument("view", metavar="VERB", nargs="?", default="show", help=f"one of {', '.join(VERBS)}")
    parser.add_argument("words", metavar="…", nargs=argparse.REMAINDER, help="what the verb takes besides the run")


def perform(args: argparse.Namespace, talk: Console) -> int:
    if args.view not in VERBS:
        raise BadUsage(f"{args.view!r} does not look at runs", hint=f"Use one of {', '.join(VERBS)}.")
    with args.file.open("rb") as lines:
        capsule = read_capsule(lines)
    check_states(capsule, languages())
    runs = len(capsule.checksums)
    head = capsule.head
    others = f" and {runs - 1} below it" if runs > 1 else ""
    talk.say(f"run {head.run}{others}, exported {iso(head.exported_at)} by Perdure {head.engine}")
    talk.say(f"digest {capsule.digest}; {_redactions(capsule)}")
    if capsule.lines_left_out:
        talk.say(f"{capsule.lines_left_out} older lines that tasks printed are not in it")
    with capsule_store(capsule) as url:
        if args.scenario is not None:
            return complete(_write_scenario(url, head.run, args.scenario, talk))
        run = [] if args.view in OF_ALL else [head.run]
        words = [args.view, *run, *args.words, *(["--json"] if args.json else []), "--db", url]
        return main(words)


async def _write_scenario(url: str, run: RunId, folder: Path, talk: Console) -> int:
    async with Observer(url) as observer:
        written = await import_module(SCENARIO_WRITER).write_scenario(observer, run, folder)
    for path in written.files:
        talk.say(f"wrote {path}")
    for item in written.left_out:
        talk.say(f"left out: {item}")
    talk.say(f"next: perdure test {folder}")
    return Exit.OK


def _redactions(capsule: Capsule) -> str:
    if not capsule.redacted:
        return "nothing was redacted"
    return f"redacted at {len(capsule.redacted)} places, such as {capsule.redacted[0]}"
