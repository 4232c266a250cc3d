"""`secrets rekey`: encrypt kept secrets again, with the first of the operator's keys."""

import argparse

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_client
from perdure.cli.stdout import give_json, give_text
from perdure.engine.secrets.kept_secrets import KeptSecrets
from perdure.views.administration.audit_log import audited
from perdure.views.resources.credential_list import open_credentials

EXAMPLES = """\
examples:
  PERDURE_SECRETS_KEY_FILE=new.key,old.key perdure secrets rekey
  perdure secrets rekey --db postgresql://perdure@db/perdure --json

To change the key: list the new file before the old one in [secrets] key_file, restart the servers, rekey, and then take
the old file out. Servers may run meanwhile. If it is interrupted, run it again: it continues with the rest. References
(env:NAME, file:NAME) are encrypted too.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    a.add_shared_again(actions.add_parser("rekey", help="encrypt all stored secrets with the first key"))


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_rekey(args, talk))


async def _rekey(args: argparse.Namespace, talk: Console) -> int:
    async with open_client(args, talk, must_exist=True) as client:
        recorded = await audited(client, "rekey_secrets", "secrets")
        credentials = open_credentials(recorded.store)
        numbers = [await credentials.rekey(), await KeptSecrets(recorded.store, credentials.keys).rekey()]
        changed, count = (sum(column) for column in zip(*numbers, strict=True))
    if args.json:
        give_json({"rekeyed": changed, "secrets": count})
    else:
        give_text(f"{changed} of {count} secrets were encrypted again")
    return Exit.OK
