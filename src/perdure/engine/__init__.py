"""The only writer of executions. Meets dialects, stores and workers as protocols, handed in by `wiring`."""
