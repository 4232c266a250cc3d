-- compatible: 1

-- What the streams of a run keep: packets that are not acknowledged, and numbers of their steps. The keys are the hub's. A row
-- is written and removed by the commit of a transition that may have no event.
CREATE TABLE stream_rows (
    run  bigint NOT NULL,
    key  bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (run, key)
);

ALTER TABLE stream_rows SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.1);
