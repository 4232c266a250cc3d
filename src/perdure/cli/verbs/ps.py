"""`ps`: which runs there are, which are driven by a live process, and which were interrupted."""

import argparse
import sys
from collections.abc import Sequence

from perdure.cli import arguments as a
from perdure.cli.console import Console, width_of
from perdure.cli.error_output import complain
from perdure.cli.exit_codes import Exit
from perdure.cli.interrupts import complete
from perdure.cli.open_engine import open_access
from perdure.cli.stdout import give_json, give_text
from perdure.cli.tables import Column, table
from perdure.kernel.json_values.values import Instant
from perdure.kernel.outcomes import Status
from perdure.views.errors import StoreMissing
from perdure.views.runs.progress_events import status_words
from perdure.views.runs.run_list_json import ListedRun, ListQuery, list_all, list_recent
from perdure.views.times import iso, local, span

RECENT = 10  # ended runs that the table shows unless told otherwise
COUNTED = 1_000  # and how many more are counted

EXAMPLES = """\
examples:
  perdure ps                                  open runs and the most recently ended ones
  perdure ps --status failed --since 1d       runs of the last 24 hours that failed
  perdure ps --label customer=17 --all
  perdure ps -n shop                          runs of namespace `shop`; -A shows the namespace of each
  perdure ps --json | jq '.[] | select(.live | not)'

The table omits children and older ended runs, and says how many. `--json` omits nothing.
"""

NARROW = 120  # columns; in fewer ids are shortened

COLUMNS = (
    Column("ID"),
    Column("LANGUAGE", may_go=True),
    Column("NAME", may_shrink=True),
    Column("STATUS"),
    Column("STARTED", may_go=True),
    Column("AGE"),
    Column("OWNER"),
    Column("WHY", may_shrink=True),
)

_STYLES = {
    Status.SUCCEEDED: "green",
    Status.PARTIAL: "yellow",
    Status.FAILED: "red",
    Status.TIMED_OUT: "red",
    Status.CANCELLED: "yellow",
    Status.RUNNING: "cyan",
    Status.WAITING: "cyan",
    Status.PAUSED: "yellow",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--all", action="store_true", help="include all ended runs, and children")
    parser.add_argument(
        "--status",
        metavar="S",
        action="append",
        default=[],
        choices=[status.value for status in Status],
        help=f"only runs in this status ({', '.join(status.value for status in Status)}); may be repeated",
    )
    parser.add_argument("--name", metavar="N", help="only runs of documents with this name")
    a.add_labels(parser, "only runs with this label")
    namespaces = a.add_namespace(parser, "only runs of this namespace (default: of all)")
    namespaces.add_argument("-A", "--all-namespaces", action="store_true", help="of all, with their namespaces")
    parser.add_argument(
        "--since",
        metavar="T",
        type=a.instant,
        help="only runs started since T: 2026-05-01T12:30, or 2h",
    )
    parser.add_argument("--until", metavar="T", type=a.instant, help="only runs started before T")
    parser.add_argument("--limit", metavar="N", type=int, help="only the latest N runs")
    parser.add_argument("--children", action="store_true", help="include runs that were started by other runs")


def perform(args: argparse.Namespace, talk: Console) -> int:
    try:
        return complete(_list(args, talk))
    except StoreMissing as missing:
        if not args.json:
            raise
        give_json([])  # a list, always: whoever polls for a run that is about to start reads one
        return complain(missing, talk, args.verb, as_json=False)


async def _list(args: argparse.Namespace, talk: Console) -> int:
    async with open_access(args, talk) as access:
        width = width_of(sys.stdout)
        query = ListQuery(
            status=args.status,
            name=args.name,
            label=[f"{name}={value}" for name, value in args.label],
            started_after=iso(args.since),
            started_before=iso(args.until),
            namespace=None if args.all_namespaces or not args.namespace else args.namespace,
            roots=not (args.all or args.json or args.children),
            explain=not args.json,
        )
        if args.json:
            give_json([run.plain() for run in (await list_all(access, query, args.limit)).runs])
            return Exit.OK
        if args.all or args.status or args.limit is not None:
            listing, hidden = await list_all(access, query, args.limit), 0
        else:
            listing, hidden = await list_recent(access, query, RECENT, COUNTED)
    runs = listing.runs
    if runs:
        is_narrow = width is not None and width < NARROW
        cells = [_cells(run, run.short_id if is_narrow else run.id, listing.now) for run in runs]
        columns: Sequence[Column] = COLUMNS
        if args.all_namespaces:
            columns = (Column("NAMESPACE"), *COLUMNS)
            cells = [[(run.namespace, ""), *line] for run, line in zip(runs, cells, strict=True)]
        give_text("\n".join(table(columns, cells)))
    _tell_rest(runs, hidden, talk, None if args.all_namespaces else args.namespace or None)
    for run in runs:
        for message in run.pending:
            talk.say(f"run {run.id}: {message.text}")
    if any(not run.recorded.is_final and not run.is_live for run in runs):
        goes_on = "will be resumed by a server" if listing.is_served else "can be resumed with `perdure resume`"
        talk.say(f"interrupted runs {goes_on}")
    return Exit.OK


def _cells(run: ListedRun, id: str, now: Instant) -> list[tuple[str, str]]:
    why = run.reason
    if run.status.is_final and not run.pending:
        owner, style = "-", "dim"
    elif run.is_live:
        owner, style = "live", "green"
    else:
        owner, style = "interrupted", "yellow"
    if run.stuck:
        why = f"stuck: {run.stuck}"
    elif run.pending:
        why = f"{run.pending[-1].kind} pending"
    return [
        (id, ""),
        (run.language, ""),
        (run.name, ""),
        (status_words(run.status), _STYLES[run.status]),
        (local(run.created_at), ""),
        (span(now - run.created_at), ""),
        (owner, style),
        (why, "red" if run.stuck else ""),
    ]


def _tell_rest(shown: list[ListedRun], hidden: int, talk: Console, namespace: str | None) -> None:
    if not shown:
        talk.say("no runs" if namespace is None else f"no runs in namespace {namespace!r}")
    if hidden:
        count = f"more than {hidden}" if hidden == COUNTED else str(hidden)
        talk.say(f"{count} ended run{'' if hidden == 1 else 's'} not shown (see --all)")
