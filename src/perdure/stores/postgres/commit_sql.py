"""The pieces of the statement that is a commit. Those a batch needs are put together; PostgreSQL sees one statement.

    fence ─▶ go ─┬▶ kept (programs) ─▶ born (runs) ─┬▶ logged, noted, summed, valued, borrowed
                 ├▶ consumed, withdrawn, forgotten   └▶ sent (messages), offered
                 └▶ …

`titled` and `inherited` come before `born`: a run that may not have its name is not created.
`fence` locks the row of our server; without it nothing is written (`fence.py`). Rows of runs that were to be
created and already exist are left out (`fresh`). The lists are sorted, so that two servers never wait for each other.
"""

import re
from functools import lru_cache

from perdure.stores.postgres import change_feed, names
from perdure.stores.postgres.fence import fence_sql
from perdure.stores.postgres.wire import BLOBS, ELEMENTS, INT, INTS, TEXTS, Kind, Statement

BORN, SENT, SUMMED = 1, 2, 3
MESSAGE_BITS = 20

# `fresh` is the number of the new run that a row depends on, or 0.
_LIVE = " WHERE (n.fresh = 0 OR n.fresh IN (SELECT number FROM born))"

PARTS: dict[str, tuple[str, tuple[Kind, ...]]] = {
    "kept": (
        "INSERT INTO programs (digest, language, text)"
        " SELECT n.* FROM go, unnest({}, {}, {}) AS n ON CONFLICT DO NOTHING",
        (BLOBS, TEXTS, BLOBS),
    ),
    "used": (
        "UPDATE programs SET unused_since = NULL FROM go WHERE digest = ANY({}) AND unused_since IS NOT NULL",
        (BLOBS,),
    ),
    "titled": (names.TITLED, names.KINDS),
    "inherited": (names.INHERITED, names.KINDS),
    "born": (
        "INSERT INTO runs (number, id, partition, language, name, program, parent, labels, key, status, has_work, due,"
        " created_at, ended_at, on_wall, namespace) SELECT n.number, n.id, n.partition, n.language, n.name,"
        " n.program, n.parent, n.labels::jsonb, n.key, n.status, n.has_work = 1, n.due, n.created_at, n.ended_at,"
        " n.on_wall, n.namespace FROM go,"
        " unnest({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}) AS n (number, id, partition,"
        " language, name, program, parent, labels, key, status, has_work, due, created_at, ended_at, on_wall,"
        " namespace, is_named){called} ON CONFLICT DO NOTHING RETURNING number, id, namespace, status, language, name,"
        " parent, labels, created_at, ended_at",
        (
            INTS,
            TEXTS,
            INTS,
            TEXTS,
            TEXTS,
            BLOBS,
            TEXTS,
            TEXTS,
            BLOBS,
            TEXTS,
            INTS,
            INTS,
            INTS,
            INTS,
            INTS,
            TEXTS,
            INTS,
        ),
    ),
    "told_created": (change_feed.CREATED, change_feed.CREATED_KINDS),
    "told_changed": (change_feed.CHANGED, change_feed.CHANGED_KINDS),
    "logged": (
        "INSERT INTO log (run, seq, body) SELECT n.number, n.seq, n.body"
        " FROM go, unnest({}, {}, {}{fresh}) AS n (number, seq, body{named}){live}",
        (INTS, INTS, BLOBS),
    ),
    "noted": (
        "INSERT INTO snapshots (run, seq, body) SELECT n.number, n.seq, n.body"
        " FROM go, unnest({}, {}, {}{fresh}) AS n (number, seq, body{named}){live}"
        " ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, body = excluded.body",
        (INTS, INTS, BLOBS),
    ),
    "summed": (
        "UPDATE runs SET status = n.status, has_work = n.has_work = 1, due = n.due, ended_at = n.ended_at,"
        " on_wall = n.on_wall, program = coalesce(n.program, runs.program),"
        " labels = CASE WHEN n.labels IS NULL THEN runs.labels"
        " ELSE jsonb_strip_nulls(coalesce(runs.labels, jsonb_build_object()) || n.labels::jsonb) END"
        " FROM go, unnest({}, {}, {}, {}, {}, {}, {}, {})"
        " AS n (id, status, has_work, due, ended_at, on_wall, labels, program)"
        " WHERE runs.id = n.id RETURNING 1",
        (TEXTS, TEXTS, INTS, INTS, INTS, INTS, TEXTS, BLOBS),
    ),
    "valued": (
        "INSERT INTO large_values (run, digest, text) SELECT n.number, n.digest, n.text"
        " FROM go, unnest({}, {}, {}{fresh}) AS n (number, digest, text{named}){live} ON CONFLICT DO NOTHING",
        (INTS, BLOBS, BLOBS),
    ),
    "borrowed": (
        "INSERT INTO large_values (run, digest, text) SELECT n.number, v.digest, v.text"
        " FROM go, unnest({}, {}, {}{fresh}) AS n (number, source, digest{named})"
        " JOIN runs r ON r.id = n.source"
        " JOIN large_values v ON v.run = r.number AND (n.digest IS NULL OR v.digest = n.digest){live}"
        " ON CONFLICT DO NOTHING",
        (INTS, TEXTS, BLOBS),
    ),
    "streamed": (
        "INSERT INTO stream_rows (run, key, body) SELECT n.number, n.key, n.body"
        " FROM go, unnest({}, {}, {}{fresh}) AS n (number, key, body{named}){live}"
        " ON CONFLICT (run, key) DO UPDATE SET body = excluded.body",
        (INTS, BLOBS, BLOBS),
    ),
    "unstreamed": (
        "DELETE FROM stream_rows USING go, unnest({}, {}) AS n (number, key)"
        " WHERE stream_rows.run = n.number AND stream_rows.key = n.key",
        (INTS, BLOBS),
    ),
    "consumed": (
        "DELETE FROM inbox USING go,"
        " (SELECT * FROM unnest({}, {}{fresh}) AS n (partition, position{named}){live}) AS gone"
        " WHERE inbox.partition = gone.partition AND inbox.position = gone.position",
        (INTS, INTS),
    ),
    "sent": (
        "INSERT INTO inbox (partition, position, run, at, body)"
        " SELECT coalesce(r.partition, n.home), step.at + n.place, n.run, n.at, n.body"
        " FROM go, step, unnest({}, {}, {}, {}, {}, {}{fresh}) AS n (place, run, at, body, home, known{named})"
        " LEFT JOIN runs r ON n.known = 0 AND r.id = n.run{live} RETURNING position, partition",
        (INTS, TEXTS, INTS, BLOBS, INTS, INTS),
    ),
    "offered": (  # behind what its run has waiting in the pool, and not before what is next there: runs take turns
        "INSERT INTO tasks"
        " (run, task, delivery, pool, provider, state, body, offered_at, namespace, opener, pipeline, turn)"
        " SELECT n.run, n.task, n.delivery, n.pool, n.provider, 'ready', n.body, n.at, n.namespace, n.opener,"
        " n.pipeline, greatest("
        "coalesce((SELECT min(turn) FROM tasks t WHERE t.state = 'ready' AND t.pool = n.pool), 0),"
        " coalesce((SELECT max(turn) + 1 FROM tasks t WHERE t.state = 'ready' AND t.run = n.run), 0))"
        " + row_number() OVER (PARTITION BY n.run ORDER BY n.task) - 1"
        " FROM go, unnest({}, {}, {}, {}, {}, {}, {}, {}, {}, {}{fresh})"
        " AS n (run, task, delivery, pool, provider, body, namespace, at, opener, pipeline{named}){live}"
        " ON CONFLICT (run, task) DO UPDATE SET delivery = excluded.delivery, state = 'ready', worker = NULL,"
        " until = NULL, body = excluded.body, place = 0, machine = '', recalled = false, turn = excluded.turn,"
        " lease = NULL, offered_at = excluded.offered_at, request = NULL, holder = '', touched = false, answer = NULL,"
        " number = 1, reported = '',"
        " pipeline = CASE WHEN excluded.pipeline = '' THEN tasks.pipeline ELSE excluded.pipeline END",
        (TEXTS, INTS, INTS, TEXTS, TEXTS, BLOBS, TEXTS, INTS, TEXTS, BLOBS),
    ),
    "followed": (  # the lease of the task before it in its pipeline goes on with it, if it still lasts
        "INSERT INTO tasks (run, task, delivery, pool, provider, state, body, offered_at, namespace, opener, pipeline,"
        " number, reported, lease, worker, until, holder, touched)"
        " SELECT n.run, n.task, n.delivery, n.pool, n.provider,"
        " CASE WHEN b.lease IS NULL THEN 'ready' ELSE 'leased' END, n.body, n.at, n.namespace, n.opener, n.pipeline,"
        " CASE WHEN b.lease IS NULL THEN 1 ELSE n.number END, CASE WHEN b.lease IS NULL THEN '' ELSE n.reported END,"
        " b.lease, b.worker, b.until, coalesce(b.holder, ''), b.lease IS NOT NULL"
        " FROM go, unnest({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})"
        " AS n (run, task, delivery, pool, provider, body, namespace, at, opener, pipeline, number, reported, follows)"
        " LEFT JOIN tasks b ON b.lease = n.follows AND b.state = 'leased' AND NOT b.recalled AND b.pool = n.pool",
        (TEXTS, INTS, INTS, TEXTS, TEXTS, BLOBS, TEXTS, INTS, TEXTS, BLOBS, INTS, BLOBS, TEXTS),
    ),
    "answered": (
        "UPDATE tasks SET state = 'answered', answer = n.answer, until = n.until, body = ''"
        " FROM go, unnest({}, {}, {}, {}, {}) AS n (run, task, lease, answer, until)"
        " WHERE tasks.run = n.run AND tasks.task = n.task AND tasks.lease = n.lease AND tasks.state = 'leased'",
        (TEXTS, INTS, TEXTS, BLOBS, INTS),
    ),
    "withdrawn": (
        "DELETE FROM tasks USING go, unnest({}, {}) AS n (run, task) WHERE tasks.run = n.run AND tasks.task = n.task"
        " AND tasks.state <> 'answered'",
        (TEXTS, INTS),
    ),
    "finished": (
        "DELETE FROM tasks USING go WHERE tasks.run = ANY({}) AND tasks.state <> 'answered'"
        " AND (tasks.lease IS NULL OR tasks.lease <> ALL({})) AND (tasks.state <> 'leased' OR tasks.run <> ALL({}))",
        (TEXTS, TEXTS, TEXTS),
    ),
    "let_go": (  # their run has ended: their workers hear of it until then
        "UPDATE tasks SET recalled = true, state = 'answered', until = least(tasks.until, n.until)"
        " FROM go, unnest({}, {}, {}) AS n (run, task, until) WHERE tasks.run = n.run AND tasks.task = n.task"
        " AND tasks.state = 'leased'",
        (TEXTS, INTS, INTS),
    ),
    "audited": (
        "INSERT INTO audit (id, at, run, body) SELECT n.id, n.at, n.run, n.body"
        " FROM go, unnest({}, {}, {}, {}{fresh}) AS n (id, at, run, body{named}){live} ON CONFLICT DO NOTHING",
        (TEXTS, INTS, TEXTS, BLOBS),
    ),
    "keyed": (
        "INSERT INTO request_keys (who, key, digest, at, status, answer)"
        " SELECT n.who, n.key, n.digest, n.at, n.status, n.answer"
        " FROM go, unnest({}, {}, {}, {}, {}, {}{fresh}) AS n (who, key, digest, at, status, answer{named}){live}"
        " ON CONFLICT DO NOTHING",
        (TEXTS, TEXTS, BLOBS, INTS, INTS, BLOBS),
    ),
    "forgotten": (
        "DELETE FROM memories USING go WHERE key IN (SELECT key FROM memories WHERE expires_at <= {}"
        " AND key <> ALL ({}) LIMIT 100 FOR UPDATE SKIP LOCKED)",
        (INT, BLOBS),
    ),
    "remembered": (
        "INSERT INTO memories (key, value, created_at, expires_at)"
        " SELECT n.key, n.value, n.created_at, n.expires_at"
        " FROM go, unnest({}, {}, {}, {}{fresh}) AS n (key, value, created_at, expires_at{named}){live}"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value, created_at = excluded.created_at,"
        " expires_at = excluded.expires_at",
        (BLOBS, BLOBS, INTS, INTS),
    ),
}

