-- Entries that were written through the API of a server: the policy for such documents binds their runs, whenever they begin.
ALTER TABLE resources ADD COLUMN from_api INTEGER NOT NULL DEFAULT 0;
