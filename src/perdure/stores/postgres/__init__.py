"""Runs on PostgreSQL: the same contract as on SQLite, shared by many processes on many machines."""
