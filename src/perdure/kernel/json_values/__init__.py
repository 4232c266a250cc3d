"""JSON values: strict reading and writing, references to large values, and values that grow."""
