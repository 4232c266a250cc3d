"""`export`: a run in one file, to be opened anywhere: document, history, values, logs, and the runs below it."""

import argparse
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import perdure
from perdure.cli import arguments as a
from perdure.cli.console import Console
from perdure.cli.errors import BadUsage
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json
from perdure.engine.private_files import replace_private
from perdure.engine.runs.capsule_writer import write_capsule
from perdure.views.access import NoParameters, StoreAccess
from perdure.views.runs.run_capsule import CAPSULE, CapsuleText

EXAMPLES = """\
examples:
  perdure export 06g2k > run.perdure
  perdure export 06g2k --file run.perdure   the same; a file that only you can read
  perdure open run.perdure                  looks at it, without the store

Secrets of the host are never in a history; secrets in the payload of a Playbook are replaced. Of what tasks
printed, the latest 8 MiB are in the file.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    a.add_run(parser)
    parser.add_argument("--file", metavar="FILE", type=Path, help="the file to write (default: standard output)")


def perform(args: argparse.Namespace, talk: Console) -> int:
    if args.json and args.file is None:
        raise BadUsage("--json needs --file: the capsule itself is what is printed without it")
    return complete(_export(args, talk))


async def _export(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        run = await access.resolve(args.run)
        if isinstance(access, StoreAccess):
            lines = write_capsule(access.client, run, perdure.__version__)
        else:
            lines = _answered(await access.ask(CAPSULE, NoParameters(), run))
        if args.file is None:
            digest = await _print(lines)
        else:
            digest = await _write(lines, args.file)
    if args.json:
        give_json({"run": run, "file": str(args.file), "digest": digest})
    talk.say(f"exported run {run}; the digest of the capsule is {digest}")
    return Exit.OK


async def _answered(capsule: CapsuleText) -> AsyncIterator[bytes]:
    for line in capsule.lines:
        yield line.encode()


async def _print(lines: AsyncIterator[bytes]) -> str:
    last = b""
    async for line in lines:
        sys.stdout.write(line.decode())
        last = line
    sys.stdout.flush()
    return _digest_of(last)


async def _write(lines: AsyncIterator[bytes], path: Path) -> str:
    last = b""
    with replace_private(path) as file:
        async for line in lines:
            file.write(line)
            last = line
    return _digest_of(last)


def _digest_of(line: bytes) -> str:
    return line.partition(b" ")[0].decode()
