-- Runs may wait until an instant on the wall, which somebody may set: it is compared with that clock, not with the store's.
ALTER TABLE runs ADD COLUMN on_wall INTEGER;

CREATE INDEX runs_on_wall ON runs (partition, on_wall) WHERE has_work = 0 AND on_wall IS NOT NULL;
