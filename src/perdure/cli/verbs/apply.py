"""`apply`: put resources into the catalog, all of them or none."""

import argparse
from collections.abc import Sequence
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console, indented
from perdure.cli.document_files import read_applied
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.next_commands import resume_command
from perdure.cli.open_engine import open_client, open_engine
from perdure.cli.server_choice import server_access
from perdure.cli.stdout import give_json, give_text
from perdure.engine.resources.catalog_changes import Finding, Outcome, Rejected
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.errors import InvalidDocument
from perdure.views.administration.audit_log import audited
from perdure.views.administration.server_presence import TAKEN_UP, who_goes_on
from perdure.views.resources.document_check import NotApplied, checked_elsewhere
from perdure.views.resources.resource_list import change_json
from perdure.wiring import languages, load_sources

EXAMPLES = """\
examples:
  perdure apply story.yaml                           the same as -f story.yaml
  perdure apply -f engrams/ -f stories/ -n shop      every .yaml, .yml and .json file of the folders
  perdure apply -f playbooks/sums.yaml               a Playbook, kept by its path; changed content is its next version
  perdure apply --label perdure.dev/tool=true add.json   a Flow has no labels of its own: this one is a tool of models
  perdure apply -f storyrun.yaml                     a StoryRun or StoryTrigger is a request: its run is recorded
  generate | perdure apply -f -

Everything is validated before anything is stored: if any file has a problem, the exit code is 7 and nothing changes.
Documents that are applied together may refer to each other. Runs that wait for an applied resource continue at once;
runs that have started keep the version that they started with.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("paths", nargs="*", metavar="PATH", help="the same as -f PATH")
    a.add_files(parser)
    a.add_namespace(parser, "namespace of resources that do not name one")
    a.add_labels(parser, "label what is applied, besides the labels in the documents; a Flow has no others")
    a.add_load(parser)


def perform(args: argparse.Namespace, talk: Console) -> int:
    files = [*args.files, *args.paths]
    if not files:
        raise BadUsage("name files or folders to apply: `perdure apply PATH…` or `-f PATH`")
    load_sources(args.load)
    labels = tuple(args.label)
    texts = [AppliedDocument(document.file, document.text, labels) for document in read_applied(files)]
    return complete(_apply(args, talk, texts))


async def _apply(args: argparse.Namespace, talk: Console, texts: Sequence[AppliedDocument]) -> int:
    if args.choice is not None:
        return await _apply_on_server(args, talk, texts)
    has_requests = any(kind in document.text for document in texts for kind in ("StoryRun", "StoryTrigger"))
    args.detach = True  # what begins here is done by whoever takes it up: nobody waits for it
    async with open_engine(args, talk) if has_requests else open_client(args, talk) as client:
        try:
            declared, _ = await client.catalog.declared(texts, args.namespace or "")
            names = ", ".join(entry.kind.title(entry.key.name) for entry in declared[:10])
            acting = await audited(client, "apply_resources", names, namespace=args.namespace or "")
            changes, findings = await acting.apply(texts, args.namespace or "")
        except Rejected as rejected:
            _tell(rejected.findings, talk)
            raise NotApplied(rejected.findings) from None
        goes_on = await who_goes_on(client, resume_command(args))
    _give(args, talk, [change_json(change) for change in changes], findings, goes_on, is_empty=not texts)
    return Exit.OK


async def _apply_on_server(args: argparse.Namespace, talk: Console, texts: Sequence[AppliedDocument]) -> int:
    async with server_access(args, talk.say) as server:
        try:
            done = await server.apply(texts, args.namespace or "", labels=dict(args.label))
        except InvalidDocument as error:
            findings = _findings(error.facts.get("problems", ()))
            _tell(findings, talk)
            raise NotApplied(findings) from None
    _give(args, talk, done["changes"], _findings(done["warnings"]), TAKEN_UP, is_empty=not texts)
    return Exit.OK


def _findings(problems: Any) -> list[Finding]:
    """What a server has found, in the files that were sent."""
    return [
        Finding(problem["file"], checked_elsewhere("", b"", [problem]).problems[0])
        for problem in problems
        if isinstance(problem, dict)
    ]


def _give(
    args: argparse.Namespace,
    talk: Console,
    changes: Sequence[dict[str, Any]],
    findings: Sequence[Finding],
    goes_on: str,
    *,
    is_empty: bool,
) -> None:
    _tell(findings, talk)
    kinds = {kind.name: kind for language in languages().values() for kind in language.kinds}
    if args.json:
        give_json(changes)
    elif changes:
        lines = [indented(f"{kinds[change['kind']].title(change['name'])} {change['result']}") for change in changes]
        give_text("\n".join(lines))
    if any(kinds[change["kind"]].is_request and change["result"] == Outcome.CREATED.value for change in changes):
        talk.say(f"recorded; {goes_on}")
    if is_empty:
        talk.say("no .yaml, .yml or .json files found")


def _tell(findings: Sequence[Finding], talk: Console) -> None:
    for finding in findings:
        talk.always(finding.describe())
