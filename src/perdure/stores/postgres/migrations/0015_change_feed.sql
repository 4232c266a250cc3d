-- compatible: 1

-- Changes of runs and of the catalog, written with the change. `number` is how many events a run had then, or the version of an
-- entry. Rows are written only while somebody has asked for them, and removed after a time. Whoever reads gives positions to the
-- rows that it sees and that have none: commits become visible in another order than that of any number which they take.
CREATE TABLE feed (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    position   bigint,
    at         bigint NOT NULL,
    kind       text NOT NULL,  -- run, or the kind of an entry
    namespace  text NOT NULL,
    name       text NOT NULL,  -- of an entry; the id of a run
    number     bigint NOT NULL,
    is_removed boolean NOT NULL,
    status     text,
    language   text,
    document   text,
    parent     text,
    labels     text,
    started_at bigint,
    ended_at   bigint,
    body       bytea
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE UNIQUE INDEX feed_positions ON feed (position) WHERE position IS NOT NULL;
CREATE INDEX feed_without_position ON feed (id) WHERE position IS NULL;

-- Until when changes are written, the position up to which they are gone, and the last position that was given.
CREATE TABLE feed_state (
    until bigint NOT NULL,
    floor bigint NOT NULL,
    last  bigint NOT NULL
) WITH (fillfactor = 50);

INSERT INTO feed_state VALUES (0, 0, 0);
