-- Waiting may count: so many microseconds in line are worth one step of priority. 0: they are worth nothing.
ALTER TABLE permits ADD COLUMN ageing INTEGER NOT NULL DEFAULT 0;

CREATE INDEX permits_ageing ON permits (scope) WHERE granted = 0 AND ageing > 0;
