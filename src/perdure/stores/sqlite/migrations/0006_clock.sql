-- The store's clock: boot time of the machine plus this. Drawn once per boot, by the first who opens the file.
CREATE TABLE clock (
    boot  TEXT PRIMARY KEY,
    start INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
