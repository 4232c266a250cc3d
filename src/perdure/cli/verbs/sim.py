"""`sim`: many runs of a document in virtual time, with faults drawn from a seed; a failing one is shrunk and kept."""

import argparse
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from perdure.analysis.fault_schedules import FAULTS
from perdure.analysis.simulation import INVARIANTS, SimulationReport
from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.stdout import give_json, give_text
from perdure.kernel.json_values import jsontext
from perdure.services import SIMULATION
from perdure.wiring import load_sources

EXAMPLES = """\
examples:
  perdure sim order.json                                    1,000 runs, with every kind of fault
  perdure sim order.json --runs 10000 --seed 7              others, and the same ones every time
  perdure sim order.json --faults crash,duplicate           only these
  perdure sim order.json --trace order.failing.json         a failing run again
  perdure sim order.json --trace finding.json               the counter-example of a finding of `perdure check --json`
  perdure sim order.json --input '{"amount": 5}' --json     for programs

Mocks, input and messages are those of the first scenario in order.test.yaml, if there is one (--scenario chooses).
Other tasks answer with values drawn from the schemas of their outputs, or with {}. Nothing is called or stored.
The exit code is 3 if something that must always hold does not; then the shortest schedule that shows it is written.
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
    parser.add_argument("--input", metavar="JSON", help="the input of the run, instead of the scenario's")
    parser.add_argument(
        "--trace", metavar="FILE", type=Path, help="replay a schedule, or the counter-example of a finding of `check`"
    )
    parser.add_argument(
        "--write", metavar="FILE", type=Path, help="where a failing schedule is written (default: NAME.failing.json)"
    )
    a.add_load(parser)


def perform(asked: argparse.Namespace, talk: Console) -> int:
    load_sources(asked.load)
    if asked.runs < 1:
        raise BadUsage("--runs must be at least 1")
    return complete(_simulate(asked, talk))


async def _simulate(asked: argparse.Namespace, talk: Console) -> int:
    faults = [kind.strip() for kind in asked.faults.split(",") if kind.strip()]
    if unknown := [kind for kind in faults if kind not in FAULTS]:
        raise BadUsage(f"{unknown[0]!r} is not a fault (expected some of {', '.join(FAULTS)})")
    simulation = await import_module(SIMULATION).prepare(
        asked.document,
        input=_input(asked.input),
        has_input=asked.input is not None,
        faults=faults,
        scenario=asked.scenario,
    )
    if asked.trace is not None:
        return _replay(asked, simulation)
    report = simulation.report()
    for seed in range(asked.seed, asked.seed + asked.runs):
        report.add(simulation.simulator.run(seed))
    if not report.failing:
        _give(asked, report, None)
        return Exit.OK
    shrunk = simulation.simulator.shrunk(report.failing[0])
    place = asked.write or Path(asked.document).with_suffix(".failing.json")
    with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # it has the input
        file.write(simulation.to_file(shrunk).to_json())
    _give(asked, report, {"file": str(place), "seed": shrunk.seed, **_facts(shrunk)})
    talk.say(f"again: perdure sim {asked.document} --trace {place}")
    return Exit.FAILED


def _input(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return jsontext.decode(text.encode())
    except ValueError:
        raise BadUsage(f"--input is not JSON: {text}") from None


def _replay(asked: argparse.Namespace, simulation: Any) -> int:
    simulated = simulation.replay(asked.trace)
    if asked.json:
        give_json({"seed": simulated.seed, **_facts(simulated), "parted_at": simulated.parted_at})
    else:
        give_text("\n".join([f"{fault.describe()}" for fault in simulated.faults] + _end(simulated)))
    return Exit.OK if simulated.violation is None else Exit.FAILED


def _facts(simulated: Any) -> dict[str, Any]:
    violation = None if simulated.violation is None else msgspec.to_builtins(simulated.violation)
    return {
        "status": simulated.status,
        "code": simulated.code,
        "seconds": simulated.seconds,
        "violation": violation,
        "faults": msgspec.to_builtins(simulated.faults),
    }


def _end(simulated: Any) -> list[str]:
    code = f" ({simulated.code})" if simulated.code else ""
    lines = [f"the run is {simulated.status}{code} after {simulated.seconds:g} s of virtual time"]
    violation = simulated.violation
    if simulated.parted_at is not None:
        lines.append(
            f"the run did not come to step {simulated.parted_at!r} of the counter-example: what leads there depends on "
            "data (--input, or mocks in a scenario)"
        )
    if violation is not None:
        lines.append(f"violated: {INVARIANTS[violation.invariant]}: {violation.message}")
    return lines


def _give(asked: argparse.Namespace, report: SimulationReport, shrunk: dict[str, Any] | None) -> None:
    facts = report.facts()
    if asked.json:
        give_json({**facts, "shrunk": shrunk})
        return
    ends = ", ".join(f"{count} {end}" for end, count in facts["ends"].items())
    spans = ", ".join(f"{name} {seconds:g} s" for name, seconds in facts["seconds"].items())
    lines = [f"{report.runs} runs, {report.crashes} crashes", f"  ends: {ends}", f"  virtual time: {spans}"]
    if report.coverage is not None:
        lines.append(f"  covered are {report.coverage.steps} steps, {report.coverage.edges} arcs")
        lines += [f"    not covered: {phrase}" for phrase in report.coverage.missing()[:10]]
    lines += [f"  `check` has found: {finding['kind']} ({finding['certainty']})" for finding in facts["findings"]]
    lines += [f"  {phrase}" for phrase in facts["unforeseen"]]
    if shrunk is None:
        lines.append("nothing that must always hold was violated")
    else:
        violation = shrunk["violation"]
        lines.append(f"{len(report.failing)} runs failed; the first one, with seed {shrunk['seed']}, needs only:")
        lines += [f"  {describe}" for describe in _described(shrunk["faults"])] or [
            "  nothing: it fails without faults"
        ]
        if violation is not None:
            lines.append(f"violated: {INVARIANTS[violation['invariant']]}: {violation['message']}")
        lines.append(f"written to {shrunk['file']}")
    give_text("\n".join(lines))


def _described(faults: list[dict[str, Any]]) -> list[str]:
    from perdure.analysis.fault_schedules import SimulatedFault

    return [f"  {msgspec.convert(fault, SimulatedFault).describe()}" for fault in faults]
