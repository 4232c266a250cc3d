-- compatible: 1

-- Tasks for workers elsewhere: who has which lease (128 random bits, new with each grant), in which order they are given
-- (`turn`: runs take turns), what was answered. States: ready, leased, lost, answered.
ALTER TABLE tasks ADD COLUMN opener text NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN turn bigint NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN offered_at bigint NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN lease text;
ALTER TABLE tasks ADD COLUMN request text;
ALTER TABLE tasks ADD COLUMN holder text NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN touched boolean NOT NULL DEFAULT false;
ALTER TABLE tasks ADD COLUMN releases bigint NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN answer bytea;
ALTER TABLE tasks ADD COLUMN lost_lease text;
ALTER TABLE tasks ADD COLUMN lost_delivery bigint NOT NULL DEFAULT 0;

-- A lease from before has no number by which its worker could answer: it is offered again when it ends.
DROP INDEX IF EXISTS tasks_ready;
DROP INDEX IF EXISTS tasks_leased;
DROP INDEX IF EXISTS tasks_due;
CREATE INDEX tasks_ready ON tasks (pool, turn, offered_at, run, task) WHERE state = 'ready';
CREATE INDEX tasks_for_provider ON tasks (pool, provider, turn, offered_at, run, task) WHERE state = 'ready';
CREATE INDEX tasks_of_run ON tasks (run, turn) WHERE state = 'ready';
CREATE INDEX tasks_due ON tasks (until) WHERE state IN ('leased', 'answered');
CREATE UNIQUE INDEX tasks_lease ON tasks (lease) WHERE lease IS NOT NULL;
CREATE INDEX tasks_request ON tasks (request) WHERE request IS NOT NULL;
CREATE INDEX tasks_lost ON tasks (lost_lease) WHERE lost_lease IS NOT NULL;

-- Workers elsewhere as servers have seen them.
CREATE TABLE workers (
    pool      text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    holder    text NOT NULL,
    providers text NOT NULL,
    opens     text NOT NULL,
    slots     bigint NOT NULL,
    seen_at   bigint NOT NULL,
    left_at   bigint,
    PRIMARY KEY (pool, name)
);

ALTER TABLE workers SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
