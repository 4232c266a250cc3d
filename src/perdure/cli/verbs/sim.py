"""`sim`: many runs of a document in virtual time, with faults drawn from a seed; a failing one is shrunk and kept."""

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from perdure.analysis.fault_schedules import FAULTS
from perdure.analysis.simulation import INVARIANTS
from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.document_files import files_of, read, read_applied
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.sent_files import SentFiles, share
from perdure.cli.server_choice import server_access
from perdure.cli.stdout import give_json, give_text
from perdure.engine.private_files import write_private
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.kernel.json_values import jsontext
from perdure.services import SIMULATION
from perdure.wiring import load_sources

EXAMPLES = """\
examples:
  perdure sim order.json                                    1,000 runs, with every kind of fault
  perdure sim order.json --runs 10000 --seed 7              other runs, and the same ones every time
  perdure sim order.json --faults crash,duplicate           only these
  perdure sim order.json --trace order.failing.json         a failing run again
  perdure sim order.json --trace finding.json               the counter-example of a finding of `perdure check --json`
  perdure sim order.json --apply flows/                     with documents that it calls
  perdure sim order.json --input '{"amount": 5}' --json     for programs

Mocks, input and messages are those of the first scenario in order.test.yaml, if there is one (--scenario chooses).
Other tasks answer with values drawn from the schemas of their outputs, or with {}. Nothing is called or stored. The
exit code is 3 if a condition that must always hold is violated; then the shortest schedule that shows it is written.
With --server the files go to the server, which simulates them; documents that they refer to may be in its catalog.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("document", metavar="FILE", help="the document")
    parser.add_argument("--runs", metavar="N", type=int, default=1_000, help="how many runs (default: 1000)")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="the seed of the first run (default: 0)")
    parser.add_argument(
        "--faults", metavar="KINDS", default=",".join(FAULTS), help=f"what may go wrong (default: {','.join(FAULTS)})"
    )
    parser.add_argument(
        "--scenario", metavar="TEXT", default="", help="the first scenario whose name contains this text"
    )
    parser.add_argument(
        "--input",
        metavar="JSON|@FILE",
        type=a.json_or_file,
        default=msgspec.UNSET,
        help="the input of the run, instead of the scenario's",
    )
    parser.add_argument(
        "--trace", metavar="FILE", type=Path, help="replay a schedule, or the counter-example of a finding of `check`"
    )
    parser.add_argument(
        "--write", metavar="FILE", type=Path, help="where a failing schedule is written (default: NAME.failing.json)"
    )
    parser.add_argument(
        "--apply", metavar="PATH", action="append", default=[], help="documents it refers to; may be repeated"
    )
    a.add_namespace(parser, "namespace of runs whose scenario names none (default: default)")
    a.add_confined(parser)
    a.add_load(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    load_sources(() if args.choice is not None else args.load)
    if args.runs < 1:
        raise BadUsage("--runs must be at least 1")
    return complete((_ask_server if args.choice is not None else _simulate)(args, talk))


async def _simulate(args: argparse.Namespace, talk: Console) -> int:
    simulation = await import_module(SIMULATION).prepare(
        args.document,
        input=None if args.input is msgspec.UNSET else args.input,
        has_input=args.input is not msgspec.UNSET,
        faults=_faults(args.faults),
        scenario=args.scenario,
        trace=args.trace,
        applied=read_applied(args.apply),
        is_confined=args.confined,
        namespace=args.namespace or DEFAULT_NAMESPACE,
    )
    if args.trace is not None:
        simulated = simulation.replay(args.trace)
        return _give_replay(args, {"seed": simulated.seed, **_facts(simulated), "parted_at": simulated.parted_at})
    report = simulation.report()
    for seed in range(args.seed, args.seed + args.runs):
        report.add(simulation.simulator.run(seed))
    if not report.failing:
        return _give(args, talk, {**report.facts(), "shrunk": None})
    shrunk = simulation.simulator.shrunk(report.failing[0])
    place = _keep(args, simulation.to_file(shrunk).to_json())
    return _give(args, talk, {**report.facts(), "shrunk": {"file": place, "seed": shrunk.seed, **_facts(shrunk)}})


async def _ask_server(args: argparse.Namespace, talk: Console) -> int:
    """The server gets the files and nothing else, and gives back what it has found."""
    applied = [Path(file) for place in args.apply for file in files_of(place)]
    sent = SentFiles([*import_module(SIMULATION).files_of(args.document), *applied])
    body = {
        "files": sent.texts,
        "document": sent.names[str(Path(args.document))],
        "runs": args.runs,
        "seed": args.seed,
        "faults": _faults(args.faults),
        "scenario": args.scenario,
        "apply": [sent.names[str(path)] for path in applied],
        "namespace": args.namespace,
    }
    if args.input is not msgspec.UNSET:
        body["input"] = args.input
    if args.trace is not None:
        body["trace"] = "perdure.trace.json"
        sent.texts["perdure.trace.json"] = read(str(args.trace))[1].decode()
    async with server_access(args, talk.say) as server:
        answer = await server.simulate(body)
    if args.trace is not None:
        return _give_replay(args, answer)
    if answer["shrunk"] is not None:
        answer["shrunk"]["file"] = _keep(args, jsontext.encode(answer["shrunk"].pop("schedule")))
    return _give(args, talk, answer)


def _faults(text: str) -> list[str]:
    faults = [kind.strip() for kind in text.split(",") if kind.strip()]
    if unknown := [kind for kind in faults if kind not in FAULTS]:
        raise BadUsage(f"{unknown[0]!r} is not a fault (expected some of {', '.join(FAULTS)})")
    return faults


def _keep(args: argparse.Namespace, schedule: bytes) -> str:
    """Write a failing schedule; others cannot read it, because it has the input."""
    place: Path = args.write or Path(args.document).with_suffix(".failing.json")
    write_private(place, schedule)
    return str(place)


def _give_replay(args: argparse.Namespace, simulated: dict[str, Any]) -> int:
    if args.json:
        give_json(simulated)
    else:
        give_text("\n".join([*(line.strip() for line in _described(simulated["faults"])), *_end(simulated)]))
    return Exit.OK if simulated["violation"] is None else Exit.FAILED


def _facts(simulated: Any) -> dict[str, Any]:
    violation = None if simulated.violation is None else msgspec.to_builtins(simulated.violation)
    return {
        "status": simulated.status,
        "code": simulated.code,
        "seconds": simulated.seconds,
        "violation": violation,
        "faults": msgspec.to_builtins(simulated.faults),
    }


def _end(simulated: dict[str, Any]) -> list[str]:
    code = f" ({simulated['code']})" if simulated["code"] else ""
    lines = [f"the run is {simulated['status']}{code} after {simulated['seconds']:g} s of virtual time"]
    violation = simulated["violation"]
    if simulated["parted_at"] is not None:
        lines.append(
            f"the run did not reach step {simulated['parted_at']!r} of the counter-example: the way there depends "
            "on data (--input, or mocks in a scenario)"
        )
    if violation is not None:
        lines.append(_violated(violation))
    return lines


def _violated(violation: dict[str, Any]) -> str:
    return f"violated: {INVARIANTS[violation['invariant']]}: {violation['message']}"


def _give(args: argparse.Namespace, talk: Console, facts: dict[str, Any]) -> int:
    shrunk: dict[str, Any] | None = facts["shrunk"]
    if args.json:
        give_json(facts)
    else:
        give_text("\n".join(_lines(facts)))
    if shrunk is None:
        return Exit.OK
    talk.say(f"again: perdure sim {args.document} --trace {shrunk['file']}")
    return Exit.FAILED


def _lines(facts: dict[str, Any]) -> list[str]:
    ends = ", ".join(f"{count} {end}" for end, count in facts["ends"].items())
    spans = ", ".join(f"{name} {seconds:g} s" for name, seconds in facts["seconds"].items())
    lines = [f"{facts['runs']} runs, {facts['crashes']} crashes", f"  ends: {ends}", f"  virtual time: {spans}"]
    covered, shrunk = facts["coverage"], facts["shrunk"]
    if covered is not None:
        lines.append(f"  covered: {share(covered, 'steps')} steps, {share(covered, 'arcs')} arcs")
        lines += [f"    not covered: {phrase}" for phrase in covered["missing"][:10]]
    lines += [f"  `check` has found: {finding['kind']} ({finding['certainty']})" for finding in facts["findings"]]
    lines += [f"  {phrase}" for phrase in facts["unforeseen"]]
    if shrunk is None:
        return [*lines, "nothing that must always hold was violated"]
    lines.append(f"{facts['failed']} runs failed; the first one, with seed {shrunk['seed']}, needs only:")
    lines += _described(shrunk["faults"]) or ["  nothing: it fails without faults"]
    if shrunk["violation"] is not None:
        lines.append(_violated(shrunk["violation"]))
    return [*lines, f"written to {shrunk['file']}"]


def _described(faults: list[dict[str, Any]]) -> list[str]:
    from perdure.analysis.fault_schedules import SimulatedFault

    return [f"    {msgspec.convert(fault, SimulatedFault).describe()}" for fault in faults]
