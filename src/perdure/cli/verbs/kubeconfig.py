"""`kubeconfig`: what `kubectl` needs to reach a server: its address, its authority and a token."""

import argparse
import base64
import secrets
from pathlib import Path
from typing import Any

from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_client
from perdure.cli.server_choice import check_url, read_token
from perdure.cli.stdout import give_json, give_text
from perdure.views.administration.access_tokens import AccessRole, create_token
from perdure.views.administration.audit_log import act_on_store, seal_on_store

EXAMPLES = """\
examples:
  perdure kubeconfig > perdure.kubeconfig                        on the store: a new token, role author
  perdure kubeconfig --server https://flows.example:8420 --role operator --namespace shop --expires 30d
  perdure kubeconfig --access-token @token --ca ca.pem --server https://flows.example:8420
  KUBECONFIG=perdure.kubeconfig kubectl get stories

The file contains a token: keep it secret, like a password. kubectl sends tokens over TLS only: start the server with
--tls auto or with a certificate.
"""

DEFAULT_URL = "https://127.0.0.1:8420"
NAME = "perdure"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    roles = [role.value for role in AccessRole if role is not AccessRole.WORKER]
    parser.add_argument("--role", metavar="R", choices=roles, default="author", help="of the new token")
    parser.add_argument("--namespace", metavar="NS", help="the token's only namespace, and the one kubectl uses")
    parser.add_argument(
        "--expires", metavar="DURATION", type=a.duration, default=a.duration("90d"), help="of the token (default: 90d)"
    )
    parser.add_argument("--data", metavar="DIR", help="the data folder of the server, as given to `serve`")
    parser.add_argument("--ca", metavar="FILE", help="the authority of the server's certificate, if it is not ours")


def perform(args: argparse.Namespace, talk: Console) -> int:
    return complete(_perform(args, talk))


async def _perform(args: argparse.Namespace, talk: Console) -> int:
    url = check_url(args.server or DEFAULT_URL)
    if not url.startswith("https://"):
        raise BadUsage("kubectl sends a token over https only", hint="Start the server with --tls auto.")
    authority = _authority(args)
    token = read_token(args.access_token) if args.access_token else await _new_token(args, talk)
    config = kubeconfig(url, token, authority, args.namespace or "default")
    if args.json:
        give_json(config)
    else:
        from perdure.views.resources.resource_list import resource_yaml

        give_text(resource_yaml(config).rstrip("\n"))
    return Exit.OK


def _authority(args: argparse.Namespace) -> bytes | None:
    if args.ca:
        return Path(args.ca).read_bytes()
    if args.access_token:
        return None  # a server elsewhere: what this machine trusts
    from perdure.server.data_folder import data_folder
    from perdure.server.tls import CA_FILES

    path = data_folder(args.data, args.db) / CA_FILES[0]
    return path.read_bytes() if path.exists() else None


async def _new_token(args: argparse.Namespace, talk: Console) -> str:
    """Tokens cannot be read back: a kubeconfig gets one of its own."""
    name = f"kubectl-{secrets.token_hex(4)}"
    async with open_client(args, talk) as client:
        made = await create_token(
            client.acting(act_on_store(client, "create_access_token", f"token/{name}")),
            name,
            AccessRole(args.role),
            namespaces=[args.namespace] if args.namespace else [],
            expires_in=args.expires,
            by="store",
        )
        await seal_on_store(client)
    talk.say(f"Made the token {name}; revoke it with `perdure token revoke {name}`.")
    return made.token


def kubeconfig(url: str, token: str, authority: bytes | None, namespace: str) -> dict[str, Any]:
    cluster: dict[str, Any] = {"server": url}
    if authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    context = {"cluster": NAME, "user": NAME, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": NAME, "context": context}],
        "current-context": NAME,
    }
