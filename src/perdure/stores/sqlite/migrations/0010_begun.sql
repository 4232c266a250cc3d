-- Where a worker has begun a suspect (`guilt.Place`), and on which machine: whoever finds its lease lost judges by that.
ALTER TABLE tasks ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN machine TEXT NOT NULL DEFAULT '';
