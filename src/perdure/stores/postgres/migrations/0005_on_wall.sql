-- compatible: 1

-- Runs may wait until an instant on the wall, which somebody may set: it is compared with that clock, not with the store's.
ALTER TABLE runs ADD COLUMN on_wall bigint;

CREATE INDEX runs_on_wall ON runs (partition, on_wall) WHERE on_wall IS NOT NULL AND NOT has_work AND ended_at IS NULL;
