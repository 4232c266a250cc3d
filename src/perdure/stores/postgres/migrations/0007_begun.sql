-- compatible: 1

-- Where a worker has begun a suspect (`guilt.Place`), and on which machine: whoever finds its lease lost judges by that.
ALTER TABLE tasks ADD COLUMN place smallint NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN machine text NOT NULL DEFAULT '';

-- The machine that a server lives on, with its boot: one that comes back with another boot was restarted.
ALTER TABLE servers ADD COLUMN machine text NOT NULL DEFAULT '';
