"""`ca`: the certificate of the authority that `serve --tls auto` has made, for clients that are to trust it."""

import argparse

from perdure.cli.console import Console
from perdure.cli.exit_codes import Exit
from perdure.cli.stdout import give_json, give_text

EXAMPLES = """\
examples:
  perdure ca > perdure-ca.pem
  curl --cacert perdure-ca.pem https://localhost:8420/livez
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--data", metavar="DIR", help="the data folder of the server, as given to `serve`")


def perform(args: argparse.Namespace, talk: Console) -> int:
    from perdure.server.data_folder import data_folder
    from perdure.server.tls import CA_FILES

    path = data_folder(args.data, args.db) / CA_FILES[0]
    text = path.read_text("ascii")
    if args.json:
        give_json({"ca": text, "file": str(path)})
    else:
        give_text(text.rstrip("\n"))
    return Exit.OK
