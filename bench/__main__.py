"""The command line: `python -m bench run`, `curves`, `profile`, `split`, `write`."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import curves, page, profiling, splitting
from bench.harness import ROOT, Harness
from bench.registry import LANGUAGES, PEERS, STORES
from bench.running import Run, languages, say
from bench.sizes import FULL, QUICK
from bench.workloads import WORKLOADS

RESULTS = ROOT / "docs" / "performance" / "figures.json"
UNWRITTEN = Path(tempfile.gettempdir()) / "perdure-bench-figures.json"  # with --no-write
ALL = tuple(workload.name for workload in WORKLOADS)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    arguments = _parser().parse_args()
    arguments.action(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Speed, measured beside the peers in one run.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    run = verbs.add_parser("run", help="everything: workloads beside the peers, syncs, curves, and the page")
    run.add_argument("--rounds", type=int, help="repetitions of each workload (default 3, quick 1)")
    run.add_argument("--only", type=_names(ALL), default=ALL, help="workloads, such as w1,w4")
    run.add_argument("--peers", type=_names((*PEERS, "none")), default=PEERS, help=f"of {', '.join(PEERS)}; none")
    run.add_argument("--stores", type=_names(STORES), default=STORES, help=f"of {', '.join(STORES)}")
    run.add_argument("--environments", type=Path, help="where the peers are installed, and kept (default: temporary)")
    run.add_argument("--no-curves", action="store_true", help="leave the curves out")
    run.add_argument("--no-write", action="store_true", help="leave the page as it is")
    run.set_defaults(action=_run)
    drawn = verbs.add_parser("curves", help="only the curves, on stderr")
    drawn.set_defaults(action=_curves)
    for command in (run, drawn):
        command.add_argument("--quick", action="store_true", help="small sizes: tries the harness, measures nothing")
        command.add_argument("--languages", type=_names(LANGUAGES), default=LANGUAGES)
        command.add_argument("--scratch", type=Path, help="a folder on the disk to be measured (default: temporary)")
    run.add_argument("--curves-to", type=int, default=100_000, help="the longest run, widest fan-out, most open runs")
    run.add_argument("--output", type=Path, help="the figures (default: docs/performance/figures.json)")
    profile = verbs.add_parser("profile", help="where the time of a workload goes, by package")
    profile.add_argument("workload", choices=("w1", "w2", "w3", "w4", "w7"), nargs="?", default="w1")
    profile.add_argument("--language", choices=LANGUAGES, action="append", help="default: all")
    profile.set_defaults(action=_profile)
    split = verbs.add_parser("split", help="where one step of W4 spends its time, piece after piece")
    split.add_argument("--language", choices=LANGUAGES, action="append", help="default: all")
    split.set_defaults(action=_split)
    write = verbs.add_parser("write", help="docs/performance.md and its plots from the figures")
    write.add_argument("--figures", type=Path, default=RESULTS)
    write.set_defaults(action=lambda arguments: page.write(arguments.figures))
    return parser


def _run(arguments: argparse.Namespace) -> None:
    peers = [name for name in arguments.peers if name != "none"]
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as temporary:
        Path(temporary).chmod(0o755)
        output = output_of(arguments)
        run = Run(_harness(arguments, temporary), output, quick=arguments.quick)
        environments = arguments.environments or Path(temporary) / "environments"
        run.add_languages(arguments.languages, arguments.stores, environments)
        run.add_peers(peers, environments)
        run.measure(arguments.only, arguments.rounds or (1 if arguments.quick else 3))
        run.split()
        if not arguments.no_curves:
            run.draw_curves(1_000 if arguments.quick else arguments.curves_to)
        run.count_syncs()
        run.profile()
        run.finish()
    say(f"figures are in {output}")
    if not arguments.no_write:
        page.write(output)


def output_of(arguments: argparse.Namespace) -> Path:
    """Where the figures go: those of the page are only replaced with the page."""
    if arguments.output is not None:
        return Path(arguments.output)
    return UNWRITTEN if arguments.no_write else RESULTS


def _curves(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as temporary:
        most = 1_000 if arguments.quick else 100_000
        curves.draw(_harness(arguments, temporary), languages(arguments.languages), most, say)


def _profile(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as temporary:
        harness = Harness(Path(temporary), FULL)
        for subject in languages(arguments.language or LANGUAGES):
            profile = harness.call(subject, "bench.profiling", "profiled", arguments.workload)
            print(profiling.told(profile, f"{subject.title} {arguments.workload.upper()}"), end="\n\n")


def _split(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as temporary:
        harness = Harness(Path(temporary), FULL)
        for subject in languages(arguments.language or LANGUAGES):
            print(splitting.told(harness.call(subject, "bench.splitting", "split"), subject.title), end="\n\n")


def _harness(arguments: argparse.Namespace, temporary: str) -> Harness:
    scratch = arguments.scratch or Path(temporary)
    return Harness(scratch, QUICK if arguments.quick else FULL)


def _names(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        names = tuple(name for name in text.lower().split(",") if name)
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return read


if __name__ == "__main__":
    main()