STAND_WITH_THEIR_RUN = frozenset(name for name, (sql, _) in PARTS.items() if "{fresh}" in sql)
"""Parts whose rows have `fresh` as their last column."""

_ANSWERS = {
    "born": f"SELECT {BORN}, number, 0 FROM born",
    "sent": f"SELECT {SENT}, position, partition FROM sent",
    "summed": f"SELECT {SUMMED}, count(*), 0 FROM summed",
}


@lru_cache(maxsize=1_000)
def build_statement(parts: tuple[str, ...], singles: frozenset[str], is_guarded: bool, logs: int = 0) -> Statement:
    """The statement of these parts, in this order. Values: server, epoch, the last events of the `logs` that are added
    to (none, one, several), runs that end if guarded, then each part's.

    Singles have one row, which comes as plain values: most commits are small, and arrays cost more than that.
    Guarded: nothing is written when a run that ends still holds permits, for others have to be told then.
    """
    fence_condition, kinds = fence_sql(logs)
    fence = f"fence AS MATERIALIZED ({fence_condition})"
    if parts == ("logged",) and singles and not is_guarded:  # the commonest of all
        sql, part_kinds = _build_part("logged", is_single=True, creates=False, titles=False)
        return Statement(f"WITH {fence}, go AS (SELECT 1 FROM fence) {sql} RETURNING 0, 1, 1", *kinds, *part_kinds)
    pieces = [fence]
    if is_guarded:
        kinds.append(TEXTS)
        pieces.append(
            "go AS MATERIALIZED (SELECT 1 FROM fence WHERE NOT EXISTS (SELECT FROM permits WHERE run = ANY({})))"
        )
    else:
        pieces.append("go AS (SELECT 1 FROM fence)")
    if "sent" in parts:
        pieces.append("step AS MATERIALIZED (SELECT nextval('inbox_positions') AS at)")
    for name in parts:
        sql, part_kinds = _build_part(
            name, is_single=name in singles, creates="born" in parts, titles="titled" in parts
        )
        kinds.extend(part_kinds)
        pieces.append(f"{name} AS ({sql})")
    answers = ["SELECT 0, (SELECT count(*) FROM fence), (SELECT count(*) FROM go)"]
    answers += [_ANSWERS[name] for name in parts if name in _ANSWERS]
    return Statement(f"WITH {', '.join(pieces)} {' UNION ALL '.join(answers)}", *kinds)


def _build_part(name: str, *, is_single: bool, creates: bool, titles: bool) -> tuple[str, list[Kind]]:
    sql, part_kinds = PARTS[name]
    kinds = list(part_kinds)
    if name == "born":
        sql = sql.replace("{called}", names.CALLED if titles else "")
    if name in STAND_WITH_THEIR_RUN:
        fresh, named, live = (", {}", ", fresh", _LIVE) if creates else ("", "", "")
        sql = sql.replace("{fresh}", fresh).replace("{named}", named).replace("{live}", live)
        kinds += [INTS] * creates
    if is_single:
        sql = re.sub(r"unnest\(([^)]*)\) AS n\b", r"(VALUES (\1)) AS n", sql)
        kinds = [ELEMENTS[kind] for kind in kinds]
    return sql, kinds
