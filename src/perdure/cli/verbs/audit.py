"""`audit`: whether the audit log is whole, and the head by which a cut end is found."""

import argparse

import msgspec

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access, open_client
from perdure.cli.server_choice import server_access
from perdure.cli.stdout import give_json, give_text
from perdure.views.access import NoParameters
from perdure.views.administration.audit_log import AUDIT_HEAD, AUDIT_REPORT, AuditHeadQuery, audit_json, list_audit

EXAMPLES = """\
examples:
  perdure audit verify
  perdure audit verify --head "$(cat head)"      also detects a truncated log
  perdure audit head > head                      keep it where the writer of the store cannot change it
  perdure audit list --limit 20

Every change and every refusal of a server is a record. Records are sealed every second, each seal with the hash of the
one before. The exit code of `verify` is 7 if a record or a seal was changed, moved or removed.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    verify = actions.add_parser("verify", help="check every record and every seal")
    verify.add_argument("--head", metavar="H", default="", help="what `audit head` printed before")
    head = actions.add_parser("head", help="print number and hash of the last seal")
    listing = actions.add_parser("list", help="list the latest records")
    listing.add_argument("--limit", metavar="N", type=int, default=100, help="how many (default: 100)")
    for action in (verify, head, listing):
        a.add_shared_again(action)


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete({"verify": _verify, "head": _head, "list": _list}[args.action](args, talk))


async def _verify(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        report = await access.ask(AUDIT_REPORT, AuditHeadQuery(head=args.head))
    if args.json:
        give_json(msgspec.to_builtins(report))
    for problem in report.problems:
        talk.always(problem)
    if report.since is not None:
        talk.say(f"records before {report.since} are not there: dropped for their age ([audit] keep), or removed")
    if not report.problems:
        talk.say(
            f"the audit log is whole: {report.rows} records in {report.seals} seals, {report.unsealed} not sealed yet"
        )
    return Exit.FINDINGS if report.problems else Exit.OK


async def _head(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        head = (await access.ask(AUDIT_HEAD, NoParameters())).head
    if args.json:
        give_json({"head": head})
    else:
        give_text(head)
    return Exit.OK


async def _list(args: argparse.Namespace, talk: Console) -> int:
    limit = max(1, args.limit)
    if args.choice is not None:
        async with server_access(args, talk.say) as server:
            shown = await server.first("/api/v1/audit", limit)
    else:
        async with open_client(args, talk, must_exist=True) as client:
            rows, _ = await list_audit(client, limit=limit)
        shown = [audit_json(row) for row in rows]
    if args.json:
        give_json(shown)
    elif shown:
        lines = [
            f"{record['at']}  {record['who']['name'] or '-'} ({record['who']['via'] or '-'})  {record['verb']}"
            f"  {record['object']}  {record['outcome']}{_times(record['count'])}"
            for record in shown
        ]
        give_text("\n".join(lines))
    return Exit.OK


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""
