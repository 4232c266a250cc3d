"""`apply`: put resources into the catalog, all of them or none."""

import argparse
from collections.abc import Sequence

from perdure.cli import arguments as a
from perdure.cli.console import Console, indented
from perdure.cli.documents import NotApplied, read_applied
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.next_commands import resume_command
from perdure.cli.open_engine import load_sources, open_client, open_engine
from perdure.cli.server_presence import who_goes_on
from perdure.cli.stdout import give_json, give_text
from perdure.engine.catalog_entries import Change, Finding, Outcome, Rejected
from perdure.kernel.validation import AppliedDocument

EXAMPLES = """\
examples:
  perdure apply story.yaml                           the same as -f story.yaml
  perdure apply -f engrams/ -f stories/ -n shop      every .yaml, .yml and .json file of the folders
  perdure apply -f playbooks/sums.yaml               a Playbook, kept by its path; changed content is its next version
  perdure apply -f storyrun.yaml                     a StoryRun or StoryTrigger is a request: its run is recorded
  generate | perdure apply -f -

Everything is validated before anything is stored: with a problem in any file, exit code 7 and no change. Documents
that are applied together may refer to each other. Runs that wait for what is applied continue at once; runs that
have started keep what they started with.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("paths", nargs="*", metavar="PATH", help="as -f PATH")
    a.add_files(parser)
    a.add_namespace(parser, "where resources go that do not say so themselves")
    a.add_load(parser)


def perform(asked: argparse.Namespace, talk: Console) -> int:
    files = [*asked.files, *asked.paths]
    if not files:
        raise BadUsage("name files or folders to apply: `perdure apply PATH…` or `-f PATH`")
    load_sources(asked.load)
    return complete(_apply(asked, talk, read_applied(files)))


async def _apply(asked: argparse.Namespace, talk: Console, texts: Sequence[AppliedDocument]) -> int:
    asks = any(word in one.text for one in texts for word in ("StoryRun", "StoryTrigger"))
    asked.detach = True  # what begins here is done by whoever takes it up: nobody waits for it
    async with open_engine(asked, talk) if asks else open_client(asked, talk) as client:
        try:
            changes, findings = await client.apply(texts, asked.namespace or "")
        except Rejected as rejected:
            _tell(rejected.findings, talk)
            raise NotApplied(rejected.findings) from None
        goes_on = await who_goes_on(client, resume_command(asked))
    _tell(findings, talk)
    if asked.json:
        give_json([_plain(change) for change in changes])
    elif changes:
        give_text("\n".join(indented(f"{one.kind.title(one.key.name)} {one.outcome.value}") for one in changes))
    if any(one.kind.is_request and one.outcome is Outcome.CREATED for one in changes):
        talk.say(f"recorded; {goes_on}")
    if not texts:
        talk.say("no .yaml, .yml or .json files found")
    return Exit.OK


def _tell(findings: Sequence[Finding], talk: Console) -> None:
    for one in findings:
        talk.always(one.describe())


def _plain(change: Change) -> dict[str, object]:
    return {
        "kind": change.kind.name,
        "namespace": change.key.namespace or None,
        "name": change.key.name,
        "result": change.outcome.value,
        "generation": change.generation,
        "file": change.file,
    }
