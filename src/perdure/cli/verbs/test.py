"""`test`: play the scenarios beside documents, again with crashes if asked, and show what they cover."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from perdure.analysis.coverage import Coverage
from perdure.analysis.verdicts import ScenarioVerdict
from perdure.cli import arguments as a
from perdure.cli.console import Console, Paint, harmless, indented
from perdure.cli.document_files import files_of, read_applied
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.sent_files import SentFiles, share
from perdure.cli.server_choice import server_access
from perdure.cli.stdout import give_json, give_text
from perdure.engine.private_files import write_private
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.services import SCENARIO_SUITE
from perdure.views.drawing import markup
from perdure.views.drawing.boxes import NodeStatus
from perdure.wiring import load_sources

EXAMPLES = """\
examples:
  perdure test flows/                          every *.test.yaml of a folder
  perdure test order.json                      the scenarios in order.test.yaml beside it
  perdure test order.json --crash=all          again with a crash before and after every commit
  perdure test flows/ --junit report.xml       a report for a CI job
  perdure test order.json --coverage mermaid   what the scenarios cover, drawn on the graph

Tasks are answered by mocks, and time passes only as the scenario says: nothing is called, nothing waits.
docs/guide/trust.md describes scenarios. The exit code is 3 if a scenario fails, and 7 if a file of scenarios is wrong.
With --server the files go to the server, which plays them without any code; documents that they refer to may be in
its catalog.
"""

FORMS = ("text", "mermaid", "dot", "svg")
MOST_LISTED = 12


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "places", metavar="DIR|FILE", nargs="+", help="folders of scenarios, files of scenarios, or documents"
    )
    parser.add_argument(
        "--crash", choices=("all", "none"), default="none", help="`all`: repeat each with a crash at every commit"
    )
    parser.add_argument("--only", metavar="TEXT", default="", help="only scenarios whose name contains this text")
    parser.add_argument("--coverage", choices=FORMS, help="draw what the scenarios cover of each document")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="write a report in the form of JUnit")
    parser.add_argument(
        "--apply", metavar="PATH", action="append", default=[], help="documents it refers to; may be repeated"
    )
    a.add_namespace(parser, "namespace of runs whose scenario names none (default: default)")
    a.add_confined(parser)
    a.add_load(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    load_sources(() if args.choice is not None else args.load)
    return complete(_test(args, talk))


async def _test(args: argparse.Namespace, talk: Console) -> int:
    tested = await (_play_there if args.choice is not None else _play_here)(args, talk)
    verdicts = tested["scenarios"]
    if not verdicts:
        raise BadUsage(f"no scenario has {args.only!r} in its name")
    if args.junit is not None:
        write_private(args.junit, to_junit(verdicts))
    if args.json:
        give_json(tested)
    else:
        for covered in tested["coverage"]:
            give_text("\n".join(_coverage_lines(covered, args.coverage)))
        give_text(f"{tested['passed']} passed, {tested['failed']} failed")
    return Exit.FAILED if tested["failed"] else Exit.OK


async def _play_here(args: argparse.Namespace, talk: Console) -> dict[str, Any]:
    suite = import_module(SCENARIO_SUITE)
    paths = list(dict.fromkeys(path for place in args.places for path in suite.find_files(place)))
    files = suite.read_files(paths, is_confined=args.confined, namespace=args.namespace or DEFAULT_NAMESPACE)

    answer = sys.stdout

    def say(verdict: ScenarioVerdict) -> None:
        if not args.json:
            with redirect_stdout(answer):
                give_text("\n".join(_lines(verdict.facts())))

    with redirect_stdout(sys.stderr):  # functions that no mock replaces may print
        verdicts, coverages = await suite.play_files(
            files, crashes=args.crash == "all", only=args.only, applied=read_applied(args.apply), say=say
        )
    failed = sum(not verdict.has_passed for verdict in verdicts)
    return {
        "passed": len(verdicts) - failed,
        "failed": failed,
        "scenarios": [verdict.facts() for verdict in verdicts],
        "coverage": [
            {**covered.facts(), **({"text": draw(args.coverage, covered.coverage)} if args.coverage else {})}
            for covered in coverages
        ],
    }


async def _play_there(args: argparse.Namespace, talk: Console) -> dict[str, Any]:
    """By a server, which gets the files and nothing else."""
    suite = import_module(SCENARIO_SUITE)
    paths = list(dict.fromkeys(path for place in args.places for path in suite.find_files(place)))
    files = suite.read_files(paths)
    applied = [Path(file) for place in args.apply for file in files_of(place)]
    listed = [path for tested in files for path in (tested.path, tested.document, *tested.beside())]
    sent = SentFiles([*listed, *applied])
    body = {
        "files": sent.texts,
        "places": [sent.names[str(path)] for path in paths],
        "crash": args.crash,
        "only": args.only,
        "coverage": args.coverage,
        "apply": [sent.names[str(path)] for path in applied],
        "namespace": args.namespace,
    }
    async with server_access(args, talk.say) as server:
        tested = await server.test(body)
    for verdict in tested["scenarios"]:
        verdict["file"], verdict["document"] = sent.path(verdict["file"]), sent.path(verdict["document"])
        if not args.json:
            give_text("\n".join(_lines(verdict)))
    for covered in tested["coverage"]:
        covered["document"] = sent.path(covered["document"])
    return tested


def _lines(verdict: dict[str, Any]) -> list[str]:
    paint = Paint(sys.stdout)
    word = paint("passed", "green") if verdict["passed"] else paint("failed", "red")
    crashes = f", {verdict['crashes']} crashes" if verdict["crashes"] else ""
    place = f"{verdict['file']}:{verdict['line']}"
    head = f"{place}: {indented(verdict['name'])}: {word} ({verdict['seconds']:.1f} s{crashes})"
    return [head, *(f"    {indented(difference, 6)}" for difference in verdict["differences"])]


def _coverage_lines(covered: dict[str, Any], form: str | None) -> list[str]:
    shares = ", ".join(f"{share(covered, name)} {name}" for name in ("steps", "arcs", "branches"))
    head = f"{covered['document']}: covered: {shares}"
    if form is not None:
        return [head, covered["text"]]
    missing = covered["missing"]
    more = (
        [f"    and {len(missing) - MOST_LISTED} more (--coverage text shows all)"] if len(missing) > MOST_LISTED else []
    )
    return [head, *(f"    not covered: {phrase}" for phrase in missing[:MOST_LISTED]), *more]


def draw(form: str, coverage: Coverage) -> str:
    """The graph of a document with what runs have used of it."""
    statuses: dict[str, NodeStatus] = {}
    for node in coverage.graph.nodes:
        count = coverage.runs.get(node.id, 0)
        if count:
            statuses[node.id] = NodeStatus("done", f"{count} run{'' if count == 1 else 's'}")
        elif node in coverage.counted:
            statuses[node.id] = NodeStatus("failed", "not covered")
    taken = set(coverage.arcs)
    if form == "svg":
        from perdure.views.drawing.boxes import compose
        from perdure.views.drawing.svg import to_svg

        return to_svg(compose(coverage.graph, statuses), statuses, taken)
    write = {"mermaid": markup.to_mermaid, "dot": markup.to_dot, "text": markup.to_outline}[form]
    return write(coverage.graph, statuses, taken)


def to_junit(verdicts: Sequence[dict[str, Any]]) -> bytes:
    """As CI systems read it: one suite for each file, one case for each scenario."""
    root = ElementTree.Element("testsuites", name="perdure")
    for file in dict.fromkeys(verdict["file"] for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict["file"] == file]
        suite = ElementTree.SubElement(root, "testsuite", _figures(own), name=file)
        for verdict in own:
            facts = {"name": harmless(verdict["name"]), "classname": file, "file": file, "line": str(verdict["line"])}
            case = ElementTree.SubElement(suite, "testcase", facts, time=f"{verdict['seconds']:.3f}")
            if not verdict["passed"]:
                failure = ElementTree.SubElement(case, "failure", message=harmless(verdict["differences"][0]))
                failure.text = harmless("\n".join(verdict["differences"]))
    root.attrib.update(_figures(verdicts))
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _figures(verdicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    failed = sum(not verdict["passed"] for verdict in verdicts)
    seconds = sum(verdict["seconds"] for verdict in verdicts)
    return {"tests": str(len(verdicts)), "failures": str(failed), "errors": "0", "time": f"{seconds:.3f}"}
