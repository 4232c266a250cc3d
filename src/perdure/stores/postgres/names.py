"""Names of runs: who gets one, who takes it over from whom, and who may not have it.

A name is taken by the commit that creates its run, or that starts it where nobody waits for it. Two who want the same
one meet in the index of names: the second waits for the first one's commit, and then sees who has it.
"""

from collections.abc import Sequence
from operator import itemgetter

import msgspec

from perdure.kernel.ids import RunName
from perdure.kernel.json_values.values import RunId
from perdure.stores.commit_types import Transition
from perdure.stores.postgres.session import Session, Step
from perdure.stores.postgres.wire import TEXTS, Kind, Statement
from perdure.stores.rows import HAS_NO_NAME

KINDS: tuple[Kind, ...] = (TEXTS, TEXTS, TEXTS, TEXTS)

Rivals = dict[tuple[RunName, RunId], RunId]


class RefusedNames(msgspec.Struct):
    """Nothing was written; without these runs, all may be."""

    refused: frozenset[RunId] = frozenset()
    rivals: dict[RunId, Rivals] = {}


_ROWS = "unnest({}, {}, {}, {}) AS n (language, namespace, name, run)"
_SAME = "names.language = n.language AND names.namespace = n.namespace AND names.name = n.name"
_BELOW = "names.run >= n.run AND names.run < n.run || '/' AND (names.run = n.run OR names.run >= n.run || '.')"


def _has_no_name(run: str) -> str:
    """The same as `rows.elders`, of an id in a query."""
    parent = f"regexp_replace({run}, '[.][^.]*$', '')"
    above = f"regexp_replace({run}, '[.][^.]*[.][^.]*$', '')"
    above_it = HAS_NO_NAME.format(elders=f"split_part({run}, '.', 1), {parent}, {above}", language="n.language")
    return f"(strpos({run}, '.') > 0 AND {above_it})"


_MAY_HAVE_ONE = f"NOT {_has_no_name('n.run')}"
_IS_NEW = " AND NOT EXISTS (SELECT FROM runs WHERE runs.id = n.run)"


def new(source: str = "", condition: str = "") -> str:
    """Rows for names that nobody has."""
    return (
        "INSERT INTO names (language, namespace, name, run) SELECT n.language, n.namespace, n.name, n.run"
        f" FROM {source}{_ROWS} WHERE {_MAY_HAVE_ONE}{condition} ON CONFLICT DO NOTHING RETURNING run"
    )


def old(source: str = "", condition: str = "") -> str:
    """Rows that are there, for those who may take them; the same as `rows.may_take`."""
    return (
        f"UPDATE names SET run = n.run, heir = NULL FROM {source}{_ROWS} WHERE {_SAME} AND {_MAY_HAVE_ONE}{condition}"
        " AND CASE WHEN names.heir IS NULL THEN names.run = n.run ELSE starts_with(n.run, names.heir || '.')"
        " AND n.run <> names.run AND NOT starts_with(n.run, names.run || '.') END RETURNING names.run"
    )


TITLED, INHERITED = new("go, ", _IS_NEW), old("go, ", _IS_NEW)
CALLED = (
    " WHERE n.is_named = 0 OR n.id IN (SELECT run FROM titled) OR n.id IN (SELECT run FROM inherited)"
    f" OR {_has_no_name('n.id')}"
)
"""Of the runs that are to be created: those that have the name they want, or are to have none."""

KEEP = Statement(
    "UPDATE names SET run = n.run, heir = n.heir FROM unnest({}, {}) AS n (run, heir)"
    f" WHERE {_BELOW} AND names.namespace IS NOT NULL",
    TEXTS,
    TEXTS,
)
_CLAIM_NEW = Statement(new(), *KINDS)
_CLAIM_OLD = Statement(old(), *KINDS)
_RIVALS = Statement(
    f"SELECT n.run, coalesce(names.heir, names.run) FROM {_ROWS} LEFT JOIN names"
    f" ON {_SAME} WHERE (names.run IS DISTINCT FROM n.run OR names.heir IS NOT NULL) AND {_MAY_HAVE_ONE}",
    *KINDS,
)
ERASE = Statement(
    f"DELETE FROM names USING unnest({{}}) AS n (run) WHERE {_BELOW} AND (names.heir IS NULL OR names.heir = n.run)"
    " AND NOT EXISTS (SELECT FROM runs WHERE runs.id = names.run)",
    TEXTS,
)
"""Of runs that are gone: their own, and those that they kept for children; what another keeps of them stays."""


def kept(batch: Sequence[Transition]) -> list[Step]:
    """Names of runs that are disowned wait for the next children of whoever disowns them."""
    disowned = [(child, change.run) for change in batch for child in change.disowned]
    return [(KEEP, list(zip(*disowned, strict=True)))] if disowned else []


def claim(session: Session, batch: Sequence[Transition]) -> RefusedNames | None:
    """Take the names that a batch claims, inside a transaction. Who is left out is the first that cannot have one."""
    claims = [(*name, child) for change in batch for name, child in change.name_claims]
    claims.sort(key=itemgetter(0, 1, 2))  # of one name in their own order: the first has it
    rows = list(zip(*claims, strict=True))
    *_, rows_found = session.run_all([*kept(batch), (_CLAIM_NEW, rows), (_CLAIM_OLD, rows), (_RIVALS, rows)])
    rivals = dict(rows_found)
    for change in batch:
        rivals_of_run = {(name, child): RunId(rivals[child]) for name, child in change.name_claims if rivals.get(child)}
        if rivals_of_run:
            return RefusedNames(rivals={change.run: rivals_of_run})
    return RefusedNames() if rivals else None  # nobody: a name has become free meanwhile
