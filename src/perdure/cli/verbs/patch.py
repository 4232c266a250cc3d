"""`patch`: change the `ctx` of a Playbook's run; gates that wait for it open at once."""

import argparse

from perdure.cli import arguments as a
from perdure.cli.interruption import complete
from perdure.cli.steering import steer
from perdure.cli.talk import Talk

EXAMPLES = """\
examples:
  perdure patch 06g2k --ctx '{"approved": true}'
  perdure patch 06g2k --ctx @decision.json --reason "checked by hand" --by Ada
  perdure patch 06g2k --set approved=true              members, one by one; dots reach into maps

The patch is on disk when the command returns. A run that has ended is a conflict (exit code 9).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("--ctx", metavar="JSON|@FILE", type=a.json_or_file, help="the members to set")
    parser.add_argument("--set", metavar="K=V", type=a.pair, action="append", default=[], help="set one member")
    parser.add_argument("--reason", metavar="TEXT", default="", help="kept in the history")
    parser.add_argument("--by", metavar="WHO", default="", help="who says so")
    a.add_key(parser)


def perform(asked: argparse.Namespace, talk: Talk) -> int:
    members = {} if asked.ctx is None else asked.ctx
    for name, text in asked.set:  # a dotted name stays one: the run assigns the nested path
        members = {**members, name: a.with_members(None, [("value", text)])["value"]}
    body = {"ctx": members, "reason": asked.reason}
    return complete(
        steer(
            asked, talk, "ctx patched", lambda client, run: client.steer(run, "patch", body, key=asked.key, by=asked.by)
        )
    )
