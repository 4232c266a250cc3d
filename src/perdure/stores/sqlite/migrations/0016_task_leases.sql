-- Tasks for workers elsewhere: who has which lease (128 random bits, new with each grant), in which order they are given
-- (`turn`: runs take turns), what was answered. States: ready, leased, lost, answered.
ALTER TABLE tasks ADD COLUMN opener TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN offered_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN lease TEXT;
ALTER TABLE tasks ADD COLUMN request TEXT;
ALTER TABLE tasks ADD COLUMN holder TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN touched INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN releases INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN answer BLOB;
ALTER TABLE tasks ADD COLUMN lost_lease TEXT;
ALTER TABLE tasks ADD COLUMN lost_delivery INTEGER NOT NULL DEFAULT 0;

-- A lease from before has no number by which its worker could answer: it is offered again when it ends.
DROP INDEX IF EXISTS tasks_ready;
DROP INDEX IF EXISTS tasks_leased;
CREATE INDEX tasks_ready ON tasks (pool, turn, offered_at, run, task) WHERE state = 'ready';
CREATE INDEX tasks_for_provider ON tasks (pool, provider, turn, offered_at, run, task) WHERE state = 'ready';
CREATE INDEX tasks_of_run ON tasks (run, turn) WHERE state = 'ready';
CREATE INDEX tasks_due ON tasks (until) WHERE state IN ('leased', 'answered');
CREATE UNIQUE INDEX tasks_lease ON tasks (lease) WHERE lease IS NOT NULL;
CREATE INDEX tasks_request ON tasks (request) WHERE request IS NOT NULL;
CREATE INDEX tasks_lost ON tasks (lost_lease) WHERE lost_lease IS NOT NULL;

-- Workers elsewhere as servers have seen them.
CREATE TABLE workers (
    pool      TEXT NOT NULL,
    name      TEXT NOT NULL,
    holder    TEXT NOT NULL,
    providers TEXT NOT NULL,
    opens     TEXT NOT NULL,
    slots     INTEGER NOT NULL,
    seen_at   INTEGER NOT NULL,
    left_at   INTEGER,
    PRIMARY KEY (pool, name)
) STRICT, WITHOUT ROWID;
