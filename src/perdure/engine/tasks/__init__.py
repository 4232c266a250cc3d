"""How tasks are handed to executors and workers, and how what becomes of them is recorded."""
